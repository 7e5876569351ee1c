"""Rule files: their text to ``Rule`` records, with errors that name file, line and column."""

from __future__ import annotations

import ast
import math
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Literal, cast

from superopt import conditions as _conditions  # noqa: F401  (registers the functions that rules call)
from superopt.errors import RuleError
from superopt.rule_patterns import Scope, expression, left_root, let_value, right_pattern, substituted
from superopt.rules import (
    EXCUSES,
    NUMERIC_CLASSES,
    Apply,
    Excuse,
    Expr,
    NumericClass,
    Pattern,
    Rule,
    RuleSet,
    Var,
    renamed,
)
from superopt.shipped import rule_files, rules_dir

_HEADER = re.compile(
    r"(?P<kind>rule|rejected)\s+(?P<name>[a-z0-9][a-z0-9.-]*)\s*:\s*(?P<numeric>[a-z]+)(?P<rest>.*)", re.DOTALL
)
_NAME = re.compile(r"[a-z0-9][a-z0-9.-]*")
_NAMED = re.compile(r"(?:rule|rejected)\s+([^\s:]+)\s*:")
_CLAUSE = re.compile(r"(let|when|only if|from|for|because)\b")
_WITHIN = re.compile(r"within\s+((?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)(?=\s|$)")
_IGNORING = re.compile(r"ignoring\s+([a-z, -]+)")
_WHOLES = {
    "addends": "'addends(Add(Add(F(...), y), G(...))) => Add(Add(F(...), G(...)), y)' was expected",
    "chain": "chain(...) of two scales or shifts, or two of both, and what they are together, was expected",
}
_BYTE_ORDER_MARK = "\ufeff"
"""What some editors write at the beginning of a file in UTF-8: it is no part of the text."""
_SETS = ("siblings", *_WHOLES)
"""What a left side may be wrapped in: its terms are then found between steps, as sets or as wholes."""
_CLOSING = {"(": ")", "[": "]", "{": "}"}
_BRACKETS = re.compile(r"""[()\[\]{}]|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'""")
"""Brackets, and texts whole, so that brackets in texts do not count."""
_BECAUSE = re.compile(r'because\s+"((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True)
class Span:
    """A piece of a rule file and where it begins (line and column count from 1)."""

    text: str
    file: str
    line: int
    column: int

    def error(self, message: str, node: ast.expr | None = None) -> RuleError:
        """An error at this piece, or at a node of the tree that ``tree`` read from it."""
        if node is None:
            return RuleError(message, file=self.file, line=self.line, column=self.column)
        # The piece was read behind one opening parenthesis.
        first = node.lineno == 1
        column = node.col_offset + (self.column - 1 if first else 0)
        return RuleError(message, file=self.file, line=self.line + node.lineno - 1, column=max(1, column + (not first)))

    def tree(self) -> ast.expr:
        """The Python expression that this piece is."""
        self._check_brackets()
        try:
            return ast.parse(f"({self.text}\n)", mode="eval").body
        except SyntaxError as error:
            line = self.line + (error.lineno or 1) - 1
            column = (error.offset or 1) + (self.column - 2 if error.lineno == 1 else 0)
            message = f"{error.msg}: a Python expression was expected"
            raise RuleError(message, file=self.file, line=line, column=max(1, column)) from error

    def _check_brackets(self) -> None:
        """Raises RuleError at a bracket without its other half: Python would take ours around the piece for it."""
        opened: list[int] = []
        for match in _BRACKETS.finditer(self.text):
            char, at = match[0], match.start()
            if char in _CLOSING:
                opened.append(at)
            elif char in _CLOSING.values():
                if not opened:
                    raise self.part(at, at + 1).error(f"'{char}' closes nothing: an opening one before it was expected")
                wanted = _CLOSING[self.text[opened.pop()]]
                if char != wanted:
                    raise self.part(at, at + 1).error(f"'{char}' stands where '{wanted}' was expected")
        if opened:
            at = opened[-1]
            char = self.text[at]
            raise self.part(at, at + 1).error(f"'{char}' is never closed: '{_CLOSING[char]}' was expected")

    def part(self, start: int, stop: int) -> Span:
        """The piece of this piece between two offsets, without the white space around it."""
        text = self.text[start:stop]
        start += len(text) - len(text.lstrip())
        before = self.text[:start]
        line = self.line + before.count("\n")
        column = len(before) - before.rfind("\n") if "\n" in before else self.column + len(before)
        return Span(text.strip(), self.file, line, column)


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
    for block in _blocks(text.removeprefix(_BYTE_ORDER_MARK), file):
        if block.text.startswith("group"):
            name, members = _group(block)
            groups[name] = members
            continue
        for rule in _rules(block, groups):
            if rule.name in names:
                raise RuleError(
                    f"rule {rule.name} stands at line {names[rule.name]} too: another name was expected",
                    file=file, line=block.line, column=block.column,
                )  # fmt: skip
            names[rule.name] = block.line
            rules.append(rule)
    return RuleSet(tuple(rules))


def _blocks(text: str, file: str) -> Iterator[Span]:
    """Top-level statements: a line that begins at the margin and the indented lines after it, comments blanked out."""
    start = 0
    lines: list[str] = []
    for number, line in enumerate(text.splitlines(), start=1):
        bare = _without_comment(line)
        if bare and not bare[0].isspace():
            if lines:
                yield Span("\n".join(lines).rstrip(), file, start, 1)
            start, lines = number, []
        if not bare.strip() and not lines:
            continue
        if not lines and bare[0].isspace():
            raise RuleError("an indented line before any rule", file=file, line=number)
        lines.append(bare)
    if lines:
        yield Span("\n".join(lines).rstrip(), file, start, 1)


def _without_comment(line: str) -> str:
    quote = ""
    for position, char in enumerate(line):
        if quote:
            quote = "" if char == quote else quote
        elif char in "\"'":
            quote = char
        elif char == "#":
            return line[:position].rstrip()
    return line.rstrip()


def _group(block: Span) -> tuple[str, tuple[str, ...]]:
    match = re.fullmatch(r"group\s+([a-z][a-z0-9_-]*)\s*=\s*(.*)", block.text, re.DOTALL)
    if match is None:
        raise block.error("'group NAME = Operator, Operator, ...' was expected")
    return match[1], tuple(part.strip() for part in match[2].replace("\n", " ").split(",") if part.strip())


def _rules(block: Span, groups: Mapping[str, tuple[str, ...]]) -> Iterator[Rule]:
    header_end, clauses = _clauses(block)
    header = _HEADER.fullmatch(block.text[:header_end].strip())
    if header is None:
        begun = _NAMED.match(block.text[:header_end])
        if begun is not None and _NAME.fullmatch(begun[1]) is None:
            raise block.error(
                f"{begun[1]!r} is no name of a rule: kebab-case was expected (small letters and digits, joined by '-')"
            )
        raise block.error("'rule NAME: CLASS' or 'rejected NAME: CLASS because \"...\"' was expected")
    draft = _header(block, header)
    families = [_family(clause, groups) for key, clause in clauses if key == "for"]
    for members in product(*(operators for _, operators in families)):
        chosen = {name: member for (name, _), member in zip(families, members, strict=True)}
        named = replace(draft, name=f"{draft.name}[{','.join(members)}]") if members else draft
        text = block.text + (f"\n# {named.name}" if members else "")
        yield from _directions(replace(named, text=text), clauses, chosen)


def _header(block: Span, header: re.Match[str]) -> Rule:
    numeric, rest = header["numeric"], header["rest"]
    if numeric not in NUMERIC_CLASSES:
        raise block.error(f"{numeric} is no numeric class: one of {', '.join(NUMERIC_CLASSES)} was expected")
    within, ignoring, because = _WITHIN.search(rest), _IGNORING.search(rest), _BECAUSE.search(rest)
    excuses = tuple(part.strip() for part in ignoring[1].split(",")) if ignoring else ()
    for excuse in excuses:
        if excuse not in EXCUSES:
            raise block.error(f"{excuse!r} cannot be ignored: one of {', '.join(EXCUSES)} was expected")
    if within is not None and math.isinf(float(within[1])):
        raise block.error(f"within {within[1]} is no bound: a number that float64 has was expected")
    left_over = _BECAUSE.sub("", _WITHIN.sub("", _IGNORING.sub("", rest))).strip()
    if left_over:
        raise block.error(f"{left_over.split()[0]!r} is not understood here: within, ignoring or because was expected")
    if (numeric == "approximates") != (within is not None):
        raise block.error("'within BOUND' belongs to an approximates rule, and every such rule states one")
    if (header["kind"] == "rejected") != (because is not None):
        raise block.error("'because \"...\"' belongs to a rejected rule, and every such rule states it")
    return Rule(
        header["name"], cast(NumericClass, numeric), (), (), ignoring=cast("tuple[Excuse, ...]", excuses),
        within=float(within[1]) if within else None, rejected=because[1] if because else None,
        file=block.file, line=block.line,
    )  # fmt: skip


def _clauses(block: Span) -> tuple[int, list[tuple[str, Span]]]:
    """Where the header ends, and the clauses with their keywords; the equation's keyword is ``equation``."""
    marks: list[tuple[int, str, int]] = []
    depth, offset = 0, 0
    header_end = len(block.text)
    for line in block.text.splitlines(keepends=True):
        body = line.lstrip()
        indent = len(line) - len(body)
        keyword = _CLAUSE.match(body)
        if offset > 0 and body.strip() and depth == 0:
            if keyword is not None and not (marks == [] and keyword[1] == "because"):
                marks.append((offset + indent, keyword[1], offset + indent + keyword.end()))
            elif not marks and keyword is None:
                header_end = offset
                marks.append((offset + indent, "equation", offset + indent))
        depth += sum(body.count(char) for char in "([{") - sum(body.count(char) for char in ")]}")
        offset += len(line)
    if not marks or marks[0][1] != "equation":
        raise block.error("an equation 'left => right' was expected in the lines below")
    clauses = []
    for index, (_, key, start) in enumerate(marks):
        stop = marks[index + 1][0] if index + 1 < len(marks) else len(block.text)
        clauses.append((key, block.part(start, stop)))
    return header_end, clauses


def _family(clause: Span, groups: Mapping[str, tuple[str, ...]]) -> tuple[str, tuple[str, ...]]:
    match = re.fullmatch(r"([A-Z]\w*)\s+in\s+(.+)", clause.text, re.DOTALL)
    if match is None:
        raise clause.error("'for F in GROUP' or 'for F in Operator, Operator, ...' was expected")
    members: list[str] = []
    for part in (part.strip() for part in match[2].split(",")):
        if part[:1].islower() and part not in groups:
            above = f"one of {', '.join(groups)}" if groups else f"'group {part} = Operator, ...' above"
            raise clause.error(f"{part} is no group: {above} was expected, or names of operators")
        if not part:
            raise clause.error("a name is missing between commas: a group or an operator was expected")
        members += groups.get(part, (part,))
    return match[1], tuple(members)


def _directions(draft: Rule, clauses: list[tuple[str, Span]], chosen: Mapping[str, str]) -> Iterator[Rule]:
    equation = clauses[0][1]
    arrow, left_span, right_span = _equation(equation)
    trees = [renamed(span.tree(), chosen) for span in (left_span, right_span)]
    spans = [left_span, right_span]
    for back in range(2 if arrow == "<=>" else 1):
        named = replace(draft, name=_back_name(draft.name)) if back else draft
        yield _assembled(named, spans[back], trees[back], spans[1 - back], trees[1 - back], clauses, chosen)


def _back_name(name: str) -> str:
    stem, bracket, members = name.partition("[")
    return f"{stem}-back{bracket}{members}"


def _equation(equation: Span) -> tuple[str, Span, Span]:
    arrows = list(re.finditer(r"<=>|(?<![<>=!])=>", equation.text))
    if len(arrows) != 1:
        raise equation.error(f"one '=>' or '<=>' was expected, {len(arrows)} found")
    arrow = arrows[0]
    return arrow[0], equation.part(0, arrow.start()), equation.part(arrow.end(), len(equation.text))


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
            body = clause.part(clause.text.index("=") + 1, len(clause.text))
            scope.lets[name.strip()] = let_value(renamed(body.tree(), chosen), scope, body.error)
        elif key in ("when", "only if"):
            target = when if key == "when" else only_if
            tree = renamed(clause.tree(), chosen)
            parts = tree.elts if isinstance(tree, ast.Tuple) else [tree]
            target += [expression(substituted(part, scope), scope, clause.error) for part in parts]
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
