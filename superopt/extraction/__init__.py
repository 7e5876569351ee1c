"""Extraction: the cheapest choice of one node for each class that is needed, acyclic, shared nodes paid once."""

from superopt.extraction.choose import Extraction, candidates, extract
from superopt.extraction.problem import Choice, Problem
from superopt.extraction.solve import Solution, Status, greedy, solve

__all__ = ["Choice", "Extraction", "Problem", "Solution", "Status", "candidates", "extract", "greedy", "solve"]
