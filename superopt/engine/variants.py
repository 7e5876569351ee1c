"""The variants of a rule that the e-graph engine matches: stars expanded, commutative operands in every order,
alternatives of what must be constant one by one; and what each asks of the engine."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

from superopt.instantiate import Skeleton, skeleton
from superopt.operators import operator
from superopt.rules import Apply, Each, Expr, Output, Pattern, Rule, Star, Var, element_name
from superopt.values import FUNCTIONS

MAX_EXPANSIONS = 64
"""How many ways the stars of one rule may be expanded in; a rule that has more is used for the smallest of them."""

MAX_VARIANTS = 64
"""How many orders of commutative operands one rule is matched in."""


@dataclass(frozen=True)
class Variant:
    """A rule with its stars expanded and its commutative operands in one order.

    ``python`` are the conditions that Python must answer; ``constant`` the variables that must be constant, ``read``
    those whose content must be known, ``varying`` those that must not be constant (all are matched natively). ``right``
    is the skeleton of the right side. ``among_constants``: the left side's operators are applied to constants alone.
    """

    rule: Rule
    python: tuple[Expr, ...]
    constant: tuple[str, ...]
    read: tuple[str, ...]
    variables: tuple[str, ...]
    right: Skeleton
    among_constants: bool = False
    varying: tuple[str, ...] = ()


def variants(rule: Rule, arities: Mapping[str, frozenset[int]]) -> list[Variant]:
    """All variants of a rule, where variadic operators have these numbers of arguments in the graph."""
    found: list[Variant] = []
    for counts in _star_counts(rule, arities):
        expanded = rule.expanded(counts) if rule.stars else rule
        found += _variants(expanded)
    return found + [among_constants(variant) for variant in found if _moves_one_term(variant)]


MOVEMENT = frozenset({"Transpose"})


def _moves_one_term(variant: Variant) -> bool:
    """Whether the rule says how operators that move data undo or join each other.

    What is constant is evaluated and not rewritten, with this exception: rules that move a Transpose to and fro past an
    operator with a constant would else make ever longer chains of transposes of that constant, each a new term.
    """
    sides = (skeleton(variant.rule.left), variant.right)
    operators = {slot.pattern.op for side in sides for slot in side.slots if isinstance(slot.pattern, Apply)}
    return variant.rule.numeric == "exact" and len(variant.variables) == 1 and operators <= MOVEMENT


def among_constants(variant: Variant) -> Variant:
    """The same for terms that are constant."""
    return replace(variant, among_constants=True, constant=variant.variables)


def _variants(rule: Rule) -> list[Variant]:
    """The variants of a rule without stars."""
    found: list[Variant] = []
    for expanded in _alternatives(rule):
        orders = [replace(expanded, left=left) for left in _commuted(expanded)]
        found += map(_variant, _distinct(orders) if len(orders) > 1 else orders)
    return found


def _distinct(rules: Sequence[Rule]) -> Iterable[Rule]:
    """The first of all that have the same canonical text."""
    known: dict[str, Rule] = {}
    for rule in rules:
        known.setdefault(_canonical(rule), rule)
    return known.values()


def variant_of(rule: Rule, constant: tuple[str, ...]) -> Variant:
    """An expanded rule as one variant, where these variables are known to be constant."""
    plain = _variant(rule)
    return replace(plain, python=(*rule.when, *rule.only_if), constant=constant)


def _alternatives(rule: Rule) -> list[Rule]:
    """The rule once for each way to meet a condition such as ``constant(x) or constant(y)``: the engine finds
    constants, and has no word for "or"."""
    return [
        replace(rule, when=when, only_if=only_if)
        for when in product(*map(_choices, rule.when))
        for only_if in product(*map(_choices, rule.only_if))
    ]


def _choices(condition: Expr) -> list[Expr]:
    tree = condition.tree
    if (
        isinstance(tree, ast.BoolOp)
        and isinstance(tree.op, ast.Or)
        and any(_calls(value, "constant") for value in tree.values)
    ):
        return [Expr(ast.unparse(value), value) for value in tree.values]
    return [condition]


def _calls(tree: ast.expr, function: str) -> bool:
    return isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name) and tree.func.id == function


def _star_counts(rule: Rule, arities: Mapping[str, frozenset[int]]) -> list[dict[str, int]]:
    """Numbers of terms for every star such that each variadic operator of the left has as many arguments as occur."""
    if not rule.stars:
        return [{}]
    limits = {name: max((max(found, default=0) for found in arities.values()), default=0) for name in rule.stars}
    single = len(rule.stars) == 1
    ranges = [range(1 if single else 0, limits[name] + 1) for name in rule.stars]
    found = []
    for counts in product(*ranges):
        chosen = dict(zip(rule.stars, counts, strict=True))
        if all(_fits(pattern, chosen, arities) for pattern in rule.left):
            found.append(chosen)
        if len(found) >= MAX_EXPANSIONS:
            break
    return found


def _fits(pattern: Pattern | Star | Each, counts: Mapping[str, int], arities: Mapping[str, frozenset[int]]) -> bool:
    match pattern:
        case Apply(op, args):
            total = sum(
                counts[a.name] if isinstance(a, Star) else counts[a.over[0][1]] if isinstance(a, Each) else 1
                for a in args
            )
            if any(len({counts[name] for _, name in arg.over}) > 1 for arg in args if isinstance(arg, Each)):
                return False
            spec = operator(op)
            if spec is not None and spec.arity is None and total not in arities.get(op, frozenset()):
                return False
            return all(_fits(arg, counts, arities) for arg in args)
        case Each(template):
            return _fits(template, counts, arities)
        case Output(of):
            return _fits(of, counts, arities)
        case _:
            return True


def _commuted(rule: Rule) -> Iterator[tuple[Pattern, ...]]:
    """The left side with the operands of commutative operators in every order that differs."""
    for number, roots in enumerate(product(*(list(_orders(pattern)) for pattern in rule.left))):
        if number >= MAX_VARIANTS:
            return
        yield roots


def _orders(pattern: Pattern | Star | Each) -> Iterator[Pattern]:
    if isinstance(pattern, Output):
        for of in _orders(pattern.of):
            yield Output(of, pattern.index)
        return
    if not isinstance(pattern, Apply):
        if not isinstance(pattern, (Star, Each)):
            yield pattern
        return
    spec = operator(pattern.op)
    for args in product(*(list(_orders(arg)) for arg in pattern.args)):
        yield replace(pattern, args=args)
        if spec is not None and spec.commutative and args[0] != args[1]:
            yield replace(pattern, args=args[::-1])


def _canonical(rule: Rule) -> str:
    """A text that two variants share when they differ only in names and in the order of commutative operands on the
    right."""
    names: dict[str, str] = {}

    def term(pattern: Pattern | Star | Each, *, ordered: bool) -> str:
        match pattern:
            case Var(name):
                return names.setdefault(name, f"v{len(names)}") if ordered else names.get(name, name)
            case Output(of, index):
                return f"{term(of, ordered=ordered)}[{index}]"
            case Apply(op, args, attrs, rest):
                inner = [term(arg, ordered=ordered) for arg in args]
                spec = operator(op)
                if not ordered and spec is not None and spec.commutative:
                    inner.sort()
                pairs = [f"{key}={written(expr.tree)}" for key, expr in attrs]
                return f"{op}({','.join([*inner, *pairs, rest or ''])})"
            case _:
                return repr(pattern)

    def written(tree: object) -> str:
        # The order of alternatives, and of what must be constant, does not matter.
        match tree:
            case ast.Name(id=name):
                return names.get(name, name)
            case ast.BoolOp(op=op, values=items):
                return f"{written(op)}{sorted(map(written, items))}"
            case ast.Call(func=ast.Name(id="constant"), args=items):
                return f"constant{sorted(map(written, items))}"
            case ast.AST():
                return f"{type(tree).__name__}({','.join(written(value) for _, value in ast.iter_fields(tree))})"
            case list():
                return f"[{','.join(map(written, tree))}]"
            case _:
                return repr(tree)

    left = [term(pattern, ordered=True) for pattern in rule.left]
    right = [term(pattern, ordered=False) for pattern in rule.right]
    return repr((left, right, sorted(written(expr.tree) for expr in (*rule.when, *rule.only_if))))


def _variant(rule: Rule) -> Variant:
    slots = skeleton(rule.left).slots
    variables = tuple(slot.pattern.name for slot in slots if isinstance(slot.pattern, Var))
    python: list[Expr] = []
    constant: dict[str, None] = {}
    varying: dict[str, None] = {}
    read: dict[str, None] = {}
    for condition in (*rule.when, *rule.only_if):
        names = _called_about(condition.tree, "constant", variables)
        moving = _called_about(condition.tree, "varying", variables)
        if names is not None:
            constant |= dict.fromkeys(names)
        elif moving is not None:
            varying |= dict.fromkeys(moving)
        else:
            python.append(condition)
    right = skeleton(rule.right)
    made = [expr for slot in right.slots for expr in _expressions(slot.pattern)]
    attrs = [expr for slot in slots for expr in _expressions(slot.pattern)]
    for expr in (*python, *made, *attrs):
        read |= dict.fromkeys(_read_names(expr.tree, variables))
    return Variant(rule, tuple(python), tuple(constant), tuple(read), variables, right, varying=tuple(varying))


def _expressions(pattern: Pattern) -> list[Expr]:
    if isinstance(pattern, Apply):
        return [expr for _, expr in pattern.attrs]
    expr = getattr(pattern, "expr", None)
    return [expr] if isinstance(expr, Expr) else []


def _called_about(tree: ast.expr, function: str, variables: Sequence[str]) -> list[str] | None:
    """The variables of a ``constant(x, ...)``, or of another such function, or None where the condition is something
    else."""
    if not isinstance(tree, ast.Call) or not _calls(tree, function):
        return None
    if not all(isinstance(arg, ast.Name) for arg in tree.args):
        return None
    return [name for arg in tree.args if isinstance(arg, ast.Name) for name in _elements(arg.id, variables)]


def _elements(name: str, variables: Sequence[str]) -> list[str]:
    if name in variables:
        return [name]
    return [element for index in range(len(variables)) if (element := element_name(name, index)) in variables]


def _read_names(tree: ast.expr, variables: Sequence[str]) -> list[str]:
    """The variables whose content the functions that are called look at."""
    iterated: dict[str, str] = {}
    nodes = list(ast.walk(tree))
    for node in nodes:
        if isinstance(node, ast.comprehension):
            targets = node.target.elts if isinstance(node.target, ast.Tuple) else [node.target]
            sources = node.iter.args if isinstance(node.iter, ast.Call) else [node.iter]
            for target, source in zip(targets, sources, strict=False):
                if isinstance(target, ast.Name) and isinstance(source, ast.Name):
                    iterated[target.id] = source.id
    found: list[str] = []
    for node in nodes:
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in FUNCTIONS):
            continue
        function = FUNCTIONS[node.func.id]
        parameters = function.parameters
        for position, arg in enumerate(node.args):
            name = parameters[min(position, len(parameters) - 1)]
            if name in function.reads:
                found += _names_in(arg, iterated, variables)
        for keyword in node.keywords:
            if keyword.arg in function.reads:
                found += _names_in(keyword.value, iterated, variables)
    return found


def _names_in(tree: ast.expr, iterated: Mapping[str, str], variables: Sequence[str]) -> list[str]:
    return [
        element
        for node in ast.walk(tree)
        if isinstance(node, ast.Name)
        for element in _elements(iterated.get(node.id, node.id), variables)
    ]
