"""The exception tree: every failure that superopt raises on purpose is one of these.

SuperoptError
+-- InputError            what the user gave is at fault: exit code 2, one line
|   +-- ModelError        a model file, or a graph in it
|   +-- RuleError         a rule text: file:line:column
|   +-- CostModelError    a cost model file
|   +-- FeedError         inputs for verification and timing
|   +-- OptionError       an option, or a combination of options
+-- InferenceError        an operator cannot be applied to values of these types
+-- EvaluationError       a model or a constant cannot be computed
|   +-- NumericError      two evaluators disagree about a constant
|   +-- RangeError        constants that their element type has no number near
+-- EGraphError           the e-graph engine failed
+-- VerificationError     two models do not agree, or it cannot be told
"""

from __future__ import annotations


class SuperoptError(Exception):
    """The root of the tree."""


class InputError(SuperoptError):
    """What the user gave is at fault; the message says where, what, and what was expected."""


class ModelError(InputError):
    """A model that cannot be read, is not valid, or cannot be written where it was asked to go."""


class RuleError(InputError):
    """A rule text that cannot be read.

    The message starts with ``file:line:column:`` (line and column count from 1).
    """

    def __init__(self, message: str, *, file: str = "<text>", line: int = 1, column: int = 1) -> None:
        super().__init__(f"{file}:{line}:{column}: {message}")
        self.message = message
        self.file = file
        self.line = line
        self.column = column


class CostModelError(InputError):
    """A cost model file that cannot be read."""


class FeedError(InputError):
    """Inputs that do not fit the model."""


class OptionError(InputError):
    """An option with a value that it does not take."""


class InferenceError(SuperoptError):
    """An operator cannot be applied to values of these types."""


class EvaluationError(SuperoptError):
    """A model or a constant cannot be computed."""


class NumericError(EvaluationError):
    """Two independent evaluators disagree about the value of a constant."""


class RangeError(EvaluationError):
    """Constants that are finite numbers, and not near any that their element type has; ``terms`` are their indices."""

    def __init__(self, message: str, terms: tuple[int, ...]) -> None:
        super().__init__(message)
        self.terms = terms


class EGraphError(SuperoptError):
    """The e-graph engine failed."""


class VerificationError(SuperoptError):
    """Two models do not agree, or it cannot be told whether they do."""


def one_line(error: BaseException | str) -> str:
    """The first line of what an error says, cut to a readable length; its kind where it says nothing."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    text = lines[0].removeprefix("[ONNXRuntimeError] : ")
    return text if len(text) <= 300 else text[:297] + "..."
