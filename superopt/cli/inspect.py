"""``superopt inspect`` and ``superopt cost``: what a model is made of, and what it costs."""

from __future__ import annotations

from superopt.cost import load as load_cost_model
from superopt.lowering.lower import lower
from superopt.models.model import load
from superopt.options import Options
from superopt.reporting import render
from superopt.reporting.inspection import inspection
from superopt.reporting.report import to_json, write

OK = 0


def run_inspect(source: str, options: Options, *, nodes: bool, report: str | None) -> int:
    """Prints what a model is made of."""
    return _show(source, options, report, nodes=nodes, summary=True)


def run_cost(source: str, options: Options, *, report: str | None) -> int:
    """Prints what a model costs, by operator."""
    return _show(source, options, report, nodes=False, summary=False)


def _show(source: str, options: Options, report: str | None, *, nodes: bool, summary: bool) -> int:
    cost_model = options.cost if not isinstance(options.cost, str) else load_cost_model(options.cost)
    document = inspection(lower(load(source), options.initializers_are_constant), cost_model)
    if report is not None:
        write(to_json(document), report)
    console = render.console()
    parts = render.inspected(document, nodes=nodes) if summary else render.costs(document)
    render.show(parts, console)
    return OK
