"""Rules that do not ship are tried by their laws before they are used: a model's own inputs may not show them wrong."""

from __future__ import annotations

from superopt.laws import laws
from superopt.report import LeftOut
from superopt.rule_text import load
from superopt.rules import Rule, RuleSet
from superopt.shipped import rules_dir

POINTS = 8
"""On how many instances a rule is tried: few, since it is done in every run; ``superopt rules check`` tries more."""


def lawful(rules: RuleSet) -> tuple[RuleSet, tuple[LeftOut, ...]]:
    """The rules without those that an instance of their own law refutes, and these.

    A rule that ships, word for word, has been tried already.
    """
    foreign = _foreign(rules)
    left_out: list[LeftOut] = []
    for rule in foreign:
        try:
            finding = laws.refuted(rule, points=POINTS)
        except Exception as error:  # Whatever it is: a rule that cannot be tried is not to be trusted.
            reason = f"{type(error).__name__}: {error}".splitlines()[0]
            left_out.append({"rule": rule.name, "because": f"its law cannot be checked: {reason}"})
            continue
        if finding is not None:
            left_out.append({"rule": rule.name, "because": f"its law fails: {finding.part}: {finding.evidence}"})
    return rules.without(*(line["rule"] for line in left_out)), tuple(left_out)


def _foreign(rules: RuleSet) -> tuple[Rule, ...]:
    """Those that do not ship. The files that they say they are from come first: these have been read already."""
    own = {name: rules_dir() / name for name in dict.fromkeys(rule.file for rule in rules)}
    read = [path for path in own.values() if path.parent == rules_dir() and path.is_file()]
    known = {rule.name: rule for path in read for rule in load(path)}
    unknown = tuple(rule for rule in rules if known.get(rule.name) != rule)
    if not unknown:
        return ()
    known = {rule.name: rule for rule in load("all")}
    return tuple(rule for rule in unknown if known.get(rule.name) != rule)
