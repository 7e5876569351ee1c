"""``superopt rules``: list, show and check rewrite rules."""

from __future__ import annotations

import difflib
import inspect
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from superopt import rule_text
from superopt.cli.exit_codes import FAILED, OK
from superopt.errors import OptionError
from superopt.options import check_jobs, check_whole
from superopt.reporting import render
from superopt.rules import Rule, RuleSet
from superopt.values import FUNCTIONS

if TYPE_CHECKING:
    from superopt.laws.laws import LawResult

NEAR = 4
"""How many names an error suggests."""


def run_list(names: tuple[str, ...]) -> int:
    """Prints a line per rule text: its file, name, numeric class, and what it needs to be ignored."""
    made = render.table("file", "rule", "class", "", left=4)
    for members in _texts(_together(names or ("all",))):
        first = members[0]
        family = f" (family of {len(members)})" if len(members) > 1 else ""
        promise = first.numeric + (f" within {first.within:g}" if first.within is not None else "")
        notes = [f"ignoring {', '.join(first.ignoring)}"] if first.ignoring else []
        notes += [f"rejected: {first.rejected}"] if first.rejected is not None else []
        made.add_row(first.file, first.name.partition("[")[0] + family, promise, "; ".join(notes))
    sets = [] if names else [f"rule sets: {', '.join(rule_text.shipped_names())}"]
    render.show([made, *sets], render.console())
    return OK


def run_show(name: str, sets: tuple[str, ...]) -> int:
    """Prints the text of a rule, of a family, or of all rules of a set."""
    chosen = _among(_together(sets), name) if sets else _meant(name)
    blocks = [f"# {members[0].file}:{members[0].line}\n{members[0].text.rstrip()}\n" for members in _texts(chosen)]
    print("\n".join(blocks), end="")
    return OK


def run_functions(words: tuple[str, ...]) -> int:
    """Prints the functions that rules may call: what each gives, its parameters, and what it says; of those only that
    have a word in their name or text, where words are given."""
    made = render.table("function", "gives", "", left=3)
    shown = 0
    for function in sorted(FUNCTIONS.values(), key=lambda each: each.name):
        told = " ".join((inspect.getdoc(function.call) or "").split("\n\n")[0].split())
        if all(word.lower() in f"{function.name} {told}".lower() for word in words):
            made.add_row(f"{function.name}({', '.join(function.parameters)})", _GIVES[function.kind], told)
            shown += 1
    if not shown:
        raise OptionError(f"functions: none has {' and '.join(map(repr, words))} in its name or text")
    render.show([made], render.console())
    return OK


_GIVES = {"predicate": "yes or no", "attribute": "an attribute", "tensor": "a constant"}
"""What a rule has of a function, by its kind."""


def _together(names: tuple[str, ...]) -> RuleSet:
    """The rules that names stand for, each of them once."""
    rules = RuleSet()
    for name in names:
        rules = rules + _meant(name)
    return rules


def _meant(name: str) -> RuleSet:
    """The rules of a set that ships or of a file, or else the rule or family of this name that ships. Raises
    ``OptionError`` where nothing is named so, or both a file and what ships; ``RuleError`` for what is no rule file."""
    if name.endswith(".rules") or Path(name).name != name:
        return rule_text.load(name)
    shipped = rule_text.load("all")
    is_set = name in rule_text.shipped_names()
    if Path(name).is_file():
        if is_set or name in _names(shipped):
            kind = "rule set" if is_set else "rule"
            raise OptionError(f"{name}: a file and a {kind} that ships are named so, expected ./{name} for the file")
        return rule_text.load(name)
    return rule_text.load(name) if is_set else _among(shipped, name)


def _among(rules: RuleSet, name: str) -> RuleSet:
    """The rule or family of this name. Raises ``OptionError`` that says what is named nearly so."""
    if name in _names(rules):
        return rules.only(name)
    near = difflib.get_close_matches(name, [*rule_text.shipped_names(), *_names(rules)], NEAR)
    raise OptionError(
        f"{name}: no such rule or rule set, expected one that `superopt rules list` names"
        + (f", such as {', '.join(near)}" if near else ", or a file")
    )


def _names(rules: RuleSet) -> dict[str, None]:
    """The names of all rules and families, in order."""
    return dict.fromkeys(name for rule in rules for name in (rule.name, rule.name.partition("[")[0]))


def _texts(rules: RuleSet) -> Iterator[tuple[Rule, ...]]:
    """The rules that one text stands for, text by text: a family's members, both directions of an equation."""
    found: dict[tuple[str, int], list[Rule]] = {}
    for rule in rules:
        found.setdefault((rule.file, rule.line), []).append(rule)
    return (tuple(members) for members in found.values())


def run_check(names: tuple[str, ...], only: tuple[str, ...], *, points: int | None, seed: int, jobs: int) -> int:
    """Checks rules by their laws, a line per rule; whether all pass. A rejected rule passes where its law fails it."""
    from superopt.laws.all import POINTS, check_all

    points = POINTS if points is None else points
    check_whole("points", points, 1)
    check_whole("seed", seed, 0)
    check_jobs(jobs)
    rules = _together(names or ("all",))
    if only:
        rules = rules.only(*only)
    console = render.console()
    failures = 0
    for checked in check_all(rules, points=points, seed=seed, jobs=jobs):
        rule, result = checked.rule, checked.result
        failures += not checked.passed
        verdict = "pass" if checked.passed else "FAIL"
        console.print(f"{verdict}  {rule.name}: {_summary(rule, result, checked.seconds)}")
        if not checked.passed and result.counterexample is not None:
            console.print(textwrap.indent(result.counterexample.text(), "      "))
    console.print(f"{len(rules)} rules, {failures} fail")
    return FAILED if failures else OK


def run_import(source: str, output: str) -> int:
    """Writes a file of TASO's substitutions as a rule file. Raises ``InputError`` before anything is written."""
    from superopt.taso import text as taso_text

    text = taso_text.import_rules(source)
    count = len(rule_text.parse(text, output))
    try:
        Path(output).write_text(text, encoding="utf-8")
    except OSError as error:
        raise OptionError(f"{output}: {error.strerror}, expected a file that can be written") from error
    print(f"{source} -> {output}: {count} rules")
    return OK


def _summary(rule: Rule, result: LawResult, seconds: float) -> str:
    parts = [f"{result.instances} instances of {result.signatures} kinds"]
    if result.error is not None:
        return f"could not be checked: {result.error}"
    if rule.rejected is not None:
        parts.append("still wrong, as its text says" if not result.passed else "rejected, but nothing wrong was found")
    elif result.failed:
        parts.append(f"fails at: {', '.join(result.failed)}" + (f" ({result.vacuous})" if result.vacuous else ""))
    parts += [f"idle: when {condition}" for condition in result.idle]
    return ", ".join([*parts, f"{seconds:.1f} s"])
