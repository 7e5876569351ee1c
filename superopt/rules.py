"""Rewrite rules as frozen records: patterns, conditions, numeric class; sets of rules."""

from __future__ import annotations

import ast
import copy
import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import PurePath
from typing import Literal, TypeAlias, TypeVar, cast

from superopt.errors import OptionError
from superopt.notebook import html_table, html_text

NumericClass = Literal["exact", "reassociates", "approximates"]
NUMERIC_CLASSES: tuple[NumericClass, ...] = ("exact", "reassociates", "approximates")
"""From the strictest promise to the loosest; a run at one class uses the rules of it and of the stricter ones."""

Excuse = Literal["nan", "infinity", "signed-zero"]
EXCUSES: tuple[Excuse, ...] = ("nan", "infinity", "signed-zero")


@dataclass(frozen=True)
class Expr:
    """A Python expression over bound names and registered functions; equal when the texts are."""

    text: str
    tree: ast.expr = field(compare=False, repr=False)


Tree = TypeVar("Tree", bound=ast.AST)


def with_names(tree: Tree, put: Callable[[ast.Name], ast.expr]) -> Tree:
    """The tree with something else for names. No tree is ever changed: what no name stands in is shared by both."""
    if isinstance(tree, ast.Name):
        return cast(Tree, put(tree))
    changed: dict[str, object] = {}
    for name, value in ast.iter_fields(tree):
        if isinstance(value, ast.AST):
            made: object = with_names(value, put)
            if made is not value:
                changed[name] = made
        elif isinstance(value, list):
            items = [with_names(item, put) if isinstance(item, ast.AST) else item for item in value]
            if any(item is not old for item, old in zip(items, value, strict=True)):
                changed[name] = items
    if not changed:
        return tree
    other = copy.copy(tree)
    for name, made in changed.items():
        setattr(other, name, made)
    return other


def renamed(tree: Tree, names: Mapping[str, str]) -> Tree:
    """The tree with other names."""

    def put(name: ast.Name) -> ast.Name:
        return ast.copy_location(ast.Name(names[name.id], name.ctx), name) if name.id in names else name

    return with_names(tree, put) if names else tree


@dataclass(frozen=True)
class Var:
    """Any term; the same name is the same term."""

    name: str


@dataclass(frozen=True, eq=False)
class Number:
    """On the left only: a known constant of one element, equal to this number, whose rank is not above that of the term
    it stands in. ``index`` counts the numbers of a rule from 0, so that two equal ones may match differently shaped
    constants."""

    value: int | float
    index: int

    @property
    def name(self) -> str:
        """The name that it is bound by, which no identifier of a rule text can be."""
        return f"number.{self.index}"

    # Two zeros of different sign are equal numbers, and are not the same pattern.
    def __eq__(self, other: object) -> bool:
        return isinstance(other, Number) and (repr(self.value), self.index) == (repr(other.value), other.index)

    def __hash__(self) -> int:
        return hash((repr(self.value), self.index))


@dataclass(frozen=True)
class Absent:
    """An optional input that is not given (``None`` in rule text)."""


@dataclass(frozen=True)
class Star:
    """``*xs``: any number of arguments, bound to a tuple of terms."""

    name: str


@dataclass(frozen=True)
class Each:
    """``*(F(x) for x in xs)``: any number of arguments of one form; ``over`` are pairs of element name and tuple
    name."""

    template: Pattern
    over: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Apply:
    """An operator applied. ``attrs`` are pairs of name and expression: on the left a bare unbound name binds, anything
    else must be equal; attributes that are not named equal their default, unless ``rest`` binds or gives all of
    them."""

    op: str
    args: tuple[Pattern | Star | Each, ...]
    attrs: tuple[tuple[str, Expr], ...] = ()
    rest: str | None = None


@dataclass(frozen=True)
class Output:
    """One output of an operator with several: ``Split(...)[1]``."""

    of: Pattern
    index: int


@dataclass(frozen=True)
class Made:
    """On the right: a constant made by a registered ``tensor`` function."""

    expr: Expr


Pattern: TypeAlias = "Var | Number | Absent | Apply | Output | Made"


