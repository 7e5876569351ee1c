"""What expressions of a rule may call, and with what."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping

from superopt.rule_scope import Scope
from superopt.rule_span import ErrorAt
from superopt.rule_values import DTYPES
from superopt.values import FUNCTIONS

_MANY = 1_000
BUILTINS: Mapping[str, tuple[int, int]] = {
    **dict.fromkeys(("len", "all", "any", "tuple", "sorted", "abs", "int", "float"), (1, 1)),
    **dict.fromkeys(("constant", "min", "max", "zip"), (1, _MANY)),
    "sum": (1, 2), "range": (1, 3),
}  # fmt: skip
"""Functions that expressions may call beside the registered ones, and how many arguments they take at least and at
most; ``constant(x, ...)``: all these are constant."""

_DTYPE_PARAMETERS = frozenset({"dtype", "source", "through", "target"})
"""The parameters of functions that take the name of an element type."""

_OF_ATTRIBUTES = ("Ints", "int", "str", "int | float", "Sequence[int]", "tuple[float, ...]")
"""The annotations of parameters that take the value of an attribute."""


def check_call(call: ast.Call, name: str, scope: Scope, error: ErrorAt) -> None:
    """Raises RuleError where a function that rules may call does not take these arguments; a star may stand for any."""
    plain = [arg for arg in call.args if not isinstance(arg, ast.Starred)]
    starred = len(plain) < len(call.args)
    keywords = [item.arg for item in call.keywords]
    if None in keywords:
        raise error(f"{name}(**...): arguments by name were expected", call)
    if name in FUNCTIONS:
        signature = FUNCTIONS[name].signature
        bind = signature.bind_partial if starred else signature.bind
        try:
            bound = bind(*plain, **{item.arg: item.value for item in call.keywords if item.arg is not None})
        except TypeError as wrong:
            raise error(f"{name}: {wrong}: {name}({_parameters(signature)}) was expected", call) from wrong
        for parameter, given in bound.arguments.items():
            _check_kind(name, signature.parameters[parameter], given, scope, error)
            named = parameter in _DTYPE_PARAMETERS and isinstance(given, ast.Constant)
            if named and given.value not in DTYPES:
                raise error(
                    f"{name}: {given.value!r} is no element type: one of {', '.join(DTYPES)} was expected", given
                )
        return
    least, most = BUILTINS[name]
    unknown = [keyword for keyword in keywords if not (name in ("min", "max") and keyword == "default")]
    if unknown:
        raise error(f"{name} takes no argument {unknown[0]} by name", call)
    if len(plain) > most or (not starred and len(plain) < least):
        wanted = f"{least} or more" if most == _MANY else f"{least}" if least == most else f"{least} to {most}"
        raise error(f"{name} has {len(plain)} arguments: {wanted} were expected", call)


def _parameters(signature: inspect.Signature) -> str:
    """The parameters as a rule writes them: what has a default in brackets, what repeats with dots."""
    shown = []
    for item in signature.parameters.values():
        many = item.kind is inspect.Parameter.VAR_POSITIONAL
        shown.append(f"{item.name}..." if many else item.name if item.default is item.empty else f"[{item.name}]")
    return ", ".join(shown)


def _check_kind(
    name: str, parameter: inspect.Parameter, given: ast.expr | tuple[ast.expr, ...], scope: Scope, error: ErrorAt
) -> None:
    """Raises RuleError where a name of the left side is given to a function that is about something else."""
    wanted = str(parameter.annotation)
    for argument in given if isinstance(given, tuple) else (given,):
        if not isinstance(argument, ast.Name) or argument.id in scope.lets:
            continue
        kind = scope.kind(argument.id)
        fits = {
            "a term": wanted not in (*_OF_ATTRIBUTES, "Attrs"),
            "a tuple of terms": wanted not in ("Value", *_OF_ATTRIBUTES, "Attrs"),
            "an attribute": wanted not in ("Value", "Value | tuple[Value, ...]", "tuple[Value, ...]", "Attrs"),
            "a bundle of attributes": wanted == "Attrs",
        }
        if kind is not None and not fits[kind]:
            asked = (
                "all attributes (**a)"
                if wanted == "Attrs"
                else "an attribute"
                if wanted in _OF_ATTRIBUTES
                else "a term"
            )
            raise error(f"{name} is about {asked}, and {argument.id} is {kind}", argument)
