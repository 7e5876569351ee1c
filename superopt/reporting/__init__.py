"""What a run did: one JSON document, and text that is rendered from it."""
