"""Text from models as terminals may show it."""

from __future__ import annotations


def printable(text: str) -> str:
    """Text with what a terminal would not print as it is (names may hold escape sequences) in escapes of its own."""
    return "".join(char if char.isprintable() or char == "\n" else repr(char)[1:-1] for char in text)
