"""Runs an experiment: cells that are not finished yet, in parallel over any joblib backend; then leaves rules out."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import joblib

from superopt.errors import OptionError, SuperoptError
from superopt.experiment.cell import CellDocument, run_cell
from superopt.experiment.grid import Cell, Grid, LeaveOut, units
from superopt.experiment.store import Store
from superopt.experiment.table import ExperimentDocument, document, to_csv
from superopt.options import check_jobs
from superopt.report import to_json, write

CellProgress = Callable[[int, int, Cell, CellDocument], None]
"""Told how many cells of how many are finished, and the one that was last; cells found finished are not told of."""

_PAUSE = 1.0
"""Seconds after which the tables are written again, at the earliest."""

_PAUSES = 20.0
"""Times the seconds that writing the tables takes after which they are written again: a twentieth goes into it."""


@dataclass(frozen=True)
class Workers:
    """How cells run: so many at a time (-1: one for each processor), on a joblib backend by name (None for what
    ``joblib.parallel_config`` has set, processes of this machine by default)."""

    jobs: int = -1
    backend: str | None = None

    def __post_init__(self) -> None:
        check_jobs(self.jobs)


def experiment(
    grid: Grid,
    folder: str | Path,
    *,
    leave_one_out: LeaveOut | None = None,
    workers: Workers | None = None,
    progress: CellProgress | None = None,
) -> ExperimentDocument:
    """Measures all cells of a grid, and writes ``experiment.json`` and ``experiment.csv`` into the folder.

    Cells that the folder has already are not run again; a killed experiment goes on where it was. The two files are
    written again every now and then as cells are finished, and where the experiment is interrupted. With
    ``leave_one_out`` each rule or family that matched is left out in turn. Raises ``InputError`` where a model, a rule
    set, a cost model or the folder is at fault.
    """
    store = Store(Path(folder))
    cells = list(grid.cells())
    store.prepare()
    using = workers or Workers()
    tables = _Tables(grid, leave_one_out, store, cells)
    with _configured(using):
        base = _all(cells, tables, using, progress)
        if leave_one_out is not None:
            for cell, whole in zip(cells, base, strict=True):
                if whole["figures"] is not None:
                    names = units(cell.rules, whole["figures"]["matches"], leave_one_out)
                    tables.less += [cell.without(name, leave_one_out) for name in names]
        _all(tables.less, tables, using, progress)
    return tables.write()


@dataclass
class _Tables:
    """The two tables, written again as cells are finished: what is killed leaves them of what there was."""

    grid: Grid
    leave_one_out: LeaveOut | None
    store: Store
    base: list[Cell]
    less: list[Cell] = field(default_factory=list)
    finished: dict[str, CellDocument] = field(default_factory=dict)
    next_at: float = -math.inf

    def write(self) -> ExperimentDocument:
        """Writes both tables, and says what is in them."""
        start = time.monotonic()
        base, less = (
            [self.of(cell) for cell in cells if cell.key in self.finished] for cells in (self.base, self.less)
        )
        unfinished = len(self.base) + len(self.less) - len(base) - len(less)
        made = document(self.grid.settings, self.leave_one_out, base, less, unfinished)
        write(to_json(made), self.store.folder / "experiment.json")
        write(to_csv(made), self.store.folder / "experiment.csv")
        now = time.monotonic()
        self.next_at = now + max(_PAUSE, _PAUSES * (now - start))
        return made

    def add(self, one: CellDocument) -> None:
        """Takes a cell that was finished just now; writes the tables where the last time is long enough ago."""
        self.finished[one["key"]] = one
        if time.monotonic() >= self.next_at:
            self.write()

    def of(self, cell: Cell) -> CellDocument:
        """The document of a finished cell, as the cell is called here: the same content may go by several names."""
        found = self.finished[cell.key]
        return {**found, "model": cell.model, "rules": cell.rules_name, "left_out": cell.left_out}


def _all(cells: Sequence[Cell], tables: _Tables, workers: Workers, progress: CellProgress | None) -> list[CellDocument]:
    """The documents of cells in order; those that are missing, or failed when they were run, are run and kept."""
    store = tables.store
    by_key = {cell.key: cell for cell in cells}
    kept = {key: store.get(key) for key in by_key}
    tables.finished.update({key: one for key, one in kept.items() if one is not None and one["failure"] is None})
    missing = [cell for key, cell in by_key.items() if key not in tables.finished]
    finished = len(by_key) - len(missing)
    try:
        for one in _run(missing, store, workers):
            finished += 1
            if store.get(one["key"]) is None:  # a worker on a machine that does not reach the folder
                store.put(one)
            tables.add(store.get(one["key"]) or one)
            if progress is not None:
                progress(finished, len(by_key), by_key[one["key"]], one)
    except BaseException:  # an interruption too: what there is is kept, and it goes on its way
        # A cell may have been kept just now, and not have been told of.
        late = {cell.key: store.get(cell.key) for cell in missing}
        tables.finished.update({key: one for key, one in late.items() if one is not None and one["failure"] is None})
        if tables.finished:
            tables.write()
        raise
    return [tables.of(cell) for cell in cells]


def _run(cells: Iterable[Cell], store: Store, workers: Workers) -> Iterator[CellDocument]:
    """Runs cells, each of which is kept by the process that ran it, where that reaches the folder; in the order in
    which they end, where the backend can tell."""
    tasks = [joblib.delayed(_kept)(cell, store) for cell in cells]
    if not tasks:
        return
    try:
        parallel = joblib.Parallel(n_jobs=workers.jobs, batch_size=1, return_as="generator_unordered")
    except ValueError as error:
        if "return_as" not in str(error):
            raise
        parallel = joblib.Parallel(n_jobs=workers.jobs, batch_size=1)
    try:
        yield from parallel(tasks)
    except joblib.externals.loky.process_executor.TerminatedWorkerError as error:
        raise SuperoptError(
            "a worker process died, of too little memory perhaps: run the same command again, with fewer --jobs; "
            "finished cells are kept"
        ) from error


def _configured(workers: Workers) -> AbstractContextManager[object]:
    """The backend of the workers, for as long as they are used."""
    if workers.backend is None:
        return nullcontext()
    if workers.backend == "multiprocessing":
        # It copies this process without the threads of onnxruntime and egglog, for which the copies wait for ever.
        raise OptionError("backend: multiprocessing cannot run the engines, expected loky, threading or dask, say")
    try:
        made: AbstractContextManager[object] = joblib.parallel_config(backend=workers.backend)
        return made
    except (ValueError, RuntimeError, ImportError) as error:
        raise OptionError(f"backend: {workers.backend}: {' '.join(str(error).split())}") from error


def _kept(cell: Cell, store: Store) -> CellDocument:
    """What a worker does: one cell, kept as soon as it is finished, lest it is lost with whoever asked for it."""
    if not store.reached:
        return run_cell(cell)
    with store.locked(cell.key):
        known = store.get(cell.key)
        if known is not None and known["failure"] is None:
            return known
        made = run_cell(cell)
        store.put(made)
        return made
