"""Rule files: their text to ``Rule`` records, with errors that name file, line and column."""

from __future__ import annotations

import ast
import os
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Literal, cast

from superopt import conditions as _conditions  # noqa: F401  (registers the functions that rules call)
from superopt.errors import RuleError
from superopt.rule_header import header_of
from superopt.rule_patterns import check_single, condition, left_root, let_value, right_pattern, substituted
from superopt.rule_scope import Scope
from superopt.rule_span import Span, clauses_of, near, statements
from superopt.rules import Apply, Expr, Pattern, Rule, RuleSet, Var, renamed
from superopt.shipped import rule_files, rules_dir

_NAMED = re.compile(r"(?:rule|rejected)\s+([^\s:]+)")
_WHOLES = {
    "addends": "'addends(Add(Add(F(...), y), G(...))) => Add(Add(F(...), G(...)), y)' was expected",
    "chain": "chain(...) of two scales or shifts, or two of both, and what they are together, was expected",
}
_BYTE_ORDER_MARK = "\ufeff"
"""What some editors write at the beginning of a file in UTF-8: it is no part of the text."""
_SETS = ("siblings", *_WHOLES)
"""What a left side may be wrapped in: its terms are then found between steps, as sets or as wholes."""


def load(source: str | Path) -> RuleSet:
    """The rules of a file, or of a shipped file or named list of files (``default``, ``all``)."""
    if not isinstance(source, (str, os.PathLike)):
        raise RuleError(f"{source!r} is no rule set: a set's name or file was expected", file="<rules>")
    name = os.fspath(source)
    lists = _named_lists()
    if name in lists:
        rules = RuleSet()
        for stem in lists[name]:
            rules = rules + load(rules_dir() / f"{stem}.rules")
        return rules
    path = Path(name)
    if not name.endswith(".rules") and (rules_dir() / f"{name}.rules").is_file():
        path = rules_dir() / f"{name}.rules"
    if path.parent == rules_dir() and path.is_file():
        return _shipped(path, path.stat().st_mtime_ns)
    return _read(path, name)


@lru_cache(maxsize=64)
def _shipped(path: Path, changed: int) -> RuleSet:
    """The rules of a shipped file as it was when it was last ``changed``: reading all of them takes a second."""
    return _read(path, str(path))


def _read(path: Path, name: str) -> RuleSet:
    if not path.is_file():
        known = ", ".join(shipped_names())
        raise RuleError(f"no such rule file; a path or one of {known} was expected", file=name)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RuleError(f"cannot be read as UTF-8 text: {error}", file=name) from error
    rules = parse(text, path.name if path.parent == rules_dir() else str(path))
    if not rules:
        raise RuleError("there is no rule in it; 'rule NAME: CLASS' and an equation were expected", file=name)
    return rules


def shipped_names() -> tuple[str, ...]:
    """What ``load`` knows by name: the lists, then the files."""
    return (*_named_lists(), *(path.stem for path in rule_files()))


def _named_lists() -> Mapping[str, tuple[str, ...]]:
    path = rules_dir() / "sets.toml"
    lists = {name: tuple(entry["files"]) for name, entry in tomllib.loads(path.read_text(encoding="utf-8")).items()}
    return {**lists, "all": tuple(path.stem for path in rule_files())}


def parse(text: str, file: str = "<text>") -> RuleSet:
    """The rules of a text, in order. Raises RuleError (``file:line:column: what, and what was expected``)."""
    if not isinstance(text, str):
        raise RuleError(f"{type(text).__name__} is no text: the text of rules was expected", file=file)
    rules: list[Rule] = []
    groups: dict[str, tuple[str, ...]] = {}
    names: dict[str, int] = {}
    for block in statements(text.removeprefix(_BYTE_ORDER_MARK), file):
        if block.text.startswith("group"):
            name, members = _group(block)
            if name in groups:
                raise block.error(f"group {name} stands above too: another name was expected")
            groups[name] = members
            continue
        for rule in _rules(block, groups):
            if rule.name in names:
                place = _NAMED.match(block.text)
                raise (block.part(*place.span(1)) if place else block).error(
                    f"rule {rule.name} stands at line {names[rule.name]} too: another name was expected"
                )
            names[rule.name] = block.line
            rules.append(rule)
    return RuleSet(tuple(rules))


