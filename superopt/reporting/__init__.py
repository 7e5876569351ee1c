"""What a run did, put together as ``report`` has it, and rendered as text."""
