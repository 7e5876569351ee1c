"""``superopt measure``: fills the database of timed operator instances, and writes it as a cost model."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from superopt.cli.exit_codes import OK
from superopt.cost import constant_nodes, load, measured, operands_of
from superopt.costs.database import Database, Place, default_path
from superopt.costs.files import toml
from superopt.costs.filling import fill
from superopt.costs.fitting import formula_of
from superopt.costs.gather import egraph_instances, graph_instances
from superopt.costs.instances import OperatorInstance
from superopt.costs.sampling import Timing
from superopt.costs.timing import Runtime, channels_of_a_block
from superopt.engine.saturate import saturate
from superopt.errors import OptionError
from superopt.lowering.lower import lower
from superopt.models.model import load as load_model
from superopt.numeric import settle
from superopt.options import Options, check_seconds
from superopt.report import to_json, write
from superopt.reporting import render
from superopt.reporting.measurement import measurement_document, measurement_text
from superopt.search.candidates import limits_of
from superopt.settings import feeds_of, rules_of, sizes_of
from superopt.workload import Sizes


def run_measure(
    sources: tuple[str, ...], options: Options, *, derived: bool, provider: str, seconds: float, again: bool,
    output: str | None, report: str | None,
) -> int:  # fmt: skip
    """Times the instances of models, and with ``derived`` those that rules make of them; the exit code. Raises
    ``InputError`` before anything is timed."""
    check_seconds(seconds)
    if output is not None and (not output.endswith(".toml") or not Path(output).parent.is_dir()):
        raise OptionError(f"output: {output}: cannot be a cost model, expected a .toml file in a directory that exists")
    runtime = Runtime(provider, options.threads)
    runtime.check()
    database, place = Database(default_path()), Place.here(runtime)
    console = render.console(stderr=True)

    def seen(number: int, count: int, instance: OperatorInstance, timing: Timing | None) -> None:
        if console.is_terminal:
            took = "cannot be timed" if timing is None else f"{1e6 * timing.seconds:.1f} us"
            console.print(f"{number}/{count} {instance.name}: {took}")

    begin = time.perf_counter()
    waiting = list(instances_of(sources, options, derived, channels_of_a_block(runtime), seconds / 2))
    # However long that took, half of the time is for timing: else the next run would come no further.
    left = max(seconds / 2, begin + seconds - time.perf_counter())
    filled = fill(database, waiting, runtime, seconds=left, again=again, seen=seen)
    if output is not None:
        write(toml(measured(runtime, database), f"What operators cost in seconds on {place}.\n{_ORIGIN}"), output)
    total, spent = database.places().get(place, 0), time.perf_counter() - begin
    document = measurement_document(sources, place, database.path, filled, total, spent, output)
    if report is not None:
        write(to_json(document), report)
    render.show(measurement_text(document), render.console())
    return OK


_ORIGIN = (
    "Written by superopt measure: [instance] holds what was timed, each operator alone; what is above is the roofline\n"
    "of the model onnxruntime fitted to it, for all others."
)


def instances_of(
    sources: tuple[str, ...], options: Options, derived: bool, block: int = 0, seconds: float = math.inf
) -> Iterator[OperatorInstance]:
    """The instances of models: first all that run in the models themselves, then, if ``derived``, those that rules make
    of them within some ``seconds``, the most expensive by formula first, since a wrong price of these does most harm.
    ``block`` is how many channels a block of the runtime's own layout has."""
    model = load("onnxruntime")
    later: dict[str, OperatorInstance] = {}
    rules = rules_of(options) if derived else None
    for source in sources:
        original = load_model(source)
        graph = settle(lower(original).graph, context=original.proto)
        sizes = sizes_of(feeds_of(original, options))
        yield from graph_instances(
            graph, operands_of(graph, constant_nodes(graph)), Sizes(dict(sizes)), model.fusions, block
        ).values()
        if rules is not None:
            limits = replace(limits_of(options.limit), seconds=seconds / len(sources))
            saturated = saturate(graph, rules, limits, original.opset)
            later.update(egraph_instances(saturated.egraph, sizes, model.fusions, block))
    yield from sorted(later.values(), key=lambda instance: -formula_of(model, instance))
