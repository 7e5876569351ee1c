"""Records as small tables of HTML, which is how a notebook shows them; whatever they hold is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

MOST_ROWS = 12
"""Lines of a table; of more, it says how many."""


def html_table(caption: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table of the first lines; without columns, there is no head."""
    every = list(rows)
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    lines = [_line(row) for row in every[:MOST_ROWS]]
    if len(every) > MOST_ROWS:
        lines.append(_line([f"and {len(every) - MOST_ROWS} more"]))
    parts = [f"<caption>{escape(caption)}</caption>", f"<tr>{head}</tr>" if head else "", *lines]
    return f"<table>{''.join(parts)}</table>"


def html_text(caption: str, text: str) -> str:
    """Text as it was written."""
    return f"<div>{escape(caption)}<pre>{escape(text)}</pre></div>"


def _line(row: Sequence[object]) -> str:
    return "<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in row) + "</tr>"
