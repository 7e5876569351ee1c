"""``superopt rules``: list, show and check rewrite rules."""

from __future__ import annotations

from collections.abc import Iterator

from superopt import render, rule_text
from superopt.errors import OptionError
from superopt.rules import Rule, RuleSet

OK, FAILED = 0, 1


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
    console = render.console()
    console.print(made)
    if not names:
        console.print(f"rule sets: {', '.join(rule_text.shipped_names())}")
    return OK


def run_show(name: str, sets: tuple[str, ...]) -> int:
    """Prints the text of a rule, of a family, or of all rules of a set."""
    if not sets and name in rule_text.shipped_names():
        chosen = rule_text.load(name)
    else:
        everything = _together(sets or ("all",))
        known = [rule for rule in everything if name in (rule.name, rule.name.partition("[")[0])]
        if not known:
            raise OptionError(f"{name}: no such rule or rule set, expected one that `superopt rules list` names")
        chosen = RuleSet(tuple(known))
    blocks = [f"# {members[0].file}:{members[0].line}\n{members[0].text.rstrip()}\n" for members in _texts(chosen)]
    print("\n".join(blocks), end="")
    return OK


def _together(names: tuple[str, ...]) -> RuleSet:
    rules = RuleSet()
    for name in names:
        rules = rules + rule_text.load(name)
    return rules


def _texts(rules: RuleSet) -> Iterator[tuple[Rule, ...]]:
    """The rules that one text stands for, text by text: a family's members, both directions of an equation."""
    found: dict[tuple[str, int], list[Rule]] = {}
    for rule in rules:
        found.setdefault((rule.file, rule.line), []).append(rule)
    return (tuple(members) for members in found.values())