@dataclass(frozen=True, repr=False)
class Rule:
    """A rewrite rule: wherever ``left`` matches and ``when`` and ``only_if`` hold, ``right`` computes the same.

    ``left`` and ``right`` have equally many roots (one, unless the text has a tuple). ``siblings`` is true for a rule
    whose left side is ``siblings(...)``: ``left`` is then the one form that every sibling has, with ``Star`` standing
    for what differs from one to the next, and ``right`` is a bundle whose output i replaces sibling i; ``expanded``
    turns it into a rule with n roots. ``whole`` is "addends" where the left side is ``addends(...)``, a sum with two
    addends apart, which are found wherever they stand in a sum; and "chain" where it is ``chain(...)``, scales and
    shifts by constants, which are found however many they are. ``siblings`` is true too then, for it is between steps
    that these are found. ``let`` is already put in. ``when`` is what soundness needs; ``only_if`` is what makes it
    worth while. ``alone`` is the text of a member of a family, with the member in the family's place; it needs no
    group. ``within`` is the relative bound that an ``approximates`` rule states. ``rejected`` says why a rule is not to
    be used.
    """

    name: str
    numeric: NumericClass
    left: tuple[Pattern, ...]
    right: tuple[Pattern, ...]
    when: tuple[Expr, ...] = ()
    only_if: tuple[Expr, ...] = ()
    ignoring: tuple[Excuse, ...] = ()
    within: float | None = None
    sources: tuple[str, ...] = ()
    rejected: str | None = None
    siblings: bool = False
    whole: Literal["", "addends", "chain"] = ""
    text: str = field(default="", compare=False)
    alone: str = field(default="", compare=False)
    file: str = field(default="<text>", compare=False)
    line: int = field(default=1, compare=False)

    def __repr__(self) -> str:
        return f"<{self.file}:{self.line}: {self.text.rstrip() or self.name}>"

    def __str__(self) -> str:
        """Its text, which can be read again: the rule alone, where it is of a family."""
        return self.alone or self.text.rstrip() or self.name

    def _repr_html_(self) -> str:
        return html_text(f"{self.file}:{self.line}", self.text.rstrip() or self.name)

    @property
    def stars(self) -> tuple[str, ...]:
        """Names bound to tuples of terms, in order of appearance on the left."""
        found: dict[str, None] = {}
        for pattern in self.left:
            for name in _star_names(pattern):
                found[name] = None
        return tuple(found)

    def expanded(self, arity: int | Mapping[str, int]) -> Rule:
        """This rule with every star standing for so many terms, named ``xs.0``, ``xs.1``, ...; no stars are left."""
        counts = arity if isinstance(arity, Mapping) else dict.fromkeys(self.stars, arity)
        if self.siblings:
            count = next(iter(counts.values()))
            left = tuple(_pick(self.left[0], index) for index in range(count))
            whole = _spread(self.right[0], counts)
            right: tuple[Pattern, ...] = tuple(Output(whole, index) for index in range(count))
            return replace(self, left=left, right=right, siblings=False)
        return replace(
            self,
            left=tuple(_spread(pattern, counts) for pattern in self.left),
            right=tuple(_spread(pattern, counts) for pattern in self.right),
        )


def element_name(star: str, index: int) -> str:
    """The name of one term of a tuple: ``xs.1``."""
    return f"{star}.{index}"


def _star_names(pattern: Pattern | Star | Each) -> Iterator[str]:
    match pattern:
        case Star(name):
            yield name
        case Each(template, over):
            yield from (name for _, name in over)
            yield from _star_names(template)
        case Apply(_, args):
            for arg in args:
                yield from _star_names(arg)
        case Output(of):
            yield from _star_names(of)
        case _:
            return


def _pick(pattern: Pattern, index: int) -> Pattern:
    """The sibling at an index: every star becomes its element."""
    if isinstance(pattern, Output):
        return Output(_pick(pattern.of, index), pattern.index)
    if not isinstance(pattern, Apply):
        return pattern
    args = tuple(
        Var(element_name(arg.name, index))
        if isinstance(arg, Star)
        else arg
        if isinstance(arg, Each)
        else _pick(arg, index)
        for arg in pattern.args
    )
    return replace(pattern, args=args)


def _spread(pattern: Pattern, counts: Mapping[str, int]) -> Pattern:
    if isinstance(pattern, Output):
        return Output(_spread(pattern.of, counts), pattern.index)
    if not isinstance(pattern, Apply):
        return pattern
    args: list[Pattern | Star | Each] = []
    for arg in pattern.args:
        match arg:
            case Star(name):
                args += [Var(element_name(name, index)) for index in range(counts[name])]
            case Each(template, over):
                args += [
                    _renamed(_spread(template, counts), {item: element_name(name, index) for item, name in over})
                    for index in range(counts[over[0][1]])
                ]
            case _:
                args.append(_spread(arg, counts))
    return replace(pattern, args=tuple(args))


def _renamed(pattern: Pattern, names: Mapping[str, str]) -> Pattern:
    match pattern:
        case Var(name):
            return Var(names.get(name, name))
        case Output(of, index):
            return Output(_renamed(of, names), index)
        case Apply(_, args, attrs):
            return replace(
                pattern,
                args=tuple(arg if isinstance(arg, (Star, Each)) else _renamed(arg, names) for arg in args),
                attrs=tuple((key, _renamed_expr(expr, names)) for key, expr in attrs),
            )
        case Made(expr):
            return Made(_renamed_expr(expr, names))
        case _:
            return pattern


