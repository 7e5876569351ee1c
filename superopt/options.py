"""The options of a run: one frozen record that the command line and the Python API share."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

from superopt.errors import OptionError
from superopt.rules import EXCUSES, NUMERIC_CLASSES, Excuse, NumericClass, RuleSet
from superopt.sessions import CPU

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from superopt.cost import CostModel

Select = Literal["measured", "modelled"]
SELECTS: tuple[Select, ...] = ("measured", "modelled")

Verify = Literal["whole", "regions"]
VERIFIES: tuple[Verify, ...] = ("whole", "regions")

LIMITS = ("nodes", "iterations", "seconds")
"""What a run may be limited by."""

Feed: TypeAlias = "Mapping[str, NDArray[np.generic]]"

OLDEST_TARGET = 7
"""The oldest opset that a model may be converted to: rules know no older one."""

DEFAULT_RULES = "default"
DEFAULT_COST_MODEL = "onnxruntime"


@dataclass(frozen=True, kw_only=True)
class Options:
    """How to optimize a model; every field is an option of ``superopt optimize`` and a keyword of
    ``superopt.optimize``.

    Raises ``OptionError`` for a value that an option does not take.
    """

    rules: tuple[str | RuleSet, ...] = (DEFAULT_RULES,)
    """Shipped rule sets by name, ``.rules`` files by path, or ``RuleSet``s; all of them together."""

    without: tuple[str, ...] = ()
    """Rules, or families of rules, to leave out."""

    numeric: NumericClass = "reassociates"
    """What may change: nothing (``exact``: the same bits), rounding (``reassociates``), or values within the bound that
    a rule states (``approximates``)."""

    ignoring: tuple[Excuse, ...] = ()
    """What the model's values are promised not to hold (or not to matter): ``nan``, ``infinity``, ``signed-zero``."""

    cost: str | CostModel | tuple[str | CostModel, ...] = DEFAULT_COST_MODEL
    """A shipped cost model by name, a cost model file by path, or a ``CostModel``; several, where the clock has the
    last word: it measures candidates of each. Prices in the report are by the first of them that has found a model."""

    limit: Mapping[str, int | float] = field(default_factory=dict)
    """Limits of saturation: ``nodes``, ``iterations``, ``seconds``; what is not named keeps its default."""

    inputs: str | Feed | None = None
    """Real inputs for verification and timing: the path of an ``.npz`` file, or arrays by input name."""

    input_shape: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Shapes of sample inputs where the model leaves dimensions open; the result stays as open as the model was."""

    initializers_are_constant: bool = False
    """Whether an initializer that is also a graph input counts as constant: callers cannot override it any more, and it
    is no input of the result, but before IR version 4, where every initializer has to be one."""

    target_opset: int | None = None
    """The version of ONNX's operators that the model is converted to before it is optimized; None for its own."""

    max_growth: float | None = 0.05
    """How much larger the result may be, as a fraction of the model's bytes; None for as large as it gets.
    Names and attributes do not count where tensors have not grown. A constant that a rule writes shortly, such as the
    Fourier matrix in the place of an STFT, is left in operators where it would be too large, for the runtime to unfold
    when it loads the model."""

    select: Select = "measured"
    """Whether the clock has the last word among the candidates, or the cost model (the same bytes every time)."""

    candidates: int = 3
    """How many candidates of each cost model are measured at most: the cheapest by it, and others that differ."""

    differ: int = 1
    """In how many nodes each two candidates differ at least."""

    tune: float = 20.0
    """How many seconds choosing among the candidates by the clock may take."""

    verify: Verify = "whole"
    """Whether the whole models are compared, or the rewritten regions alone: in less memory, and where the whole is
    chaotic. What cannot be run as a whole is verified by regions anyway."""

    external_data: str = "same"
    """Where the result's weights lie: as the original's do (``same``), in the model file (``none``), or all in one file
    of this name beside it."""

    custom_op_library: tuple[str, ...] = ()
    """Shared libraries of custom operators, for onnxruntime to run the model with."""

    check_classes: bool = False
    """Whether all that the rules have found equal is computed and compared first, chosen or not: an unsound rule is
    named, and nothing is changed."""

    trust_rules: bool = False
    """Whether rules that do not ship are used without being tried by their laws first; otherwise one that its law
    refutes is left out."""

    explain: str | None = None
    """A folder to write into which rules led to the result, step by step, each verified on its own."""

    seed: int = 0
    """The seed of sample inputs."""

    threads: int = 0
    """Threads that the runtime may use while timing; 0 for as many as it would take by itself."""

    provider: str = CPU
    """Where candidates are timed, and what the cost model ``measured`` is of: an execution provider of onnxruntime, or
    ``OpenVINO`` through its own package. Verification is onnxruntime's on the CPU."""

    def __post_init__(self) -> None:
        check_choice("numeric", self.numeric, NUMERIC_CLASSES)
        check_choice("select", self.select, SELECTS)
        check_choice("verify", self.verify, VERIFIES)
        check_layout(self.external_data)
        _each("rules", self.rules, (str, RuleSet), "names, files or rule sets")
        _each("without", self.without, (str,), "names of rules or families")
        _each("custom-op-library", self.custom_op_library, (str,), "paths of shared libraries")
        for excuse in self.ignoring:
            check_choice("ignoring", excuse, EXCUSES)
        if not self.rules:
            raise OptionError("rules: none are named, expected at least one rule set")
        if not isinstance(self.limit, Mapping):
            raise OptionError(f"limit: {self.limit!r} is not a limit, expected nodes=N,iterations=N,seconds=S (any)")
        for one in self.costs:
            if not isinstance(one, str) and not hasattr(one, "unit"):
                raise OptionError(f"cost: {one!r} is not a cost model, expected a name, a file or a CostModel")
        if not self.costs:
            raise OptionError("cost: none are named, expected at least one cost model")
        if len(self.costs) > 1 and self.select == "modelled":
            raise OptionError(
                f"cost: {len(self.costs)} cost models are named, expected one with select=modelled: only the clock can "
                "tell which of their choices is better"
            )
        for name in ("initializers_are_constant", "check_classes", "trust_rules"):
            _truth(name.replace("_", "-"), getattr(self, name))
        if self.inputs is not None and not isinstance(self.inputs, (str, Mapping)):
            raise OptionError(f"inputs: {self.inputs!r} is out of place, expected an .npz file or arrays by name")
        if self.explain is not None and (not isinstance(self.explain, str) or not self.explain):
            raise OptionError(f"explain: {self.explain!r} is out of place, expected a folder")
        for name, value in self.limit.items():
            check_choice("limit", name, LIMITS)
            _at_least("limit", f"{name}={value}", value, 0 if name == "seconds" else 1, whole=name != "seconds")
        for name, shape in self.input_shape.items():
            for dim in shape:
                _at_least("input-shape", f"{name}:{dim}", dim, 0, whole=True)
        if self.target_opset is not None:
            _at_least("target-opset", str(self.target_opset), self.target_opset, OLDEST_TARGET, whole=True)
        if self.max_growth is not None:
            _at_least("max-growth", str(self.max_growth), self.max_growth, 0)
        _at_least("candidates", str(self.candidates), self.candidates, 1, whole=True)
        _at_least("differ", str(self.differ), self.differ, 1, whole=True)
        _at_least("tune", str(self.tune), self.tune, 0)
        _at_least("seed", str(self.seed), self.seed, 0, whole=True)
        _at_least("threads", str(self.threads), self.threads, 0, whole=True)

    @property
    def costs(self) -> tuple[str | CostModel, ...]:
        """The cost models, as many as there are."""
        return self.cost if isinstance(self.cost, tuple) else (self.cost,)

    @property
    def settings(self) -> dict[str, Any]:
        """The fields as JSON: what is not text or number is named by its kind and hash."""
        return {item.name: _plain(getattr(self, item.name)) for item in dataclasses.fields(self)}


