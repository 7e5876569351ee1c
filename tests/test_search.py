"""A search asks for nothing twice."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

import superopt
from superopt.cost import CostBreakdown, CostModel, graph_cost
from superopt.search import candidates
from superopt.terms import TermGraph
from tests.test_kept import NORM, model_of


def test_the_original_is_priced_once(monkeypatch: pytest.MonkeyPatch) -> None:
    priced: list[str] = []

    def counted(graph: TermGraph, cost_model: CostModel, sizes: Mapping[str, int] | None = None) -> CostBreakdown:
        priced.append(graph.text())
        return graph_cost(graph, cost_model, sizes)

    monkeypatch.setattr(candidates, "graph_cost", counted)
    monkeypatch.setattr("superopt.reporting.outcome.graph_cost", counted)
    result = superopt.optimize(model_of(f"m = Neg(x) a = Neg(m) {NORM}"), select="modelled")
    assert result.report["changed"]
    assert result.report["cost"]["before"] > result.report["cost"]["after"]
    assert len([text for text in priced if text.count("Neg") == 2]) == 1
