"""What TASO's rules, ours, and both find in the networks of TASO and Tensat, under the ``taso`` cost model.

python -m benchmarks.taso_table OUT [--only NAME ...] [--limit nodes=N,iterations=N,seconds=S] [--jobs N] [--tiny]

writes the models into OUT (once; without their normalizations, which TASO's definitions do not have), and what was
found into OUT/experiment.json and OUT/experiment.csv, and prints a table. It goes on where it was when it is run again.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path

import onnx

import superopt
from benchmarks import classifiers, inception, taso_networks
from benchmarks.network import FULL, TINY, Size
from superopt.cli.experiment import show_progress
from superopt.experiment.grid import Grid
from superopt.experiment.run import Workers, experiment
from superopt.experiment.table import ExperimentDocument
from superopt.options import options, parse_limit

NETWORKS: Mapping[str, Callable[..., onnx.ModelProto]] = {
    "resnext50": classifiers.resnext50,
    "nasnet-a": taso_networks.nasnet_a,
    "nasrnn": taso_networks.nasrnn,
    "inception-v3": inception.inception_v3,
    "squeezenet": classifiers.squeezenet,
    "vgg19": taso_networks.vgg19,
    "taso-bert": taso_networks.taso_bert,
}
RULES = {"TASO's": "taso", "ours": "default+merges", "both": "taso+default+merges"}
COST_MODEL = "taso"
LIMIT = "nodes=15000,iterations=40"
"""Counts, so that runs repeat. With these rules nearly every network comes to rest well below."""


def write_models(folder: Path, names: list[str], size: Size) -> dict[str, Path]:
    """The networks' files, by name; those that are there already are kept."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = {name: folder / f"{name}.onnx" for name in names}
    for name, path in paths.items():
        if not path.exists():
            onnx.save(without_norms(NETWORKS[name](size=size)), path)
    return paths


def without_norms(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with every BatchNormalization folded into the convolution before it."""
    if all(node.op_type != "BatchNormalization" for node in model.graph.node):
        return model
    return superopt.extract(superopt.saturate(model, "batchnorm"), "nodes").model


def table(made: ExperimentDocument) -> str:
    """A line for each network and rule set, in Markdown."""
    lines = [
        "| network | rules | e-nodes | e-classes | iterations | stopped by | saturating, s | extracting, s "
        "| cost before | after | change | gap |",
        "|---|---|--:|--:|--:|---|--:|--:|--:|--:|--:|--:|",
    ]
    names = {value: name for name, value in RULES.items()}
    for cell in made["cells"]:
        head = f"| {Path(cell['model']).stem} | {names[cell['rules']]} |"
        figures = cell["figures"]
        if figures is None:
            lines.append(f"{head} failed: {cell['failure']} |" + " |" * 9)
            continue
        before, after = figures["cost"]["before"], figures["cost"]["after"]
        seconds = figures["seconds"]
        lines.append(
            f"{head} {figures['e_nodes'][-1]} | {figures['e_classes'][-1]} | {figures['iterations']} | "
            f"{figures['stopped_by']} | {seconds['saturate']:.1f} | {seconds['extract']:.1f} | "
            f"{before:.4g} | {after:.4g} | {100 * (after / before - 1):+.1f} % | {100 * figures['gap']:.2g} % |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write the models, measure, print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.taso_table", description=main.__doc__)
    parser.add_argument("output", type=Path, metavar="OUT")
    parser.add_argument("--only", nargs="+", choices=NETWORKS, default=list(NETWORKS))
    parser.add_argument("--limit", default=LIMIT)
    parser.add_argument("--jobs", type=int, default=-1)
    parser.add_argument("--tiny", action="store_true", help="few channels, few layers, a small image")
    given = parser.parse_args()
    paths = write_models(given.output / "models", given.only, TINY if given.tiny else FULL)
    grid = Grid(
        tuple(str(path) for path in paths.values()),
        tuple(RULES.values()),
        (COST_MODEL,),
        (parse_limit(given.limit),),
        options(max_growth="none"),
        verify=False,
    )
    made = experiment(grid, given.output, workers=Workers(given.jobs), progress=show_progress)
    print(table(made), end="")


if __name__ == "__main__":
    main()