FIELDS = tuple(item.name for item in dataclasses.fields(Options))


def options(**given: Any) -> Options:
    """The options that these keywords mean: None is the default, one value stands for a list of one, and text is read
    as the command line reads it (``limit="nodes=1000"``, ``max_growth="none"``).

    ``max_growth=None`` is itself: no bound.
    """
    for name in given:
        if name not in FIELDS:
            near = get_close_matches(name, FIELDS, n=1)
            raise OptionError(f"{name}: no such option, expected {near[0] if near else 'one of ' + ', '.join(FIELDS)}")
    read = {name: _text(value) for name, value in given.items() if value is not None or name == "max_growth"}
    for name in ("rules", "without", "ignoring", "cost", "custom_op_library"):
        if name in read:
            read[name] = tuple(_text(one) for one in _several(read[name]))
    for name in ("without", "ignoring"):
        if name in read:
            _each(name, read[name], (str,), "names")
            read[name] = tuple(part.strip() for one in read[name] for part in one.split(",") if part.strip())
    if "cost" in read:
        costs = [one for place, one in enumerate(read["cost"]) if one not in read["cost"][:place]]
        read["cost"] = costs[0] if len(costs) == 1 else tuple(costs)
    if isinstance(read.get("limit"), str):
        read["limit"] = parse_limit(read["limit"])
    if "input_shape" in read:
        read["input_shape"] = _shapes(read["input_shape"])
    if isinstance(read.get("max_growth"), str):
        read["max_growth"] = parse_growth(read["max_growth"])
    return Options(**read)


def parse_limit(text: str) -> dict[str, int | float]:
    """Limits from ``nodes=100000,iterations=20,seconds=60``, any of them."""
    found: dict[str, int | float] = {}
    for part in text.split(","):
        name, equals, value = part.strip().partition("=")
        if not equals:
            raise OptionError(
                f"limit: '{part.strip()}' is not a limit, expected nodes=N,iterations=N,seconds=S (any of them)"
            )
        check_choice("limit", name, LIMITS)
        number = _number("limit", part.strip(), value)
        found[name] = number if name == "seconds" or number != int(number) else int(number)
    return found


