"""The first line of a rule: its kind, its name, its numeric class and what belongs to it, checked word by word."""

from __future__ import annotations

import math
import re
from typing import cast

from superopt.rule_span import Span, near
from superopt.rules import EXCUSES, NUMERIC_CLASSES, Excuse, NumericClass, Rule

_HEADER = re.compile(r"(?P<kind>rule|rejected)\s+(?P<name>[^\s:]+)\s*:\s*(?P<numeric>\w+)(?P<rest>.*)", re.DOTALL)
_NAME = re.compile(r"[a-z0-9][a-z0-9.-]*")
_WITHIN = re.compile(r"within\s+((?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)(?=\s|$)")
_NO_BOUND = re.compile(r"within\b[ \t]*(?!ignoring\b|because\b)(\S*)")
_IGNORING = re.compile(r"ignoring\s+([a-z, -]+)")
_BECAUSE = re.compile(r'because\s+"((?:[^"\\]|\\.)*)"')
_WORDS = ("within", "ignoring", "because")


def header_of(block: Span, end: int) -> Rule:
    """What the header of a statement says, as a rule without sides. Raises RuleError at the word that is wrong."""
    header = _HEADER.fullmatch(block.text[:end].rstrip())
    if header is None:
        raise block.error("'rule NAME: CLASS' or 'rejected NAME: CLASS because \"...\"' was expected")
    name, numeric, rest = header["name"], header["numeric"], header["rest"]
    name_span, class_span = (block.part(*header.span(part)) for part in ("name", "numeric"))
    if _NAME.fullmatch(name) is None:
        raise name_span.error(
            f"{name!r} is no name of a rule: kebab-case was expected (small letters and digits, joined by '-')"
        )
    if numeric not in NUMERIC_CLASSES:
        known = ", ".join(NUMERIC_CLASSES)
        raise class_span.error(
            f"{numeric} is no numeric class: one of {known} was expected{near(numeric, NUMERIC_CLASSES)}"
        )
    within, ignoring, because = _WITHIN.search(rest), _IGNORING.search(rest), _BECAUSE.search(rest)
    begin = header.start("rest")
    excuses = tuple(part.strip() for part in ignoring[1].split(",")) if ignoring else ()
    for excuse in excuses:
        if excuse not in EXCUSES and ignoring is not None:
            raise block.part(begin + ignoring.start(1), begin + ignoring.end(1)).error(
                f"{excuse!r} cannot be ignored: one of {', '.join(EXCUSES)} was expected{near(excuse, EXCUSES)}"
            )
    if within is not None and not 0 < float(within[1]) < math.inf:
        raise block.part(begin + within.start(1), end).error(
            f"within {within[1]} is no bound: a number above zero that float64 has was expected"
        )
    _check_rest(block, begin, rest)
    if (numeric == "approximates") != (within is not None):
        raise class_span.error("'within BOUND' belongs to an approximates rule, and every such rule states one")
    if (header["kind"] == "rejected") != (because is not None):
        raise block.error("'because \"...\"' belongs to a rejected rule, and every such rule states it")
    return Rule(
        name, cast(NumericClass, numeric), (), (), ignoring=cast("tuple[Excuse, ...]", excuses),
        within=float(within[1]) if within else None, rejected=because[1] if because else None,
        file=block.file, line=block.line,
    )  # fmt: skip


def _check_rest(block: Span, begin: int, rest: str) -> None:
    """Raises RuleError at a word behind the numeric class that says nothing there."""
    left = rest
    for known in (_BECAUSE, _WITHIN, _IGNORING):
        # Blanks in the place of what is understood, so that the places of all else stay.
        left = known.sub(lambda match: " " * len(match[0]), left)
    word = re.search(r"\S+", left)
    if word is None:
        return
    at = begin + word.start()
    if word[0] == "because":
        raise block.part(at, at + len(word[0])).error('the reason in quotes was expected behind it: because "..."')
    unbound = _NO_BOUND.match(left, word.start())
    if unbound is not None:
        given = unbound[1] or "nothing"
        raise block.part(begin + unbound.start(1) if unbound[1] else at, begin + unbound.end()).error(
            f"'within' is followed by {given}: a number above zero was expected"
        )
    raise block.part(at, at + len(word[0])).error(
        f"{word[0]!r} is not understood here: within, ignoring or because was expected{near(word[0], _WORDS)}"
    )
