"""``superopt extract``: the cheapest choice in an e-graph that lies in a file."""

from __future__ import annotations

from superopt.cli.exit_codes import OK
from superopt.extraction import greedy, interchange, solve
from superopt.extraction.solve import DEFAULT_EFFORT
from superopt.options import check_seconds
from superopt.report import to_json, write
from superopt.reporting import render
from superopt.reporting.choice import choice_document, choice_text

_UNITS_A_SECOND = 2.0
"""Units of effort that a second is taken for at most: where the user counts in seconds, these are to end the search."""


def run_extract(source: str, *, seconds: float | None, report: str | None) -> int:
    """Prints what was chosen. Raises ``InputError`` where the file or an option is at fault."""
    if seconds is not None:
        check_seconds(seconds)
    named = interchange.read(source)
    effort = DEFAULT_EFFORT if seconds is None else _UNITS_A_SECOND * seconds
    solution = solve(named.problem, effort, seconds)
    document = choice_document(source, named, solution, greedy(named.problem).cost)
    if report is not None:
        write(to_json(document), report)
    render.show(choice_text(document), render.console())
    return OK