def parse_growth(text: str) -> float | None:
    """A bound on growth from ``none``, ``5%`` or ``0.05``."""
    if text.strip().lower() == "none":
        return None
    body = text.strip()
    number = _number("max-growth", text, body.removesuffix("%"), "a fraction (0.05), a percentage (5%) or none")
    return number / 100 if body.endswith("%") else number


def parse_shape(text: str) -> tuple[str, tuple[int, ...]]:
    """An input's name and sample shape from ``NAME:1,3,224,224``; the name may itself hold colons."""
    name, colon, dims = text.rpartition(":")
    expected = "expected NAME:1,3,224,224"
    if not colon or not name:
        raise OptionError(f"input-shape: '{text}' has no input name, {expected}")
    try:
        return name, tuple(int(dim) for dim in dims.split(",")) if dims.strip() else ()
    except ValueError:
        raise OptionError(f"input-shape: '{dims}' is not a list of whole numbers, {expected}") from None


def check_layout(layout: object) -> None:
    """Raises OptionError where weights cannot lie so."""
    if not isinstance(layout, str):
        raise OptionError(f"external-data: {layout!r} is out of place, expected same, none, or the name of a file")
    pieces = layout.replace("\\", "/").split("/")
    if (
        not layout
        or "\0" in layout
        or PurePath(layout).is_absolute()
        or ".." in pieces
        or ":" in pieces[0]
        or not pieces[-1]
    ):
        raise OptionError(
            f"external-data: '{layout}' is out of place, expected same, none, or a file below the model's folder"
        )


def _shapes(given: Any) -> dict[str, tuple[int, ...]]:
    if isinstance(given, Mapping):
        return {str(name): _dims(str(name), shape) for name, shape in given.items()}
    texts = _several(given)
    if not all(isinstance(text, str) for text in texts):
        raise OptionError(f"input-shape: {given!r} is not a shape, expected NAME:1,3,224,224 or sizes by input name")
    return dict(parse_shape(text) for text in texts)


def _dims(name: str, shape: Any) -> tuple[Any, ...]:
    if isinstance(shape, str) or not isinstance(shape, Iterable):
        raise OptionError(f"input-shape: {name}:{shape} is not a shape, expected a list of whole numbers")
    return tuple(shape)


def _text(value: Any) -> Any:
    """A path as text; all else as it is."""
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def _several(value: Any) -> tuple[Any, ...]:
    """One value, or several, as a tuple. A rule set is one value, though it can be iterated."""
    if isinstance(value, (str, os.PathLike, RuleSet)) or not isinstance(value, Iterable):
        return (value,)
    return tuple(value)


def _each(option: str, values: object, kinds: tuple[type, ...], expected: str) -> None:
    for value in values if isinstance(values, tuple) else (values,):
        if not isinstance(value, kinds):
            raise OptionError(f"{option}: {value!r} is out of place, expected {expected}")


def _truth(option: str, value: object) -> None:
    if not isinstance(value, bool):
        raise OptionError(f"{option}: {value!r} is not a choice, expected True or False")


def _number(option: str, text: str, value: str, expected: str = "a number after the =") -> float:
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise OptionError(f"{option}: '{text}' is not a number, expected {expected}")
    return number


def _at_least(option: str, text: str, value: object, least: int, *, whole: bool = False) -> None:
    kind = "whole number" if whole else "number"
    fits = isinstance(value, int if whole else (int, float)) and not isinstance(value, bool)
    if not fits or not math.isfinite(cast(float, value)) or cast(float, value) < least:
        raise OptionError(f"{option}: {text} is out of range, expected a {kind} of at least {least}")


def check_choice(option: str, value: object, choices: tuple[str, ...]) -> None:
    """Raises ``OptionError`` where an option is none of these."""
    if value not in choices:
        raise OptionError(f"{option}: '{value}' is not a choice, expected one of {', '.join(choices)}")


def check_jobs(jobs: object) -> None:
    """Raises ``OptionError`` where it is no number of things to do at a time: 1 or more, or -1 (one per processor)."""
    if isinstance(jobs, bool) or not isinstance(jobs, int) or not (jobs >= 1 or jobs == -1):
        raise OptionError(f"jobs: {jobs} is out of range, expected a whole number of at least 1, or -1")


def check_seconds(seconds: object) -> None:
    """Raises ``OptionError`` where it is no time that something may take."""
    _at_least("seconds", str(seconds), seconds, 0)


def check_whole(option: str, value: object, least: int) -> None:
    """Raises ``OptionError`` where an option is no whole number of at least so much."""
    _at_least(option, str(value), value, least, whole=True)


def _plain(value: Any) -> Any:
    match value:
        case None | bool() | int() | float() | str():
            return value
        case tuple() | list():
            return [_plain(one) for one in value]
        case RuleSet():
            return f"RuleSet {value.hash}"
        case Mapping():
            return {str(name): _plain(one) for name, one in value.items()}
        case _ if hasattr(value, "hash") and hasattr(value, "name"):
            return f"{value.name} {value.hash}"
        case _:
            shape = getattr(value, "shape", None)
            return type(value).__name__ if shape is None else f"{getattr(value, 'dtype', '')}{list(shape)}"
