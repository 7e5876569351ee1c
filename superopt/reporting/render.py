"""What all text for people is made of: consoles, tables, sizes and numbers."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table

from superopt.printable import printable

_PIPED_WIDTH = 120

_UNITS = (("kB", 1e3), ("MB", 1e6), ("GB", 1e9))


def console(*, stderr: bool = False) -> Console:
    """Where text goes: plain and as wide as needed when piped; brackets in names are never taken for markup."""
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else _PIPED_WIDTH
    return Console(file=stream, width=width, markup=False, emoji=False, highlight=False)


def show(parts: Iterable[Table | str], where: Console) -> None:
    """Prints parts one below the other, without the spaces that fill a table's lines up when it is piped."""
    if where.is_terminal:
        for part in parts:
            where.print(printable(part) if isinstance(part, str) else part)
        return
    with where.capture() as captured:
        for part in parts:
            if isinstance(part, str):
                where.print(printable(part), soft_wrap=True)
            else:
                where.print(part)
    where.file.write("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))
    where.file.flush()


def table(*columns: str, left: int = 1) -> Table:
    """An empty table whose first ``left`` columns are text and the others numbers."""
    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for index, column in enumerate(columns):
        made.add_column(column, justify="left" if index < left else "right", overflow="fold")
    return made


def bytes_text(count: int) -> str:
    """A size in bytes, for reading: ``812 B``, ``8.43 MB``."""
    if count < 1000:
        return f"{count} B"
    unit, size = next(((unit, count / scale) for unit, scale in _UNITS if count < 999.5 * scale), ("GB", count / 1e9))
    return f"{size:.3g} {unit}"


def number(value: float) -> str:
    """A number of four digits at most, with thousands apart where it is not too long: ``1,234,000``, ``0.01234``,
    ``1e+20``."""
    if not math.isfinite(value):
        return str(value)
    if 1000 <= abs(value) < 1e15:
        return f"{float(f'{value:.4g}'):,.0f}"
    return f"{value:.4g}"


def rows(made: Table, lines: Iterable[Sequence[str]]) -> Table:
    """The table with lines added."""
    for line in lines:
        made.add_row(*line)
    return made
