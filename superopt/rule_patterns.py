"""Python expressions of a rule text to patterns, checked against the operators and functions that there are."""

from __future__ import annotations

import ast
import copy

from superopt.operators import FORMS, Operator, operator
from superopt.rule_calls import BUILTINS, check_call
from superopt.rule_scope import Scope
from superopt.rule_span import ErrorAt, near
from superopt.rule_values import DTYPES, as_float, check_unquoted, check_value
from superopt.rules import Absent, Apply, Each, Expr, Made, Number, Output, Pattern, Star, Var, with_names
from superopt.values import FUNCTIONS

_ALLOWED = (
    ast.Constant, ast.Name, ast.Load, ast.Tuple, ast.UnaryOp, ast.USub, ast.Not, ast.BinOp, ast.Add, ast.Sub, ast.Mult,
    ast.FloorDiv, ast.Mod, ast.Div, ast.Pow, ast.Compare, ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.In,
    ast.NotIn, ast.BoolOp, ast.And, ast.Or, ast.IfExp, ast.Subscript, ast.Slice, ast.Attribute, ast.Call, ast.keyword,
    ast.GeneratorExp, ast.comprehension, ast.Store, ast.Is, ast.IsNot, ast.Starred,
)  # fmt: skip


def left_root(tree: ast.expr, scope: Scope, error: ErrorAt) -> Pattern:
    """The pattern of a root of a left side: an operator, or an output of one. All else would be found everywhere."""
    pattern = left_pattern(tree, scope, error)
    if not isinstance(pattern.of if isinstance(pattern, Output) else pattern, Apply):
        raise error(f"{ast.unparse(tree)} alone is no left side: an operator was expected, as in Relu(x)", tree)
    return pattern


def left_pattern(tree: ast.expr, scope: Scope, error: ErrorAt) -> Pattern:
    """The pattern of a left side; its names are bound in the scope."""
    match tree:
        case ast.Constant(value=None):
            return Absent()
        case ast.Constant(value=bool() | int() | float() as value):
            scope.numbers += 1
            return Number(value, scope.numbers - 1)
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
            scope.numbers += 1
            return Number(-value, scope.numbers - 1)
        case ast.Name(id=name):
            if name in FORMS:
                raise error(f"{name} is an operator: {name}(...) was expected", tree)
            if name in scope.attributes or name in scope.bundles or name in scope.stars:
                raise error(f"{name} is an attribute or tuple already: another name was expected", tree)
            scope.terms[name] = None
            return Var(name)
        case ast.Subscript(value=of, slice=ast.Constant(value=int() as index)):
            return _output(left_pattern(of, scope, error), index, tree, error)
        case ast.Call():
            return _apply(tree, scope, error, left=True)
        case _:
            raise error("a term was expected: a variable, an operator, a number or None", tree)


def right_pattern(tree: ast.expr, scope: Scope, error: ErrorAt) -> Pattern:
    """The pattern of a right side, or of a ``let``; its names are those that the left side bound."""
    match tree:
        case ast.Constant(value=None):
            return Absent()
        case ast.Constant():
            raise error(f"a number is no term here: scalar({tree.value!r}, like=x) was expected", tree)
        case ast.Name(id=name):
            value = scope.lets.get(name)
            if isinstance(value, Expr):
                raise error(f"{name} is an attribute: a term was expected", tree)
            if value is not None:
                return value
            if name in scope.stars:
                raise error(f"{name} is a tuple of terms: *{name} was expected", tree)
            if name in scope.attributes or name in scope.bundles:
                raise error(f"{name} is an attribute on the left side: a term was expected", tree)
            if name not in scope.terms:
                raise error(f"{name} is not on the left side: a term that is bound there was expected", tree)
            return Var(name)
        case ast.Subscript(value=of, slice=ast.Constant(value=int() as index)):
            return _output(right_pattern(of, scope, error), index, tree, error)
        case ast.Call(func=ast.Name(id=name)) if name not in FORMS:
            function = FUNCTIONS.get(name)
            if function is None or function.kind != "tensor":
                raise error(
                    f"{name} is neither an operator nor a function that makes a constant{near(name, _makers())}", tree
                )
            return Made(expression(substituted(tree, scope), scope, error))
        case ast.Call():
            return _apply(tree, scope, error, left=False)
        case _:
            raise error("a term was expected: a variable, an operator, or a function that makes a constant", tree)


