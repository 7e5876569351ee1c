"""What extraction chose from an e-graph that lies in a file: the JSON document, and its text."""

from __future__ import annotations

from typing import TypedDict

from rich.table import Table

from superopt.extraction.interchange import NamedProblem
from superopt.extraction.solve import Solution
from superopt.reporting.render import table
from superopt.version import versions

FORMAT = "superopt choice 1"


class ChoiceDocument(TypedDict):
    """The document. ``nodes`` and ``classes`` count the whole e-graph, ``chosen`` the nodes of the choice; ``choice``
    is the chosen node's name by its class's, every class after those that its node needs. ``greedy`` is what the choice
    of the least trees costs; ``seconds`` leaves out reading the file."""

    format: str
    versions: dict[str, str]
    source: str
    nodes: int
    classes: int
    chosen: int
    cost: float
    bound: float
    gap: float
    greedy: float
    status: str
    seconds: float
    choice: dict[str, str]


def choice_document(source: str, named: NamedProblem, solution: Solution, greedy: float) -> ChoiceDocument:
    """The document about a solution of the problem that was read from ``source``."""
    return {
        "format": FORMAT,
        "versions": versions(),
        "source": source,
        "nodes": len(named.node_names),
        "classes": len(named.class_names),
        "chosen": len(solution.choice.node),
        "cost": solution.cost,
        "bound": solution.bound,
        "gap": solution.gap,
        "greedy": greedy,
        "status": solution.status,
        "seconds": round(solution.seconds, 6),
        "choice": {named.class_names[owner]: named.node_names[node] for owner, node in solution.choice.node.items()},
    }


def choice_text(document: ChoiceDocument) -> list[Table | str]:
    """What ``superopt extract`` prints."""
    facts = table("", "", left=2)
    facts.show_header = False
    facts.add_row("e-graph", f"{document['nodes']} nodes in {document['classes']} classes")
    facts.add_row("chosen", f"{document['chosen']} nodes")
    facts.add_row("cost", _exactly(document["cost"]))
    facts.add_row("lower bound", _exactly(document["bound"]))
    facts.add_row("gap", f"{100 * document['gap']:.3g} %")
    facts.add_row("greedy", _exactly(document["greedy"]))
    facts.add_row("status", document["status"])
    facts.add_row("seconds", f"{document['seconds']:.2f}")
    return [facts]


def _exactly(value: float) -> str:
    """A cost with as many digits as proofs are about."""
    return f"{value:.9g}"
