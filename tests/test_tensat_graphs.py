"""E-graphs in Tensat's way are those that Tensat made."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks import tensat_networks
from benchmarks.tensat_graphs import document, saturated

DATA = Path(__file__).parent / "data"
APART = {"dropout", "num", "reshape", "transpose", "var"}
"""Operators of which Tensat's VGG has a few more: it flattens and transposes with operators, whose attributes are
nodes."""


def operators(nodes: dict[str, Any]) -> Counter[str]:
    return Counter(node["op"].split("(")[0].replace("Conv2d", "conv").lower() for node in nodes.values())


@pytest.mark.parametrize("network", [tensat_networks.vgg, tensat_networks.resnet50])
def test_as_many_nodes_of_each_operator_as_in_tensats(network: Callable[[Any], int]) -> None:
    file = DATA / f"tensat__{network.__name__}.json.gz"
    theirs = json.loads(gzip.decompress(file.read_bytes()))["nodes"]
    ours = document(*saturated(network, rounds=2, nodes=50_000))["nodes"]
    left_out = APART if network is tensat_networks.vgg else {"num"}
    assert {op: n for op, n in operators(ours).items() if op not in left_out} == {
        op: n for op, n in operators(theirs).items() if op not in left_out
    }
    if network is tensat_networks.resnet50:
        assert len(ours) == len(theirs)
        assert len({node["eclass"] for node in ours.values()}) == len({node["eclass"] for node in theirs.values()})