def _output(of: Pattern, index: int, tree: ast.expr, error: ErrorAt) -> Output:
    if isinstance(of, Apply) and not FORMS[of.op].bundle:
        raise error(f"{of.op} has one output: {of.op}(...) without [{index}] was expected", tree)
    return Output(of, index)


def check_single(pattern: Pattern, tree: ast.expr, error: ErrorAt) -> None:
    """Raises RuleError where all outputs of an operator stand in the place of one."""
    if isinstance(pattern, Apply) and FORMS[pattern.op].bundle:
        raise error(f"{pattern.op} has several outputs: {pattern.op}(...)[0] or another was expected", tree)


def _functions() -> tuple[str, ...]:
    return (*FUNCTIONS, *BUILTINS)


def _makers() -> tuple[str, ...]:
    """What a right side may call: operators and functions that make constants."""
    return (*FORMS, *(function.name for function in FUNCTIONS.values() if function.kind == "tensor"))


def let_value(tree: ast.expr, scope: Scope, error: ErrorAt) -> Pattern | Expr:
    """What a ``let`` gives a name to: a term, or the value of an attribute."""
    inner = tree.value if isinstance(tree, ast.Subscript) else tree
    if isinstance(inner, ast.Call) and isinstance(inner.func, ast.Name):
        function = FUNCTIONS.get(inner.func.id)
        if inner.func.id in FORMS or (function is not None and function.kind == "tensor"):
            return right_pattern(tree, scope, error)
    if isinstance(tree, ast.Name) and (
        tree.id in scope.terms or not isinstance(scope.lets.get(tree.id, Expr("", tree)), Expr)
    ):
        return right_pattern(tree, scope, error)
    return expression(substituted(tree, scope), scope, error)


def substituted(tree: ast.expr, scope: Scope) -> ast.expr:
    """The tree with the attribute values of ``let`` put in."""

    values = {name: value.tree for name, value in scope.lets.items() if isinstance(value, Expr)}

    def put(name: ast.Name) -> ast.expr:
        return ast.copy_location(copy.copy(values[name.id]), name) if name.id in values else name

    return with_names(tree, put) if values else tree


def condition(tree: ast.expr, scope: Scope, error: ErrorAt) -> Expr:
    """A checked expression that can be true or false."""
    called = tree.func.id if isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name) else ""
    if isinstance(tree, ast.Constant) and not isinstance(tree.value, bool):
        raise error(f"{tree.value!r} is neither true nor false: a condition was expected", tree)
    if called in FUNCTIONS and FUNCTIONS[called].kind == "tensor":
        raise error(f"{called} makes a constant, which is neither true nor false: a condition was expected", tree)
    return expression(tree, scope, error)


