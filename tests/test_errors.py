"""The exceptions: the tree that is drawn is the tree there is, and what they say is one line."""

from __future__ import annotations

import inspect
import re

from superopt import errors
from superopt.errors import SuperoptError, one_line


def drawn() -> dict[str, str]:
    """The base of each exception by name, as the docstring of the module draws it."""
    found: dict[str, str] = {}
    above = ["SuperoptError"]
    for indent, name in re.findall(r"^((?:[| ]   )*)\+-- (\w+)", errors.__doc__ or "", re.MULTILINE):
        del above[1 + len(indent) // 4 :]
        found[name] = above[-1]
        above.append(name)
    return found


def test_the_tree_in_the_docstring_is_the_tree() -> None:
    kinds = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, SuperoptError)]
    assert drawn() == {kind.__name__: kind.__base__.__name__ for kind in kinds if kind is not SuperoptError}


def test_the_first_line_of_an_error_is_what_it_says() -> None:
    assert one_line(ValueError("\n[ONNXRuntimeError] : 1 : FAIL : no kernel\nat node 3")) == "1 : FAIL : no kernel"
    assert one_line(ValueError()) == "ValueError"
    assert one_line("a" * 400) == "a" * 297 + "..."