def _group(block: Span) -> tuple[str, tuple[str, ...]]:
    match = re.fullmatch(r"group\s+([a-z][a-z0-9_-]*)\s*=\s*(.*)", block.text, re.DOTALL)
    if match is None:
        raise block.error("'group NAME = Operator, Operator, ...' was expected")
    return match[1], tuple(part.strip() for part in match[2].replace("\n", " ").split(",") if part.strip())


def _rules(block: Span, groups: Mapping[str, tuple[str, ...]]) -> Iterator[Rule]:
    header_end, clauses = clauses_of(block)
    draft = header_of(block, header_end)
    families = [_family(clause, groups) for key, clause in clauses if key == "for"]
    for members in product(*(operators for _, operators in families)):
        chosen = {name: member for (name, _), member in zip(families, members, strict=True)}
        named = replace(draft, name=f"{draft.name}[{','.join(members)}]") if members else draft
        text = block.text + (f"\n# {named.name}" if members else "")
        alone = _alone(block, clauses, members) if members else ""
        yield from _directions(replace(named, text=text, alone=alone), clauses, chosen)


def _alone(block: Span, clauses: list[tuple[str, Span]], members: Sequence[str]) -> str:
    """The text of a family's rule for one choice of members, which stand in the place of the groups."""
    lines = block.text.split("\n")
    left = list(members)
    for key, clause in clauses:
        if key == "for":
            first, rows = clause.line - block.line, clause.text.count("\n") + 1
            head = lines[first][: clause.column - 1]
            lines[first : first + rows] = [f"{head}{clause.text.split()[0]} in {left.pop(0)}"] + [""] * (rows - 1)
    return "\n".join(line for line in lines if line.strip())


def _family(clause: Span, groups: Mapping[str, tuple[str, ...]]) -> tuple[str, tuple[str, ...]]:
    match = re.fullmatch(r"([A-Z]\w*)\s+in\s+(.+)", clause.text, re.DOTALL)
    if match is None:
        raise clause.error("'for F in GROUP' or 'for F in Operator, Operator, ...' was expected")
    members: list[str] = []
    for part in (part.strip() for part in match[2].split(",")):
        if part[:1].islower() and part not in groups:
            above = f"one of {', '.join(groups)}" if groups else f"'group {part} = Operator, ...' above"
            raise clause.error(f"{part} is no group: {above} was expected, or names of operators{near(part, groups)}")
        if not part:
            raise clause.error("a name is missing between commas: a group or an operator was expected")
        members += groups.get(part, (part,))
    return match[1], tuple(members)


def _directions(draft: Rule, clauses: list[tuple[str, Span]], chosen: Mapping[str, str]) -> Iterator[Rule]:
    equation = clauses[0][1]
    arrow, left_span, right_span = _equation(equation)
    trees = [span.tree() for span in (left_span, right_span)]
    _check_used(clauses, trees)
    trees = [renamed(tree, chosen) for tree in trees]
    spans = [left_span, right_span]
    for back in range(2 if arrow == "<=>" else 1):
        named = replace(draft, name=_back_name(draft.name)) if back else draft
        yield _assembled(named, spans[back], trees[back], spans[1 - back], trees[1 - back], clauses, chosen)


def _check_used(clauses: list[tuple[str, Span]], sides: Sequence[ast.expr]) -> None:
    """Raises RuleError at a ``let`` or ``for`` whose name stands nowhere else."""
    trees = [*sides, *(clause.tree() for key, clause in clauses if key in ("when", "only if"))]
    given: list[tuple[str, Span]] = []
    for key, clause in clauses:
        if key == "let":
            name, _, _ = clause.text.partition("=")
            given.append((name.strip(), clause))
            trees.append(clause.part(clause.text.find("=") + 1, len(clause.text)).tree())
        elif key == "for":
            given.append((clause.text.split()[0], clause))
    used = {node.id for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Name)}
    for name, clause in given:
        if name not in used:
            raise clause.error(f"{name} is not used: a rule without it, or with it on a side, was expected")


def _back_name(name: str) -> str:
    stem, bracket, members = name.partition("[")
    return f"{stem}-back{bracket}{members}"