def expression(tree: ast.expr, scope: Scope, error: ErrorAt) -> Expr:
    """A checked expression: only known names, registered functions, and the arithmetic that rules may use."""
    nodes = list(ast.walk(tree))
    local = {
        target.id
        for node in nodes
        if isinstance(node, ast.comprehension)
        for target in ast.walk(node.target)
        if isinstance(target, ast.Name)
    }
    called = {id(node.func) for node in nodes if isinstance(node, ast.Call)}
    for node in nodes:
        at = node if isinstance(node, ast.expr) else tree
        if not isinstance(node, _ALLOWED):
            raise error(f"{type(node).__name__} is not part of rule expressions", at)
        if isinstance(node, ast.Call):
            if not isinstance(node.func, ast.Name) or (node.func.id not in FUNCTIONS and node.func.id not in BUILTINS):
                called_as = ast.unparse(node.func)
                raise error(f"no function {called_as} is registered for rules{near(called_as, _functions())}", at)
            check_call(node, node.func.id, scope, error)
        elif isinstance(node, ast.Attribute):
            if not isinstance(node.value, ast.Name) or node.value.id not in scope.bundles:
                raise error("'.name' reads an attribute of a '**bundle' of the left side", at)
            held = scope.bundles[node.value.id]
            if node.attr not in held:
                known = ", ".join(held) or "none"
                raise error(f"**{node.value.id} has no attribute {node.attr}: {known}{near(node.attr, held)}", at)
        elif isinstance(node, ast.Name) and id(node) not in called and node.id not in local:
            if isinstance(scope.lets.get(node.id), (Var, Apply, Made, Output)):
                raise error(f"{node.id} is made on the right side: only terms of the left side can be asked about", at)
            if not scope.knows(node.id):
                quoted = f': the value "{node.id}", in quotes, was expected' if node.id in DTYPES else ""
                raise error(f"{node.id} is not bound by the left side{quoted}", at)
    return Expr(ast.unparse(tree), tree)


def _apply(tree: ast.Call, scope: Scope, error: ErrorAt, *, left: bool) -> Apply:
    if not isinstance(tree.func, ast.Name) or (spec := operator(tree.func.id)) is None:
        called = ast.unparse(tree.func)
        raise error(f"{called} is no operator that rules may name{near(called, FORMS)}", tree)
    args = [_argument(arg, scope, error, left=left) for arg in tree.args]
    _check_given(tree, spec, args, error)
    args += _absent(tree, spec, args, error)
    attrs: list[tuple[str, Expr]] = []
    rest: str | None = None
    for keyword in tree.keywords:
        if keyword.arg is None:
            if not isinstance(keyword.value, ast.Name) or rest is not None:
                raise error("one '**name' was expected", keyword.value)
            rest = keyword.value.id
            if left:
                scope.bundles[rest] = tuple(dict.fromkeys((*scope.bundles.get(rest, ()), *spec.attributes)))
            elif rest not in scope.bundles:
                raise error(f"**{rest} is not on the left side", keyword.value)
            continue
        if keyword.arg not in spec.attributes:
            known = ", ".join(spec.attributes) or "none"
            raise error(f"{spec.name} has no attribute {keyword.arg} in normal form: {known}", keyword.value)
        check_unquoted(spec, keyword.arg, keyword.value, error)
        value = _attribute(keyword.value, scope, error, left=left)
        check_value(spec, keyword.arg, value, keyword.value, error)
        attrs.append((keyword.arg, as_float(spec, keyword.arg, value)))
    if rest is None:
        _check_named(spec, {name for name, _ in attrs}, tree, error)
    return Apply(spec.name, tuple(args), tuple(attrs), rest)


def _argument(tree: ast.expr, scope: Scope, error: ErrorAt, *, left: bool) -> Pattern | Star | Each:
    if not isinstance(tree, ast.Starred):
        pattern = left_pattern(tree, scope, error) if left else right_pattern(tree, scope, error)
        check_single(pattern, tree, error)
        return pattern
    match tree.value:
        case ast.Name(id=name):
            if left:
                scope.stars[name] = None
            elif name not in scope.stars:
                raise error(f"*{name} is not on the left side", tree)
            return Star(name)
        case ast.GeneratorExp(elt=template, generators=[ast.comprehension(target=target, iter=source, ifs=[])]):
            over = _pairs(target, source, error)
            for item, name in over:
                if left:
                    scope.stars[name] = None
                elif name not in scope.stars:
                    raise error(f"{name} is not on the left side", source)
                if scope.knows(item):
                    raise error(f"{item} is bound already: another name was expected", target)
            inner = copy.copy(scope)
            inner.terms = dict(scope.terms) | {item: None for item, _ in over}
            if not left:
                return Each(right_pattern(template, inner, error), over)
            pattern = left_pattern(template, inner, error)
            scope.terms |= {name: None for name in inner.terms if name not in dict(over)}
            scope.numbers = inner.numbers
            return Each(pattern, over)
        case _:
            raise error("'*xs' or '*(F(x) for x in xs)' was expected", tree)


