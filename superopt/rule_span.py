"""Pieces of a rule file that know their place: statements, clauses, and errors that name line and column."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache

from superopt.errors import RuleError

ErrorAt = Callable[[str, ast.expr], RuleError]
"""An error with this message at this node of a tree."""

CLAUSES = ("when", "only if", "let", "for", "from")
"""The words that clauses begin with."""

_CLAUSE = re.compile(r"(let|when|only if|from|for)\b")
_WORD = re.compile(r"([a-z]+)[ \t]+(?=[\w\"'(\[])")
_JOINING = re.compile(r"(?:and|or|not|in|is|if|else|for)\b")
"""Words with which an expression goes on."""
_CLOSING = {"(": ")", "[": "]", "{": "}"}
_BRACKETS = re.compile(r"""[()\[\]{}]|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'""")
"""Brackets, and texts whole, so that brackets in texts do not count."""


def near(name: str, known: Iterable[str]) -> str:
    """What is offered behind a name that there is not: ``, such as Relu``, or nothing where none is like it."""
    names = {other.casefold(): other for other in known}
    found = get_close_matches(name.casefold(), names, n=1)
    return f", such as {names[found[0]]}" if found else ""


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

    @lru_cache(maxsize=1 << 8)  # noqa: B019  # pieces are small, and few are remembered
    def tree(self) -> ast.expr:
        """The Python expression that this piece is, which nobody changes: members of a family read the same."""
        self._check_brackets()
        try:
            return ast.parse(f"({self.text}\n)", mode="eval").body
        except SyntaxError as error:
            row = error.lineno or 1
            if row > self.text.count("\n") + 1:
                # Python missed something at the parenthesis that was put behind the piece.
                end = self.part(len(self.text), len(self.text))
                raise end.error("the text ends here: more of a Python expression was expected") from error
            column = (error.offset or 1) + (self.column - 2 if row == 1 else 0)
            message = f"{error.msg}: a Python expression was expected"
            raise RuleError(message, file=self.file, line=self.line + row - 1, column=max(1, column)) from error

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


def statements(text: str, file: str) -> Iterator[Span]:
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


def clauses_of(block: Span) -> tuple[int, list[tuple[str, Span]]]:
    """Where the header ends, and the clauses with their keywords; the equation's keyword is ``equation``."""
    marks: list[tuple[int, str, int]] = []
    depth, offset = 0, 0
    header_end = len(block.text)
    for line in block.text.splitlines(keepends=True):
        body = line.lstrip()
        at = offset + len(line) - len(body)
        keyword = _CLAUSE.match(body)
        if offset > 0 and body.strip() and depth == 0:
            if keyword is not None:
                marks.append((at, keyword[1], at + keyword.end()))
            elif marks:
                _check_clause(block, at, body)
            elif not body.startswith("because"):
                header_end = offset
                marks.append((at, "equation", at))
        depth += sum(body.count(char) for char in "([{") - sum(body.count(char) for char in ")]}")
        offset += len(line)
    if not marks or marks[0][1] != "equation":
        raise block.error("an equation 'left => right' was expected in the lines below")
    clauses = []
    for index, (at, key, start) in enumerate(marks):
        clause = block.part(start, marks[index + 1][0] if index + 1 < len(marks) else len(block.text))
        if not clause.text:
            raise block.part(at, start).error(f"nothing stands behind '{key}': what it is to say was expected")
        clauses.append((key, clause))
    return header_end, clauses


def _check_clause(block: Span, at: int, body: str) -> None:
    """Raises RuleError at a line that begins as a clause does, with a word that no clause begins with."""
    word = _WORD.match(body)
    if word is None or _JOINING.match(word[1]) or _JOINING.match(body, word.end()):
        return
    offered = near(word[1], CLAUSES)
    if body[word.end()] in "([" and not offered:
        # A function that is called with a space before its arguments.
        return
    raise block.part(at, at + len(word[1])).error(
        f"{word[1]!r} begins no clause: one of {', '.join(CLAUSES)} was expected{offered}"
    )
