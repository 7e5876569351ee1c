"""Latencies of several models in onnxruntime, each in a process of its own, run in turn in a shuffled order.

Processes of their own keep one model's threads, memory and caches out of another's; running in turn lets whatever else
the machine does hit all of them alike, so that ratios within a round are what is reported.
"""

from __future__ import annotations

import gc
import math
import multiprocessing
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray

Outputs = Mapping[str, NDArray[Any]]

SAMPLE = 0.02
"""Seconds that one sample lasts at least: a faster model runs several times for it."""

START_SECONDS = 300.0
"""What loading a model and running it once may take."""


class Failed(Exception):
    """onnxruntime does not load or run a model."""


@dataclass(frozen=True)
class Race:
    """Seconds per run: ``samples[i][r]`` is model i in round r; None for a model that does not run, and ``errors`` says
    why. ``outputs`` are each model's, for each of the feeds."""

    samples: tuple[tuple[float, ...] | None, ...]
    outputs: tuple[tuple[Outputs, ...], ...]
    errors: tuple[str, ...]

    def faster(self, index: int, than: int = 0) -> tuple[float, float, float]:
        """How many times faster model ``index`` is: lower quartile, median and upper quartile over the rounds."""
        mine, other = self.samples[index], self.samples[than]
        if mine is None or other is None:
            return math.nan, math.nan, math.nan
        low, middle, high = np.percentile(np.array(other) / np.array(mine), (25, 50, 75))
        return float(low), float(middle), float(high)

    def median(self, index: int) -> float:
        """The median of its seconds per run."""
        mine = self.samples[index]
        return math.nan if mine is None else float(np.median(mine))


def outputs_of(model: Path, feeds: Sequence[Outputs], *, optimized: bool) -> tuple[Outputs, ...]:
    """What a model computes, in a process of its own, with onnxruntime's optimizations or without. Raises Failed."""
    runner = _Runner(model, feeds, 0, optimized)
    try:
        return runner.ready()[1]
    finally:
        runner.stop()


def race(models: Sequence[Path], feeds: Sequence[Outputs], *, rounds: int, seed: int = 0, threads: int = 0) -> Race:
    """Time the models on the first of the feeds; ``threads`` 0 is onnxruntime's own choice, everything else is its
    default."""
    random = np.random.default_rng(seed)
    runners: list[_Runner] = []
    once: dict[int, float] = {}
    outputs: list[tuple[Outputs, ...]] = []
    errors: list[str] = []
    try:
        for index, model in enumerate(models):
            runners.append(_Runner(model, feeds, threads, True))
            try:
                once[index], found = runners[-1].ready()
                outputs.append(found)
                errors.append("")
            except Failed as error:
                outputs.append(())
                errors.append(str(error))
        samples: dict[int, list[float]] = {index: [] for index in once}
        for _ in range(rounds):
            for index in random.permutation(list(once)).tolist():
                samples[index].append(runners[index].sample(max(1, math.ceil(SAMPLE / once[index]))))
    finally:
        for runner in runners:
            runner.stop()
    timed = tuple(tuple(samples[index]) if index in samples else None for index in range(len(models)))
    return Race(timed, tuple(outputs), tuple(errors))


class _Runner:
    """A process that holds a session and runs it when asked."""

    def __init__(self, model: Path, feeds: Sequence[Outputs], threads: int, optimized: bool) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(
            target=_serve, args=(theirs, model, list(feeds), threads, optimized), daemon=True
        )
        self.process.start()
        theirs.close()

    def ready(self) -> tuple[float, tuple[Outputs, ...]]:
        """Seconds of one run, and the outputs for each feed."""
        seconds, outputs = self._heard(START_SECONDS)
        return seconds, outputs

    def sample(self, repeats: int) -> float:
        """Seconds per run, over so many runs after one that brings the model back into the caches."""
        self.connection.send(repeats)
        return float(self._heard(START_SECONDS))

    def _heard(self, seconds: float) -> Any:
        try:
            if not self.connection.poll(seconds):
                raise Failed(f"no answer after {seconds:g} s")
            answer = self.connection.recv()
        except EOFError:
            self.process.join(10)
            raise Failed(f"its process ended with code {self.process.exitcode}") from None
        if isinstance(answer, Failed):
            raise answer
        return answer

    def stop(self) -> None:
        self.connection.close()  # it waits for a word, and ends when there can be none
        self.process.join(10)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()


def _serve(connection: Connection, model: Path, feeds: list[Outputs], threads: int, optimized: bool) -> None:
    levels = onnxruntime.GraphOptimizationLevel
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = levels.ORT_ENABLE_ALL if optimized else levels.ORT_DISABLE_ALL
    options.intra_op_num_threads = threads
    options.log_severity_level = 4
    # Threads that spin on after a run would take time from the model that runs next.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    try:
        session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
        names = [item.name for item in session.get_outputs()]
        wanted = [item.name for item in session.get_inputs()]
        given = [{name: array for name, array in feed.items() if name in wanted} for feed in feeds]
        outputs = tuple(dict(zip(names, session.run(names, feed), strict=True)) for feed in given)
        seconds = min(_timed(session, given[0], 1) for _ in range(2))
    except Exception as error:  # onnxruntime's exceptions have no common base of their own
        connection.send(Failed(" ".join(str(error).split())[:200]))
        return
    connection.send((seconds, outputs))
    gc.disable()
    while True:
        try:
            repeats = connection.recv()
        except EOFError:
            return
        session.run(None, given[0])
        connection.send(_timed(session, given[0], repeats))


def _timed(session: Any, feed: Outputs, repeats: int) -> float:
    started = time.perf_counter()
    for _ in range(repeats):
        session.run(None, feed)
    return (time.perf_counter() - started) / repeats