def _pairs(target: ast.expr, source: ast.expr, error: ErrorAt) -> tuple[tuple[str, str], ...]:
    """``x in xs`` or ``x, y in zip(xs, ys)``."""
    items = target.elts if isinstance(target, ast.Tuple) else [target]
    zipped = isinstance(source, ast.Call) and isinstance(source.func, ast.Name) and source.func.id == "zip"
    sources = source.args if isinstance(source, ast.Call) and zipped else [source]
    if len(items) != len(sources):
        raise error("as many names as tuples were expected", target)
    pairs = []
    for item, of in zip(items, sources, strict=True):
        if not isinstance(item, ast.Name) or not isinstance(of, ast.Name):
            raise error("'x in xs' or 'x, y in zip(xs, ys)' was expected", target)
        pairs.append((item.id, of.id))
    return tuple(pairs)


def _attribute(tree: ast.expr, scope: Scope, error: ErrorAt, *, left: bool) -> Expr:
    if isinstance(tree, ast.Name) and (tree.id in scope.terms or tree.id in scope.stars or tree.id in scope.bundles):
        raise error(f"{tree.id} is {scope.kind(tree.id)}: an attribute's value was expected", tree)
    if left and isinstance(tree, ast.Name) and not scope.knows(tree.id):
        scope.attributes[tree.id] = None
    return expression(substituted(tree, scope), scope, error)


def _absent(tree: ast.Call, spec: Operator, args: list[Pattern | Star | Each], error: ErrorAt) -> list[Absent]:
    """What is to be added for optional arguments that the text leaves out."""
    starred = any(isinstance(arg, (Star, Each)) for arg in args)
    if spec.arity is None:
        if not args:
            raise error(f"{spec.name} has no argument: one or more were expected", tree)
        return []
    # In siblings(...) a star stands for one argument of each sibling.
    if starred and len(args) != spec.arity:
        raise error(f"{spec.name} takes {spec.arity} arguments: a star cannot stand for them", tree)
    if not spec.required <= len(args) <= spec.arity:
        wanted = str(spec.arity) if spec.required == spec.arity else f"{spec.required} to {spec.arity}"
        named = [f"{name}=..." for name in (spec.form.attribute_inputs or {}).values() if name in spec.attributes]
        beside = f", and {', '.join(named)} by name" if named else ""
        raise error(f"{spec.name} has {len(args)} arguments: {wanted} were expected{beside}", tree)
    return [Absent() for _ in range(spec.arity - len(args))]


def _check_given(tree: ast.Call, spec: Operator, args: list[Pattern | Star | Each], error: ErrorAt) -> None:
    """Raises RuleError where an operand is None that the operator needs."""
    needed = len(args) if spec.arity is None else spec.required
    for place, arg in enumerate(args[:needed]):
        if isinstance(arg, Absent):
            raise error(f"{spec.name} cannot do without operand {place}: a term was expected", tree.args[place])


def _check_named(spec: Operator, named: set[str], tree: ast.Call, error: ErrorAt) -> None:
    for name in spec.attributes:
        if name in named:
            continue
        default = spec.default(name)
        if default is None:
            raise error(f"{spec.name} has no default for {name}: {name}=... or **a was expected", tree)
        if name == "axis" and isinstance(default, int) and default < 0:
            raise error(f"{spec.name}'s axis counts from the end by default: axis=... was expected", tree)
