"""Runs an experiment: cells that are not finished yet, in parallel over any joblib backend; then leaves rules out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import joblib

from superopt.errors import OptionError, SuperoptError
from superopt.experiment.cell import CellDocument, run_cell
from superopt.experiment.grid import Cell, Grid, LeaveOut, units
from superopt.experiment.store import Store
from superopt.experiment.table import ExperimentDocument, document, to_csv
from superopt.reporting.report import to_json, write

Progress = Callable[[int, int, Cell, CellDocument], None]
"""Told how many cells of how many are finished, and the one that was last; cells found finished are not told of."""


@dataclass(frozen=True)
class Workers:
    """How cells run: so many at a time (-1: one for each processor), on a joblib backend by name (None for what
    ``joblib.parallel_config`` has set, processes of this machine by default)."""

    jobs: int = -1
    backend: str | None = None


def experiment(
    grid: Grid,
    folder: str | Path,
    *,
    leave_one_out: LeaveOut | None = None,
    workers: Workers | None = None,
    progress: Progress | None = None,
) -> ExperimentDocument:
    """Measures all cells of a grid, and writes ``experiment.json`` and ``experiment.csv`` into the folder.

    Cells that the folder has already are not run again; a killed experiment goes on where it was. With
    ``leave_one_out`` each rule or family that matched is left out in turn. Raises ``InputError`` where a model, a rule
    set, a cost model or the folder is at fault.
    """
    store = Store(Path(folder))
    cells = list(grid.cells())
    store.prepare()
    using = workers or Workers()
    base = _all(cells, store, using, progress)
    less: list[Cell] = []
    if leave_one_out is not None:
        for cell, whole in zip(cells, base, strict=True):
            if whole["figures"] is not None:
                names = units(cell.rules, whole["figures"]["matches"], leave_one_out)
                less += [cell.without(name, leave_one_out) for name in names]
    made = document(grid.settings, leave_one_out, base, _all(less, store, using, progress))
    write(to_json(made), store.folder / "experiment.json")
    write(to_csv(made), store.folder / "experiment.csv")
    return made


def _all(cells: Sequence[Cell], store: Store, workers: Workers, progress: Progress | None) -> list[CellDocument]:
    """The documents of cells in order; those that are missing, or failed when they were run, are run and kept."""
    by_key = {cell.key: cell for cell in cells}
    kept = {key: store.get(key) for key in by_key}
    missing = [cell for key, cell in by_key.items() if (one := kept[key]) is None or one["failure"] is not None]
    finished = len(by_key) - len(missing)
    for one in _run(missing, store, workers):
        finished += 1
        if progress is not None:
            progress(finished, len(by_key), by_key[one["key"]], one)
    found = [store.get(cell.key) for cell in cells]
    lost = next((cell for cell, one in zip(cells, found, strict=True) if one is None), None)
    if lost is not None:
        raise OptionError(f"{store.path(lost.key)}: was not written, expected a folder that every worker reaches")
    # The same content may go by several names: a document says what it was called when it was measured.
    return [_named(one, cell) for cell, one in zip(cells, found, strict=True) if one is not None]


def _named(document: CellDocument, cell: Cell) -> CellDocument:
    return {**document, "model": cell.model, "rules": cell.rules_name, "left_out": cell.left_out}


def _run(cells: Iterable[Cell], store: Store, workers: Workers) -> Iterator[CellDocument]:
    """Runs cells, each of which is kept by the process that ran it; in the order in which they end, where the backend
    can tell."""
    tasks = [joblib.delayed(_kept)(cell, store) for cell in cells]
    if not tasks:
        return
    given: dict[str, Any] = {"n_jobs": workers.jobs, "batch_size": 1}
    if workers.backend is not None:
        given["backend"] = workers.backend
    try:
        parallel = joblib.Parallel(return_as="generator_unordered", **given)
    except ValueError as error:
        if "return_as" not in str(error):
            raise OptionError(f"backend: {workers.backend}: {error}") from error
        parallel = joblib.Parallel(**given)
    except ImportError as error:
        raise OptionError(f"backend: {workers.backend}: {' '.join(str(error).split())}") from error
    try:
        yield from parallel(tasks)
    except joblib.externals.loky.process_executor.TerminatedWorkerError as error:
        raise SuperoptError(
            "a worker process died, of too little memory perhaps: run the same command again, with fewer --jobs; "
            "finished cells are kept"
        ) from error


def _kept(cell: Cell, store: Store) -> CellDocument:
    """What a worker does: one cell, kept as soon as it is finished."""
    made = run_cell(cell)
    store.put(made)
    return made
