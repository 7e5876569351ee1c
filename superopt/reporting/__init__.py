"""What superopt tells: the report of a run put together, and every other document, each with its text."""
