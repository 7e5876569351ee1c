"""``superopt extract``: the cheapest choice in an e-graph that lies in a file."""

from __future__ import annotations

import time

from superopt.cli.exit_codes import OK
from superopt.extraction import greedy, interchange, solve
from superopt.options import check_seconds
from superopt.report import to_json, write
from superopt.reporting import render
from superopt.reporting.choice import choice_document, choice_text

_UNITS_A_SECOND = 10.0
"""Units of effort that a second is taken for at most: the seconds are to end the search, and searches may count much
more than they take."""


def run_extract(source: str, *, seconds: float, report: str | None) -> int:
    """Prints what was chosen. Raises ``InputError`` where the file or an option is at fault."""
    check_seconds(seconds)
    start = time.monotonic()
    named = interchange.read(source)
    left = max(seconds - (time.monotonic() - start), 0.0)
    solution = solve(named.problem, _UNITS_A_SECOND * seconds, left)
    plain = greedy(named.problem).cost if solution.greedy is None else solution.greedy
    document = choice_document(source, named, solution, plain)
    if report is not None:
        write(to_json(document), report)
    render.show(choice_text(document), render.console())
    return OK
