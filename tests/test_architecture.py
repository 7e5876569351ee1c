"""The shape of the package, read from its sources: imports go one way, one module knows egglog, none is too long."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import networkx as nx
import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "superopt"

LONGEST = 400
"""Lines after which a module is asked what second thing it does."""


def module_name(path: Path) -> str:
    """``superopt/kernels/windows.py`` -> ``kernels.windows``; a package's own file has the package's name."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if len(parts) > 1 and parts[-1] == "__init__" else parts)


MAP = [
    re.findall(r"`(\w+)`", line.split("|")[1])
    for line in (PACKAGE / "README.md").read_text(encoding="utf-8").splitlines()
    if line.startswith("| `")
]
"""The lines of the map: every package and every module beside them, where none imports what stands on a later line."""

MODULES = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def package(name: str) -> str:
    """``kernels.windows`` -> ``kernels``."""
    return name.split(".")[0]


@cache
def imported(path: Path) -> frozenset[str]:
    """Every module that a file imports, anywhere in it, by its full dotted name."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name}:{node.lineno}: a relative import, expected the full name"
            source = node.module or ""
            inside = [f"{source}.{alias.name}" for alias in node.names]
            found.update(name if name.removeprefix("superopt.") in MODULES else source for name in inside)
    return frozenset(found)


def inner_imports(path: Path) -> set[str]:
    """The modules of superopt that a file imports."""
    names = {"__init__" if name == "superopt" else name.removeprefix("superopt.") for name in imported(path)}
    return {name for name in names if name in MODULES and MODULES[name] != path}


def test_imports_go_one_way() -> None:
    graph = nx.DiGraph()
    for name, path in MODULES.items():
        graph.add_edges_from((name, other) for other in inner_imports(path))
    cycles = [" -> ".join(cycle) for cycle in nx.simple_cycles(graph)]
    assert not cycles, f"modules that import each other: {cycles}"

    rank = {name: index for index, line in enumerate(MAP) for name in line}
    upward = [
        f"{name} -> {other}"
        for name, path in MODULES.items()
        for other in sorted(inner_imports(path))
        if rank[package(other)] > rank[package(name)]
    ]
    assert not upward, f"modules that import what stands after them: {upward}"


def test_every_package_has_a_place_on_the_map() -> None:
    assert sorted(name for line in MAP for name in line) == sorted({package(name) for name in MODULES})


def test_only_one_module_knows_the_engine() -> None:
    knowing = [
        name for name, path in MODULES.items() if any(other.split(".")[0] == "egglog" for other in imported(path))
    ]
    assert knowing == ["engine.egraph"]


def test_no_module_is_too_long() -> None:
    lengths = {name: len(path.read_text(encoding="utf-8").splitlines()) for name, path in MODULES.items()}
    assert not {name: length for name, length in lengths.items() if length > LONGEST}


@pytest.mark.parametrize("folder", ["rules", "cost_models"])
def test_data_folders_hold_no_code(folder: str) -> None:
    files = [path.name for path in (PACKAGE.parent / folder).rglob("*") if path.is_file()]
    assert files
    assert not [name for name in files if name.endswith(".py")]
