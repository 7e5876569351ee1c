"""``superopt inspect`` and ``superopt cost``: what a model is made of, and what it costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from superopt.cli.exit_codes import OK
from superopt.cost import load as load_cost_model
from superopt.cost import model_cost
from superopt.costs.profile import Profiled, profile
from superopt.costs.timing import Runtime
from superopt.costs.whole import ready
from superopt.errors import EvaluationError
from superopt.evaluate import Feed
from superopt.lowering.lower import lower
from superopt.measure import measure_calls
from superopt.models.model import Model, load
from superopt.options import Options, check_seconds
from superopt.report import to_json, write
from superopt.reporting import render
from superopt.reporting.costs import costs_document, costs_text
from superopt.reporting.inspection import inspection_document, inspection_text
from superopt.settings import cost_model_of, feeds_of, sizes_of


def run_inspect(source: str, options: Options, *, nodes: bool, report: str | None) -> int:
    """Prints what a model is made of."""
    document = inspection_document(lower(load(source), options.initializers_are_constant), cost_model_of(options))
    if report is not None:
        write(to_json(document), report)
    render.show(inspection_text(document, nodes=nodes), render.console())
    return OK


def run_cost(
    source: str, names: tuple[str, ...], options: Options, *, nodes: bool, seconds: float | None, report: str | None
) -> int:
    """Prints what a model costs by each of some cost models, beside what onnxruntime takes for so many ``seconds``."""
    if seconds is not None:
        check_seconds(seconds)
    model = load(source)
    names = tuple(dict.fromkeys(names))
    models = [load_cost_model(name, Runtime(threads=options.threads)) for name in names]
    lowered = lower(model)
    feeds = feeds_of(model, options)
    breakdowns = [
        replace(model_cost(lowered, each, sizes_of(feeds)), model=title)
        for each, title in zip(models, _titles(names, [each.name for each in models]), strict=True)
    ]
    taken: tuple[list[Profiled], float] | None = None
    untimed = ""
    if seconds is not None:
        try:
            if not feeds.values:
                raise EvaluationError(feeds.failed[0] if feeds.failed else "no inputs that it runs on were found")
            taken = _timed(model, feeds.values[0], options.threads, seconds)
        except EvaluationError as error:
            untimed = str(error)
    profiled, latency = taken or (None, None)
    document = costs_document(model.label, breakdowns, profiled, latency, untimed, options.threads)
    if report is not None:
        write(to_json(document), report)
    render.show(costs_text(document, nodes=nodes), render.console())
    return OK


def _titles(given: Sequence[str], names: Sequence[str]) -> list[str]:
    """What cost models are called beside each other: by their names, or where several have the same, by their files'
    names, or the files' paths."""
    files = [Path(one).name if one.endswith(".toml") else name for one, name in zip(given, names, strict=True)]
    titles = [file if names.count(name) > 1 else name for file, name in zip(files, names, strict=True)]
    return [one if titles.count(title) > 1 else title for one, title in zip(given, titles, strict=True)]


def _timed(model: Model, feed: Feed, threads: int, seconds: float) -> tuple[list[Profiled], float]:
    """What nodes take by the profiler, and what the whole takes without it, in seconds."""
    profiled = profile(model, feed, threads=threads, seconds=seconds / 2)
    latencies = measure_calls([ready(model, feed, Runtime(threads=threads))], threads=threads, seconds=seconds / 2)
    return profiled, latencies.medians[0]