def _equation(equation: Span) -> tuple[str, Span, Span]:
    arrows = list(re.finditer(r"<=>|(?<![<>=!])=>", equation.text))
    if len(arrows) != 1:
        raise equation.error(f"one '=>' or '<=>' was expected, {len(arrows)} found")
    arrow = arrows[0]
    left, right = equation.part(0, arrow.start()), equation.part(arrow.end(), len(equation.text))
    if not left.text or not right.text:
        place = equation.part(arrow.start(), arrow.end())
        raise place.error(f"nothing stands {'behind' if left.text else 'before'} '{arrow[0]}': a term was expected")
    return arrow[0], left, right


def _assembled(
    draft: Rule, left_span: Span, left_tree: ast.expr, right_span: Span, right_tree: ast.expr,
    clauses: list[tuple[str, Span]], chosen: Mapping[str, str],
) -> Rule:  # fmt: skip
    scope = Scope()
    called = left_tree.func.id if isinstance(left_tree, ast.Call) and isinstance(left_tree.func, ast.Name) else ""
    siblings, whole = called in _SETS, cast(Literal["", "addends", "chain"], called if called in _WHOLES else "")
    if siblings:
        arguments = cast(ast.Call, left_tree).args
        if len(arguments) != 1:
            raise left_span.error(f"{called}(...) has {len(arguments)} arguments: one was expected")
        left_tree = arguments[0]
    left = tuple(left_root(root, scope, left_span.error) for root in _roots(left_tree))
    when: list[Expr] = []
    only_if: list[Expr] = []
    sources: list[str] = []
    for key, clause in clauses[1:]:
        if key == "let":
            name, _, value = clause.text.partition("=")
            if not name.strip().isidentifier() or not value.strip():
                raise clause.error("'let name = value' was expected")
            if scope.knows(name.strip()) or name.strip() in scope.lets:
                raise clause.error(f"{name.strip()} stands for something already: another name was expected")
            body = clause.part(clause.text.index("=") + 1, len(clause.text))
            scope.lets[name.strip()] = let_value(renamed(body.tree(), chosen), scope, body.error)
        elif key in ("when", "only if"):
            target = when if key == "when" else only_if
            tree = renamed(clause.tree(), chosen)
            parts = tree.elts if isinstance(tree, ast.Tuple) else [tree]
            target += [condition(substituted(part, scope), scope, clause.error) for part in parts]
        elif key == "from":
            sources += [part.strip() for part in clause.text.replace("\n", " ").split(",") if part.strip()]
    right: tuple[Pattern, ...] = tuple(right_pattern(root, scope, right_span.error) for root in _roots(right_tree))
    rule = replace(
        draft, left=left, right=right, when=tuple(when), only_if=tuple(only_if), sources=tuple(sources),
        siblings=siblings, whole=whole,
    )  # fmt: skip
    if len(left) != len(right):
        raise right_span.error(
            f"{len(left)} roots on the left and {len(right)} on the right: equally many were expected"
        )
    if not siblings:
        for roots, tree, span in ((left, left_tree, left_span), (right, right_tree, right_span)):
            for root, root_tree in zip(roots, _roots(tree), strict=True):
                check_single(root, root_tree, span.error)
    if whole and _form(rule) != whole:
        raise left_span.error(_WHOLES[whole])
    if siblings and not whole and not rule.stars:
        raise left_span.error("siblings(...) has no '*x': what differs between siblings was expected to be starred")
    return rule


def _form(rule: Rule) -> str:
    """Which whole the two sides of a rule are about: the one form that each of them is found by and becomes."""
    match rule.left, rule.right:
        case ((Apply("Add", (Apply("Add", (Apply() as one, Var() as y)), Apply() as two)),), (right,)):
            return "addends" if right == Apply("Add", (Apply("Add", (one, two)), y)) else ""
        case (
            (Apply("Add", (Apply("Mul", (Apply("Add", (Apply("Mul", (x, c)), d)), f)), g)),),
            (Apply("Add", (Apply("Mul", (y, Apply("Mul", (k, h)))), Apply("Add", (Apply("Mul", (m, n)), p)))),),
        ):
            return "chain" if (x, c, f, d, f, g) == (y, k, h, m, n, p) else ""
        case ((Apply(op, (Apply(inner, (x, c)), d)),), (Apply(outer, (y, Apply(among, (k, m)))),)):
            joined = {op, inner, outer, among} in ({"Add"}, {"Mul"})
            return "chain" if joined and (x, c, d) == (y, k, m) else ""
        case _:
            return ""


def _roots(tree: ast.expr) -> list[ast.expr]:
    return list(tree.elts) if isinstance(tree, ast.Tuple) else [tree]
