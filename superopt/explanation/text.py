"""Explanations for people, rendered from their JSON document and from nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from rich.table import Table

from superopt.explanation.document import Explanation, GraphDocument, StepDocument
from superopt.printable import printable
from superopt.reporting.render import number, table

MOST_NAMED = 4
"""How many values are named in a line."""

_MARKS = {True: "yes", False: "WRONG", None: "not told"}


def index_text(document: Explanation, step_file: Callable[[int, int, list[str]], str]) -> str:
    """The index in Markdown: the summary, then a table of the steps of each graph."""
    lines = [f"# {document['source']} -> {document['result']}", "", *summary(document)]
    for place, graph in enumerate(document["graphs"]):
        if graph["steps"]:
            lines += ["", f"## {graph['place'] or 'The main graph'}", "", *_table(graph, place, step_file)]
    return "\n".join(lines) + "\n"


def _table(graph: GraphDocument, place: int, step_file: Callable[[int, int, list[str]], str]) -> Iterable[str]:
    yield "| step | rule | where | operators after | verified |"
    yield "|---:|---|---|---:|---|"
    for step in graph["steps"]:
        link = f"[{step['number']}](steps/{step_file(place, step['number'], step['rules'])})"
        how = f"{_MARKS[step['verified']]}: {step['how']}"
        yield f"| {link} | {rule_text(step)} | {_cell(where_text(step))} | {step['nodes']} | {_cell(how)} |"


def summary(document: Explanation) -> list[str]:
    """What an explanation comes to, in a few lines."""
    if document["missing"]:
        return [f"{document['reason']}:", *(f"  {line}" for line in document["missing"])]
    if not document["changed"]:
        return [f"{document['source']}: {document['reason']}"]
    counts = document["counts"]
    noted = [f"{document['reason']}."] if document["reason"] else []
    nodes = document["graphs"][0]["nodes"]
    lines = [f"{counts['steps']} steps lead from {nodes['before']} operators to {nodes['after']}{_bodies(document)}."]
    cost = document["cost"]
    if cost is not None:
        before, after = float(cost["before"]), float(cost["after"])
        lines.append(f"Cost by {cost['model']}: {number(before)} -> {number(after)} {cost['unit']}.")
    parts = [f"{counts['verified']} verified on their own"]
    parts += [f"{counts['wrong']} WRONG"] if counts["wrong"] else []
    parts += [f"{counts['untold']} that could not be told"] if counts["untold"] else []
    parts += [f"{counts['several_at_once']} of several rules at once"] if counts["several_at_once"] else []
    lines.append(f"Of these: {', '.join(parts)}.")
    if not all(graph["arrived"] for graph in document["graphs"]):
        lines.append("The steps do not end in the result.")
    lines.append("Rules, by steps: " + ", ".join(f"{name} {count}" for name, count in counts["by_rule"].items()) + ".")
    return [*lines, *noted, *_smallest(document)]


def _bodies(document: Explanation) -> str:
    inner = len(document["graphs"]) - 1
    return f", and in {inner} {'body' if inner == 1 else 'bodies'} of it" if inner else ""


def _smallest(document: Explanation) -> Iterable[str]:
    found = document["smallest"]
    if found is None:
        return
    if not found["reached"]:
        yield "No smallest set of rules: a search by the cost model alone does not reach this cost again."
        return
    what = "none of them can be left out" if found["complete"] else "cut short: some may still be left out"
    yield f"These rules reach the same cost, {what} ({found['trials']} searches): {', '.join(found['rules'])}."


def rule_text(step: StepDocument) -> str:
    """The rule of a step, in words where it is not just one."""
    if step["at_once"]:
        return f"several rules at once: {{{', '.join(step['rules'])}}}"
    return f"{step['rules'][0]} (from right to left)" if step["backward"] else step["rules"][0]


def where_text(step: StepDocument) -> str:
    """Where in the model a step was made: what it computes anew, or else from what."""
    known = [name for name in step["where"] if name is not None]
    if known:
        more = f" and {len(known) - MOST_NAMED} more" if len(known) > MOST_NAMED else ""
        return ", ".join(known[:MOST_NAMED]) + more
    if len(step["where"]) > 1:
        return f"{len(step['where'])} values that have no name in the original"
    inputs = [name for name in step["inputs"].values() if name is not None]
    return f"a value made of {', '.join(dict.fromkeys(inputs))}" if inputs else "a value without a name"


def step_text(step: StepDocument) -> str:
    """The file of a step."""
    lines = [f"# Step {step['number']}: {rule_text(step)}", "", f"Where: {where_text(step)}", ""]
    for name, value in step["inputs"].items():
        lines.append(f"- {name}: {value if value is not None else 'has no name in the model'}")
    lines += ["", f"Verified: {_MARKS[step['verified']]}: {step['how']} (sizes {step['sizes']})"]
    if step["values"] is not None:
        lines += ["", f"- left: {step['values'][0]}", f"- right: {step['values'][1]}"]
    for title, text in (("Before", step["before"]), ("After", step["after"])):
        lines += ["", f"## {title}", "", *(f"    {line}" for line in text.splitlines())]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def steps_table(document: Explanation) -> Iterable[Table]:
    """The steps as they are printed, a line each; those of a body after its name."""
    for graph in document["graphs"]:
        if not graph["steps"]:
            continue
        made = table("step", "rule", "where", "operators after", "verified", left=5)
        made.columns[0].justify = made.columns[3].justify = "right"
        for step in graph["steps"]:
            where = where_text(step) if not graph["place"] else f"{graph['place']}: {where_text(step)}"
            made.add_row(
                str(step["number"]), rule_text(step), printable(where), str(step["nodes"]), _MARKS[step["verified"]]
            )
        yield made
