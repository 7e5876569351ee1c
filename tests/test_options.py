"""Options: one record, shared by the command line and the Python API; every wrong value is one line."""

from __future__ import annotations

import dataclasses
import inspect

import numpy as np
import pytest

from superopt import pipeline
from superopt.cli import model_commands, shared_options
from superopt.engine import saturate
from superopt.errors import OptionError
from superopt.options import FIELDS, Options, options, parse_growth, parse_limit, parse_shape
from superopt.rules import RuleSet

ONLY_ON_THE_COMMAND_LINE = {"context", "source", "output", "report", "dump"}
ONLY_IN_PYTHON = {"model", "watcher"}


def test_the_command_line_and_python_take_the_same_options() -> None:
    command_line = set(inspect.signature(model_commands.optimize).parameters) - ONLY_ON_THE_COMMAND_LINE
    keywords = set(inspect.signature(pipeline.optimize).parameters) - ONLY_IN_PYTHON
    assert command_line == set(FIELDS) == keywords


def test_keywords_default_to_the_fields_defaults() -> None:
    parameters = inspect.signature(pipeline.optimize).parameters
    assert all(parameters[name].kind is inspect.Parameter.KEYWORD_ONLY for name in FIELDS)
    given = {name: parameters[name].default for name in FIELDS}
    assert options(**given) == Options() == options()


def test_help_names_the_limits_that_are_taken() -> None:
    grown = f"{saturate.MOST_GROWTH} times the model's nodes and at least {saturate.LEAST_NODES}"
    assert f"{grown}, {saturate.Limits().iterations} iterations" == shared_options.USUAL_LIMITS


def test_every_keyword_of_python_arrives(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {
        "rules": ("mine",), "without": ("a",), "numeric": "exact", "ignoring": ("nan",), "cost": "flops",
        "limit": {"nodes": 5}, "inputs": "feed.npz", "input_shape": {"x": (1,)}, "initializers_are_constant": True,
        "target_opset": 18, "max_growth": None, "select": "modelled", "candidates": 2, "differ": 2, "tune": 1.0,
        "verify": "regions", "external_data": "none", "custom_op_library": ("a.so",), "check_classes": True,
        "trust_rules": True, "explain": "why", "seed": 1, "threads": 2, "provider": "OpenVINO",
    }  # fmt: skip
    assert set(given) == set(FIELDS)
    assert not [name for name in FIELDS if given[name] == getattr(Options(), name)]
    monkeypatch.setattr(pipeline, "load", lambda model: model)
    monkeypatch.setattr(pipeline, "run", lambda model, chosen, watcher: chosen)
    assert pipeline.optimize("m.onnx", **given) == Options(**given)  # type: ignore[arg-type,comparison-overlap]


def test_every_field_says_what_it_is_in_settings() -> None:
    made = Options(inputs={"x": np.zeros((2, 3), np.float32)}, rules=("a", RuleSet()), input_shape={"x": (2, 3)})
    assert list(made.settings) == [item.name for item in dataclasses.fields(Options)]
    assert made.settings["inputs"] == {"x": "float32[2, 3]"}
    assert made.settings["rules"] == ["a", f"RuleSet {RuleSet().hash}"]
    assert made.settings["input_shape"] == {"x": [2, 3]}


def test_text_is_read_as_the_command_line_reads_it() -> None:
    read = options(
        rules="mine.rules", without="a,b", ignoring=["nan,infinity"], limit="nodes=10, seconds=0.5",
        input_shape=["a:b:1,2", "s:"], max_growth="none", numeric=None,
    )  # fmt: skip
    assert read == Options(
        rules=("mine.rules",), without=("a", "b"), ignoring=("nan", "infinity"), limit={"nodes": 10, "seconds": 0.5},
        input_shape={"a:b": (1, 2), "s": ()}, max_growth=None,
    )  # fmt: skip
    assert options(rules=RuleSet()).rules == (RuleSet(),)


def test_growth_is_a_fraction_a_percentage_or_none() -> None:
    assert [parse_growth(text) for text in ("5%", "0.05", "none", "None", "0")] == [0.05, 0.05, None, None, 0.0]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"numeric": "fast"}, "numeric: 'fast' is not a choice, expected one of exact, reassociates, approximates"),
        ({"select": "me"}, "select: 'me' is not a choice, expected one of measured, modelled"),
        ({"ignoring": "zero"}, "ignoring: 'zero' is not a choice, expected one of nan, infinity, signed-zero"),
        ({"rules": ()}, "rules: none are named, expected at least one rule set"),
        ({"limit": {"hours": 1}}, "limit: 'hours' is not a choice, expected one of nodes, iterations, seconds"),
        ({"limit": "nodes=0"}, "limit: nodes=0 is out of range, expected a whole number of at least 1"),
        ({"limit": "nodes=1.5"}, "limit: nodes=1.5 is out of range, expected a whole number of at least 1"),
        ({"limit": "seconds=-1"}, "limit: seconds=-1.0 is out of range, expected a number of at least 0"),
        ({"seed": -1}, "seed: -1 is out of range, expected a whole number of at least 0"),
        ({"seed": True}, "seed: True is out of range, expected a whole number of at least 0"),
        ({"threads": 1.5}, "threads: 1.5 is out of range, expected a whole number of at least 0"),
        ({"candidates": 1.5}, "candidates: 1.5 is out of range, expected a whole number of at least 1"),
        ({"differ": 0}, "differ: 0 is out of range, expected a whole number of at least 1"),
        ({"tune": -0.5}, "tune: -0.5 is out of range, expected a number of at least 0"),
        ({"max_growth": -0.1}, "max-growth: -0.1 is out of range, expected a number of at least 0"),
        ({"input_shape": {"x": (-1,)}}, "input-shape: x:-1 is out of range, expected a whole number of at least 0"),
        ({"trust_rules": "no"}, "trust-rules: 'no' is not a choice, expected True or False"),
        ({"check_classes": 1}, "check-classes: 1 is not a choice, expected True or False"),
        ({"rules": [3]}, "rules: 3 is out of place, expected names, files or rule sets"),
        ({"without": 3}, "without: 3 is out of place, expected names"),
        ({"inputs": 3}, "inputs: 3 is out of place, expected an .npz file or arrays by name"),
        ({"explain": 3}, "explain: 3 is out of place, expected a folder"),
        ({"custom_op_library": [None]}, "custom-op-library: None is out of place, expected paths of shared libraries"),
        ({"external_data": 3}, "external-data: 3 is out of place, expected same, none, or the name of a file"),
        ({"sed": 1}, "sed: no such option, expected seed"),
        ({"zzz": 1}, f"zzz: no such option, expected one of {', '.join(FIELDS)}"),
    ],
)
def test_a_wrong_value_says_where_what_and_what_was_expected(given: dict[str, object], message: str) -> None:
    with pytest.raises(OptionError) as caught:
        options(**given)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        (parse_limit, ""), (parse_limit, "nodes"), (parse_limit, "nodes=many"), (parse_limit, "seconds=inf"),
        (parse_growth, "five"), (parse_growth, "nan"), (parse_growth, ""),
        (parse_shape, "1,3"), (parse_shape, ":1"), (parse_shape, "x:1,a"), (parse_shape, "x:1;2"),
    ],
)  # fmt: skip
def test_text_that_cannot_be_read_says_what_was_expected(parse: object, text: str) -> None:
    assert callable(parse)
    with pytest.raises(OptionError, match="expected"):
        parse(text)