def _renamed_expr(expr: Expr, names: Mapping[str, str]) -> Expr:
    """Element names hold a dot, which no identifier does: they live in the tree, not in a text to be read again."""
    tree = renamed(expr.tree, names)
    return expr if tree is expr.tree else Expr(ast.unparse(tree), tree)


_SHOWN = 4
"""How many rules a rule set's short text names."""


@dataclass(frozen=True, repr=False)
class RuleSet:
    """Rules in order, with unique names."""

    rules: tuple[Rule, ...] = ()

    def __post_init__(self) -> None:
        known: set[str] = set()
        for rule in self.rules:
            if rule.name in known:
                raise OptionError(f"two rules are named {rule.name}")
            known.add(rule.name)

    def __repr__(self) -> str:
        names = [rule.name for rule in self.rules[:_SHOWN]] + ["..."] * (len(self) > _SHOWN)
        return f"<{len(self)} rules, hash {self.hash}: {', '.join(names) or 'none'}>"

    def _repr_html_(self) -> str:
        rows = ((rule.name, rule.numeric, f"{rule.file}:{rule.line}") for rule in self.rules)
        return html_table(f"{len(self)} rules, hash {self.hash}", ("rule", "class", "where"), rows)

    def __iter__(self) -> Iterator[Rule]:
        return iter(self.rules)

    def __len__(self) -> int:
        return len(self.rules)

    def __getitem__(self, name: str) -> Rule:
        for rule in self.rules:
            if rule.name == name:
                return rule
        raise OptionError(f"no rule is named {name}")

    def __contains__(self, rule: object) -> bool:
        """Whether this rule, or one of this name, is among these."""
        return any(rule in (one, one.name) for one in self.rules)

    def __add__(self, other: RuleSet) -> RuleSet:
        """Both sets' rules; a rule that stands in both, alike, stands once. Raises ``OptionError``."""
        if not isinstance(other, RuleSet):
            raise OptionError(
                f"{other!r} is no rule set, expected a RuleSet: load_rules reads one, parse_rules makes one"
            )
        mine = {rule.name: rule for rule in self.rules}
        return RuleSet(self.rules + tuple(rule for rule in other.rules if mine.get(rule.name) != rule))

    def without(self, *names: str) -> RuleSet:
        """These rules but for some; a family's name (before ``[``) leaves out all of it, and so does a file's (without
        ``.rules``) that no rule and no family is named like."""
        meant = self._meant(names)
        return RuleSet(tuple(rule for rule in self.rules if not _is_named(rule, meant)))

    def only(self, *names: str) -> RuleSet:
        """Some of these rules; a family's name keeps all of it, and so does a file's, as in ``without``."""
        meant = self._meant(names)
        return RuleSet(tuple(rule for rule in self.rules if _is_named(rule, meant)))

    def of_class(self, numeric: NumericClass, ignoring: Iterable[str] = ()) -> RuleSet:
        """The rules that keep what ``numeric`` promises, where the user excuses what ``ignoring`` names."""
        limit, granted = NUMERIC_CLASSES.index(numeric), set(ignoring)
        kept = (rule for rule in self.rules if rule.rejected is None and set(rule.ignoring) <= granted)
        return RuleSet(tuple(rule for rule in kept if NUMERIC_CLASSES.index(rule.numeric) <= limit))

    @property
    def hash(self) -> str:
        """A hash of the content, whatever the files are called."""
        return hashlib.sha256("\n\n".join(rule.text for rule in self.rules).encode()).hexdigest()[:16]

    def _meant(self, names: Iterable[str]) -> frozenset[str]:
        """The names, each of which is a rule's, a family's or a file's, as names of rules and families. Raises
        ``OptionError``."""
        known = {name for rule in self.rules for name in (rule.name, _family(rule))}
        meant: set[str] = set()
        for name in names:
            if not isinstance(name, str):
                raise OptionError(f"{name!r} is no name, expected one of a rule, a family or a file")
            found = {name} if name in known else {rule.name for rule in self.rules if _stem(rule) == name}
            if not found:
                near = get_close_matches(name, sorted(known), n=1)
                raise OptionError(f"no rule is named {name}" + (f", expected one such as {near[0]}" if near else ""))
            meant |= found
        return frozenset(meant)


def _is_named(rule: Rule, names: Collection[str]) -> bool:
    return rule.name in names or _family(rule) in names


def _family(rule: Rule) -> str:
    return rule.name.partition("[")[0]


def _stem(rule: Rule) -> str:
    """The name of the file that a rule is from, as sets of rules are named."""
    return PurePath(rule.file).stem
