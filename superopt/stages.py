"""The stages of a run, one at a time, for those who research rules and cost models: saturate, extract, check.

They are the stages that ``optimize`` runs, on the same records; a model's main graph alone is searched, its bodies stay
as they are.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import onnx

from superopt.cost import CostModel, graph_cost
from superopt.engine.eclasses import EGraph
from superopt.engine.saturate import Limits, Saturation
from superopt.errors import OptionError
from superopt.explanation.numbering import same_graph
from superopt.laws.all import POINTS, Checked, check_all
from superopt.laws.laws import LawResult
from superopt.models import model as models
from superopt.models.model import Model
from superopt.notebook import html_table, html_text
from superopt.options import DEFAULT_COST_MODEL, DEFAULT_RULES, LIMITS, Options, check_jobs, check_whole, options
from superopt.progress import Clock, Watcher
from superopt.reporting.render import bytes_text
from superopt.rule_text import load as load_rules
from superopt.rules import RuleSet
from superopt.search.candidates import Found, Search
from superopt.search.opening import opened
from superopt.settings import cost_model_of, feeds_of, rules_of, sizes_of
from superopt.terms import TensorType

if TYPE_CHECKING:
    import onnx_ir

SHOWN = 5
"""How many rules a short text names."""


@dataclass(frozen=True, repr=False)
class Saturated:
    """A model's e-graph under some rules, and how it came about; ``extract`` chooses from it.

    ``rules`` are those that ran: of the numeric class that was asked for, none rejected. ``seconds`` by stage.
    """

    search: Search
    rules: RuleSet
    saturation: Saturation
    seconds: Mapping[str, float]

    @property
    def egraph(self) -> EGraph:
        """Classes of equal terms; ``egraph.text()`` writes them out."""
        return self.saturation.egraph

    @property
    def stopped_by(self) -> str:
        """``saturated``, ``iterations``, ``nodes``, ``seconds`` or ``clash``."""
        return self.saturation.stopped_by

    @property
    def nodes(self) -> tuple[int, ...]:
        """E-nodes before the first iteration and after each."""
        return self.saturation.sizes

    @property
    def classes(self) -> tuple[int, ...]:
        """E-classes before the first iteration and after each."""
        return self.saturation.class_counts

    @property
    def matches(self) -> Mapping[str, int]:
        """How often each rule applied, the most frequent first; rules that never did are left out."""
        found = self.saturation.matches
        return {name: found[name] for name in sorted(found, key=lambda name: -found[name]) if found[name]}

    def __repr__(self) -> str:
        most = ", ".join(f"{name} {count}" for name, count in list(self.matches.items())[:SHOWN])
        return (
            f"<{self.search.original.label}: {self.nodes[0]} -> {self.nodes[-1]} e-nodes, "
            f"{self.classes[0]} -> {self.classes[-1]} e-classes in {self.saturation.iterations} iterations, "
            f"stopped by: {self.stopped_by}; {len(self.matches)} of {len(self.rules)} rules matched"
            + (f": {most}" if most else "")
            + ">"
        )

    def _repr_html_(self) -> str:
        rows = [
            ("e-nodes", f"{self.nodes[0]} -> {self.nodes[-1]}"),
            ("e-classes", f"{self.classes[0]} -> {self.classes[-1]}"),
            ("iterations", f"{self.saturation.iterations}, stopped by: {self.stopped_by}"),
            ("rules that matched", f"{len(self.matches)} of {len(self.rules)}"),
        ]
        most = [(name, f"{count} matches") for name, count in list(self.matches.items())[:SHOWN]]
        return html_table(self.search.original.label, (), rows + most)


@dataclass(frozen=True, repr=False)
class Chosen:
    """What was chosen from an e-graph: ``model`` computes it, ``save`` writes it.

    ``before`` and ``after`` are what running the model costs in ``unit``; ``cost`` is what was minimized, the bytes of
    constants included, and ``bound`` a proven lower bound of it. ``gap`` is the part of ``cost`` between the two.
    ``rules_used`` tells how many of the chosen nodes each rule made; where what was chosen is another graph of the
    original's own nodes, how often each rule applied.
    """

    found: Found
    cost_model: CostModel
    before: float
    after: float
    rules_used: Mapping[str, int]
    seconds: Mapping[str, float]

    @property
    def cost(self) -> float:
        return self.found.extraction.cost

    @property
    def bound(self) -> float:
        return self.found.extraction.bound

    @property
    def gap(self) -> float:
        return self.found.extraction.gap

    @property
    def unit(self) -> str:
        return self.cost_model.unit

    @property
    def model(self) -> onnx.ModelProto:
        """The model as one message, the caller's own. Raises ``ModelError`` over 2 GB: use ``save`` then."""
        return models.message_copy(self.found.model)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the model whole or not at all. Raises ``ModelError`` where it cannot be written."""
        models.save(self.found.model, path)

    def __repr__(self) -> str:
        change = 100 * (self.after / self.before - 1) if self.before else 0.0
        return (
            f"<cost ({self.cost_model.name}): {self.before:.4g} -> {self.after:.4g} {self.unit} ({change:+.1f} %), "
            f"bound {self.bound:.4g}, gap {100 * self.gap:.2g} %; rules: {', '.join(self.rules_used) or 'none'}>"
        )

    def _repr_html_(self) -> str:
        change = 100 * (self.after / self.before - 1) if self.before else 0.0
        rows = [
            (f"cost, {self.unit}", f"{self.before:.4g} -> {self.after:.4g} ({change:+.1f} %)"),
            ("lower bound", f"{self.bound:.4g}, gap {100 * self.gap:.2g} %"),
            ("bytes", bytes_text(self.found.bytes)),
        ]
        made = "nodes" if self.found.extraction.rules_used else "matches"
        used = [(name, f"{count} {made}") for name, count in list(self.rules_used.items())[:SHOWN]]
        return html_table(f"chosen by {self.cost_model.name}", (), rows + used)


@dataclass(frozen=True, repr=False)
class CheckedRules(Sequence[LawResult]):
    """What the laws of rules came to, rule by rule. A rejected rule ``passed`` where its law fails it."""

    checked: tuple[Checked, ...]

    @property
    def rules(self) -> RuleSet:
        """The rules that were checked."""
        return RuleSet(tuple(one.rule for one in self.checked))

    @property
    def results(self) -> tuple[LawResult, ...]:
        """What each law came to, in the order of the rules."""
        return tuple(one.result for one in self.checked)

    @property
    def passed(self) -> bool:
        """Whether every rule keeps its law, and every rejected one breaks it."""
        return not self.failures

    @property
    def failures(self) -> tuple[LawResult, ...]:
        """The results of the rules that do not pass."""
        return tuple(one.result for one in self.checked if not one.passed)

    def __len__(self) -> int:
        return len(self.results)

    def __getitem__(self, index):  # type: ignore[no-untyped-def]  # as of the tuple
        return self.results[index]

    def __iter__(self) -> Iterator[LawResult]:
        return iter(self.results)

    def __repr__(self) -> str:
        lines = [f"<{len(self)} rules checked, {len(self.failures)} fail>"]
        for result in self.failures:
            found, why = result.counterexample, result.error or result.vacuous
            said = f"fails at: {', '.join(result.failed)}" + (f" ({why})" if why else "")
            lines.append(f"{result.rule}: " + (found.text() if found else said))
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        failures = [result.rule for result in self.failures]
        # What fails stands first.
        rows = sorted(
            (
                (one.rule, "FAIL" if one.rule in failures else "pass", one.instances, ", ".join(one.failed))
                for one in self
            ),
            key=lambda row: row[1] != "FAIL",
        )
        made = html_table(
            f"{len(self)} rules checked, {len(failures)} fail", ("rule", "", "instances", "fails at"), rows
        )
        found = self.failures[0].counterexample if failures else None
        return made + ("" if found is None else html_text(failures[0], found.text()))


def saturate(
    model: str | os.PathLike[str] | onnx.ModelProto | onnx_ir.Model,
    rules: str | RuleSet | Sequence[str | RuleSet] = DEFAULT_RULES,
    limits: Limits | str | Mapping[str, int | float] | None = None,
    *,
    numeric: str | None = None,
    ignoring: str | Sequence[str] | None = None,
    input_shape: Mapping[str, Sequence[int]] | None = None,
) -> Saturated:
    """The e-graph of a model under rules, with its sizes by iteration, the matches and seconds of each rule, and why
    it stopped.

    ``limits`` are a ``Limits``, or text as for ``--limit``. Rules are not tried by their laws first: ``check_rules``
    does. Raises ``InputError`` where the model or an option is at fault.
    """
    given = _limits(limits) if isinstance(limits, Limits) else limits
    chosen = options(rules=rules, limit=given, numeric=numeric, ignoring=ignoring, input_shape=input_shape)
    return saturated(models.load(model), chosen)


def saturated(original: Model, chosen: Options, watcher: Watcher | None = None) -> Saturated:
    """The e-graph of a loaded model under the rules and limits of options."""
    clock = Clock(watcher or Watcher())
    seconds = chosen.limit.get("seconds")
    with clock.stage("rules"):
        rules = rules_of(chosen)
    search = opened(original, chosen, clock)
    if any(isinstance(kind, TensorType) and kind.size is None for kind in search.graph.types):
        # Open dimensions are priced as they are in the most ordinary inputs.
        with clock.stage("sample"):
            search = replace(search, sizes=sizes_of(feeds_of(original, chosen)))
    search = replace(search, deadline=None if seconds is None else time.perf_counter() + seconds)
    saturation = search.saturate(rules, count_classes=True)
    return Saturated(search, rules, saturation, dict(clock.seconds))


def extract(
    saturated: Saturated,
    cost: str | CostModel = DEFAULT_COST_MODEL,
    *,
    max_growth: float | None = None,
    seconds: float | None = None,
) -> Chosen:
    """The cheapest model in an e-graph under a cost model (a name, a file, or a ``CostModel``).

    ``max_growth`` is how much larger it may be, as a fraction of the original's bytes; where nothing is as small as
    that, it is the original. Without ``seconds`` the search for a proof ends by a counted effort. Raises
    ``CostModelError``.
    """
    if not isinstance(saturated, Saturated):
        raise OptionError(f"saturated: {saturated!r} is no e-graph, expected what superopt.saturate returned")
    wanted = replace(saturated.search.options, cost=cost, max_growth=max_growth)
    clock = Clock(Watcher())
    # The seconds that saturation was given are over, and were not meant for choosing.
    deadline = None if seconds is None else time.perf_counter() + seconds
    search = replace(saturated.search, options=wanted, clock=clock, deadline=deadline)
    cost_model = cost_model_of(wanted)
    found = search.choose(saturated.saturation, cost_model)
    if found is None:
        # Under no rules there is the original alone.
        none = Saturated(search, RuleSet(), search.saturate(RuleSet()), {})
        return extract(none, cost_model)
    before = search.before(saturated.saturation, cost_model)
    after = graph_cost(found.graph, cost_model, search.sizes).total
    used = found.extraction.rules_used
    if not used and not same_graph(found.extraction.graph, search.graph):
        # Rules that take away make no node.
        used = saturated.matches
    return Chosen(found, cost_model, before, after, used, dict(clock.seconds))


def check_rules(
    rules: str | os.PathLike[str] | RuleSet | Sequence[str | os.PathLike[str] | RuleSet],
    *,
    points: int = POINTS,
    seed: int = 0,
    jobs: int = 1,
) -> CheckedRules:
    """Checks every rule by the law that its text implies, on up to ``points`` instances each, ``jobs`` rules at a time.

    ``rules`` are a rule set, or what ``load_rules`` takes, or several of them. What fails is shown with the smallest
    instance found; ``failures`` are the results of these. Raises ``InputError`` where an argument is at fault.
    """
    check_whole("points", points, 1)
    check_whole("seed", seed, 0)
    check_jobs(jobs)
    chosen = _together(rules)
    checked = check_all(chosen, points=points, seed=seed, jobs=jobs)
    return CheckedRules(tuple(checked))


def _together(given: object) -> RuleSet:
    """All rules of what was given, in order."""
    several = given if isinstance(given, (list, tuple)) else [given]
    rules = RuleSet()
    for one in several:
        if not isinstance(one, (str, os.PathLike, RuleSet)):
            raise OptionError(f"rules: {one!r} is no rule set, expected a RuleSet, or a set's name or file")
        rules = rules + (one if isinstance(one, RuleSet) else load_rules(os.fspath(one)))
    return rules


def _limits(given: Limits) -> dict[str, int | float]:
    found = {name: getattr(given, name) for name in LIMITS}
    return {name: value for name, value in found.items() if value is not None}
