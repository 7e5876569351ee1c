"""What the engine calls back while it runs rules: functions that it reaches by name, with the number of a session."""

from __future__ import annotations

import base64
import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import cloudpickle

from superopt.engine.constructors import NO_TYPE, attribute_field
from superopt.engine.engine_text import SEPARATOR, EngineRule, answered_parts
from superopt.engine.matching import Clash, Match, answer
from superopt.engine.snapshot import CONTRADICTION
from superopt.engine.variants import Variant
from superopt.errors import InferenceError
from superopt.shapes import join
from superopt.terms import Attrs, Constant, ValueType, parse_type, type_text
from superopt.values import Value


@dataclass
class Session:
    """What these functions need to know; they reach it by its number."""

    number: int

    opset: int
    constants: dict[str, Constant]
    variants: list[tuple[Variant, EngineRule]] = field(default_factory=list)
    clashes: dict[str, Clash] = field(default_factory=dict)


_SESSIONS: dict[int, Session] = {}
_NUMBERS = count()


def opened(opset: int, constants: dict[str, Constant]) -> Session:
    """A session that functions reach until it is closed."""
    session = Session(next(_NUMBERS), opset, constants)
    _SESSIONS[session.number] = session
    return session


def closed(session: Session) -> None:
    """Gives up what the engine's functions reach."""
    _SESSIONS.pop(session.number, None)


def answering(session: Session) -> str:
    """The literal of the function that answers matches, told the variant and the match."""
    return _literal(functools.partial(_answered, session.number))


def joining(session: Session) -> str:
    """The literal of the function that joins the types of classes that are merged."""
    return _literal(functools.partial(_joined_type, session.number))


def parting() -> str:
    """The literal of the function that takes one field out of an answer."""
    return _literal(_part)


def _answered(session: int, index: int, text: str) -> str:
    """Called by the engine, once for each text that tells of a match: the right side's attributes and types, or
    nothing."""
    known = _SESSIONS[session]
    variant, rule = known.variants[index]
    parts = text.split(SEPARATOR)
    if CONTRADICTION in parts:
        return ""
    types: dict[str, ValueType] = {}
    absent: set[str] = set()
    roots: list[ValueType] = []
    attrs: dict[int, Attrs] = {}
    content: dict[str, Value] = {}
    for where, part in zip(rule.fields, parts, strict=True):
        if where.kind == "type":
            types[where.name] = None if part == NO_TYPE else parse_type(part)
            if part == NO_TYPE:
                absent.add(where.name)
        elif where.kind == "root":
            roots.append(parse_type(part))
        elif where.kind == "attrs":
            attrs[where.index] = Attrs(part)
        else:
            constant = known.constants[part]
            content[where.name] = Value(constant.type, True, constant.load)
    result = answer(variant, Match(types, tuple(roots), attrs, content, frozenset(absent)), known.opset)
    if result is None:
        return ""
    if isinstance(result, Clash):
        known.clashes.setdefault(result.rule, result)
        return ""
    for made in result.constants:
        if made is not None:
            known.constants.setdefault(made.key, made)
    answers = [
        type_text(result.types[part.slot])
        if part.what == "type"
        else attribute_field(result.nodes[part.slot].op, result.nodes[part.slot].attrs)
        for part in answered_parts(variant)
    ]
    # A right side that is a bare variable has nothing to tell, but must not be the empty text.
    return SEPARATOR.join(answers) or SEPARATOR


@functools.lru_cache(maxsize=1 << 12)
def _parts(text: str) -> list[str]:
    return text.split(SEPARATOR)


def _part(text: str, index: int) -> str:
    """Called by the engine: one field of an answer."""
    return _parts(text)[index]


def _joined_type(session: int, text: str) -> str:
    """Called by the engine when classes are merged: the type of both. Nearly always it is the same; told both in one
    text, the engine has one less object to pickle for each call."""
    old, new = text.split(SEPARATOR)
    if old == new:
        return old
    if CONTRADICTION in (old, new):
        return CONTRADICTION
    try:
        return type_text(join(parse_type(old), parse_type(new)))
    except InferenceError:
        _SESSIONS[session].clashes.setdefault("", Clash("", parse_type(old), parse_type(new)))
        return CONTRADICTION


def _literal(function: Callable[..., Any]) -> str:
    """A Python function as a literal of the engine; functions of this module travel by reference."""
    return f'(py-object "{base64.standard_b64encode(cloudpickle.dumps(function)).decode()}")'
