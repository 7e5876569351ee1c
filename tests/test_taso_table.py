"""The table of what TASO's rules, ours and both find: its networks, its lines, and that more rules find no less."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from benchmarks import taso_table
from benchmarks.network import TINY
from superopt.experiment.grid import Grid
from superopt.experiment.run import Workers, experiment
from superopt.options import options


@pytest.mark.parametrize(("name", "iterations"), [("taso-bert", 4), ("inception-v3", 12)])
def test_more_rules_find_no_less(name: str, iterations: int, tmp_path: Path) -> None:
    (path,) = taso_table.write_models(tmp_path, [name], TINY).values()
    limit = {"nodes": 3000, "iterations": iterations}
    sets = tuple(taso_table.RULES.values())
    grid = Grid((str(path),), sets, ("taso",), (limit,), options(max_growth="none"), verify=False)
    made = experiment(grid, tmp_path / "out", workers=Workers(jobs=1))
    figures = [cell["figures"] for cell in made["cells"]]
    taso, ours, both = (one["cost"]["after"] for one in figures if one is not None)
    before = figures[0]["cost"]["before"] if figures[0] is not None else 0.0
    # Layers of one input, some with an activation behind each: both merge them.
    assert taso < before
    assert ours < before
    assert both <= min(taso, ours) * (1 + 1e-9)
    lines = taso_table.table(made).splitlines()
    assert [line.split(" | ")[:2] for line in lines[2:]] == [[f"| {name}", rules] for rules in taso_table.RULES]


@pytest.mark.parametrize("name", ["resnext50", "inception-v3"])
def test_networks_have_no_normalizations(name: str, tmp_path: Path) -> None:
    (path,) = taso_table.write_models(tmp_path, [name], TINY).values()
    assert all(node.op_type != "BatchNormalization" for node in onnx.load(path).graph.node)
