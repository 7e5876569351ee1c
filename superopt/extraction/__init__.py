"""Extraction: the cheapest choice of one node for each class that is needed, acyclic, shared nodes paid once."""

from superopt.extraction.choose import Extraction, Extractor, extract
from superopt.extraction.problem import Choice, Problem
from superopt.extraction.several import distance, several
from superopt.extraction.solve import Solution, Status, greedy, solve

__all__ = [
    "Choice",
    "Extraction",
    "Extractor",
    "Problem",
    "Solution",
    "Status",
    "distance",
    "extract",
    "greedy",
    "several",
    "solve",
]
