"""TASO's files of substitutions (protocol buffers): read, checked, and as records.

Jia et al., "TASO: Optimizing Deep Learning Computation with Automatic Generation of Graph Substitutions", SOSP 2019;
the messages are those of its ``rules.proto``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import NoReturn, TypeVar

from superopt.errors import InputError

M = TypeVar("M", bound=IntEnum)


class Kind(IntEnum):
    """TASO's operators, by its numbers."""

    INPUT = 0
    WEIGHT = 1
    ANY = 2
    CONV = 3
    DROPOUT = 4
    LINEAR = 5
    MAXPOOL = 6
    AVGPOOL = 7
    RELU = 8
    SIGMOID = 9
    TANH = 10
    BATCHNORM = 11
    CONCAT = 12
    SPLIT = 13
    RESHAPE = 14
    TRANSPOSE = 15
    ADD = 16
    MUL = 17
    MATMUL = 18
    SCALE = 19
    ENLARGE = 20
    MERGE_GCONV = 21


class Key(IntEnum):
    """TASO's parameters of operators, by its numbers."""

    OP_TYPE = 0
    NUM_INPUTS = 1
    NUM_OUTPUTS = 2
    GROUP = 3
    KERNEL_H = 4
    KERNEL_W = 5
    STRIDE_H = 6
    STRIDE_W = 7
    PAD = 8
    ACTIVATION = 9
    NUM_DIMS = 10
    AXIS = 11
    PERM = 12
    OUT_SHUFFLE = 13
    MERGE_COUNT = 14


@dataclass(frozen=True)
class Tensor:
    """An output of an earlier operator of the same side (``op`` >= 0), or a variable (``op`` < 0)."""

    op: int
    output: int


@dataclass(frozen=True)
class Applied:
    """An operator of one side."""

    kind: Kind
    inputs: tuple[Tensor, ...]
    parameters: Mapping[Key, int]


@dataclass(frozen=True)
class Substitution:
    """Two graphs, and which outputs of the second stand for which of the first; ``place`` counts from 0."""

    place: int
    left: tuple[Applied, ...]
    right: tuple[Applied, ...]
    outputs: tuple[tuple[Tensor, Tensor], ...]


def read(path: str | Path) -> tuple[Substitution, ...]:
    """The substitutions of a file, in order. Raises InputError, in one line, where it is not such a file."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}, expected a file of TASO's substitutions") from error
    return parse(data, str(path))


def parse(data: bytes, file: str = "<bytes>") -> tuple[Substitution, ...]:
    """The substitutions in a message. Raises InputError as ``read`` does."""
    reader = _Reader(file)
    found = [_substitution(body, place, reader) for place, body in enumerate(reader.messages(data, 1))]
    if not found:
        reader.fail("holds no substitution")
    return tuple(found)


@dataclass
class _Reader:
    """Reads messages strictly: what the format does not have is a foreign file."""

    file: str
    rule: int | None = None

    def fail(self, what: str) -> NoReturn:
        where = "" if self.rule is None else f"substitution {self.rule}: "
        raise InputError(f"{self.file}: {where}{what}, expected a file of TASO's substitutions")

    def fields(self, data: bytes) -> Iterator[tuple[int, int | bytes]]:
        """Field numbers with their values: whole numbers, or the bytes of what is nested."""
        at = 0
        while at < len(data):
            tag, at = self._varint(data, at)
            if tag & 7 == 0:
                value, at = self._varint(data, at)
                yield tag >> 3, value - (1 << 64) if value >> 63 else value
            elif tag & 7 == 2:
                size, at = self._varint(data, at)
                if at + size > len(data):
                    self.fail("ends in the middle of a message")
                yield tag >> 3, data[at : at + size]
                at += size
            else:
                self.fail(f"has a field of wire type {tag & 7}")

    def messages(self, data: bytes, *allowed: int) -> Iterator[bytes]:
        for number, value in self.fields(data):
            if number not in allowed or not isinstance(value, bytes):
                self.fail(f"has an unknown field {number}")
            yield value

    def numbers(self, data: bytes, count: int) -> list[int]:
        """The values of fields 1 to ``count``, all of them whole numbers that must be there."""
        found: dict[int, int] = {}
        for number, value in self.fields(data):
            if not 1 <= number <= count or not isinstance(value, int):
                self.fail(f"has an unknown field {number}")
            found[number] = value
        if len(found) < count:
            self.fail("lacks a field")
        return [found[number] for number in range(1, count + 1)]

    def _varint(self, data: bytes, at: int) -> tuple[int, int]:
        end = next((place for place in range(at, min(len(data), at + 10)) if data[place] < 128), None)
        if end is None:
            self.fail("ends in the middle of a number, or has one of more than 64 bits")
        value = sum((byte & 127) << 7 * place for place, byte in enumerate(data[at : end + 1]))
        return value & ((1 << 64) - 1), end + 1


def _substitution(data: bytes, place: int, reader: _Reader) -> Substitution:
    reader.rule = place
    sides: dict[int, list[Applied]] = {1: [], 2: []}
    pairs: list[tuple[Tensor, Tensor]] = []
    for number, value in reader.fields(data):
        if not isinstance(value, bytes) or number not in (1, 2, 3):
            reader.fail(f"has an unknown field {number}")
        if number == 3:
            source, target, source_output, target_output = reader.numbers(value, 4)
            pairs.append((Tensor(source, source_output), Tensor(target, target_output)))
        else:
            sides[number].append(_applied(value, sides[number], reader))
    if not pairs:
        reader.fail("maps no output")
    for replaced, by in pairs:
        _check(replaced, sides[1], reader)
        _check(by, sides[2], reader)
    return Substitution(place, tuple(sides[1]), tuple(sides[2]), tuple(pairs))


def _applied(data: bytes, earlier: Sequence[Applied], reader: _Reader) -> Applied:
    kind: Kind | None = None
    inputs: list[Tensor] = []
    parameters: dict[Key, int] = {}
    for number, value in reader.fields(data):
        if number == 1 and isinstance(value, int):
            kind = _member(Kind, value, reader)
        elif number == 2 and isinstance(value, bytes):
            tensor = Tensor(*reader.numbers(value, 2))
            _check(tensor, earlier, reader)
            inputs.append(tensor)
        elif number == 3 and isinstance(value, bytes):
            key, setting = reader.numbers(value, 2)
            parameters[_member(Key, key, reader)] = setting
        else:
            reader.fail(f"has an unknown field {number}")
    if kind is None:
        reader.fail("has an operator without a type")
    return Applied(kind, tuple(inputs), parameters)


def _member(members: type[M], number: int, reader: _Reader) -> M:
    try:
        return members(number)
    except ValueError:
        reader.fail(f"has an unknown {members.__name__.lower()} {number}")


def _check(tensor: Tensor, earlier: Sequence[Applied], reader: _Reader) -> None:
    if tensor.op >= len(earlier):
        reader.fail(f"names operator {tensor.op}, which does not stand before")
    outputs = earlier[tensor.op].parameters.get(Key.NUM_OUTPUTS, 1) if tensor.op >= 0 else 1
    if not 0 <= tensor.output < max(1, outputs):
        reader.fail(f"names output {tensor.output} of an operator with {max(1, outputs)}")
