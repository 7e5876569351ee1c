"""The database of timed operator instances: SQLite, in the user's cache, keyed by where they were timed."""

from __future__ import annotations

import os
import platform
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import platformdirs

from superopt.costs.sampling import Timing
from superopt.costs.timing import Runtime
from superopt.errors import CostModelError

VERSION = 1
"""Of the tables and of what their keys mean; a database of another version is not read."""

_TABLES = """
CREATE TABLE IF NOT EXISTS place (
    id INTEGER PRIMARY KEY, machine TEXT NOT NULL, runtime TEXT NOT NULL, provider TEXT NOT NULL,
    threads INTEGER NOT NULL, UNIQUE (machine, runtime, provider, threads)
);
CREATE TABLE IF NOT EXISTS timing (
    place INTEGER NOT NULL REFERENCES place (id), instance TEXT NOT NULL, seconds REAL NOT NULL, spread REAL NOT NULL,
    samples INTEGER NOT NULL, PRIMARY KEY (place, instance)
) WITHOUT ROWID;
"""


@dataclass(frozen=True)
class Place:
    """Where instances are timed: the machine (processor and cores), the runtime with its version, provider, threads."""

    machine: str
    runtime: str
    provider: str
    threads: int

    @staticmethod
    def here(runtime: Runtime) -> Place:
        """This machine, and the runtime that is installed. Raises OptionError where it is not."""
        return Place(machine(), runtime.executor.version, runtime.provider, runtime.threads)

    def __str__(self) -> str:
        threads = "its own choice of threads" if self.threads == 0 else f"{self.threads} threads"
        return f"{self.machine}, {self.runtime}, {self.provider}, {threads if self.threads != 1 else '1 thread'}"


@lru_cache(maxsize=1)
def machine() -> str:
    """The processor's name and how many cores this process may use."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return f"{_processor()} x {cores}"


def _processor() -> str:
    listing = Path("/proc/cpuinfo")
    if listing.is_file():
        entries = [line.partition(":") for line in listing.read_text(encoding="utf-8", errors="replace").splitlines()]
        facts = {key.strip(): value.strip() for key, _, value in reversed(entries)}
        name = facts.get("model name") or facts.get("Hardware") or facts.get("CPU part")
        if name:
            # Virtual machines hide the name of the processor: its numbers tell it from others.
            numbers = [facts[key] for key in ("cpu family", "model", "stepping") if key in facts]
            return f"{name} ({'/'.join(numbers)})" if numbers else name
    return platform.processor() or platform.machine() or "unknown processor"


def default_path() -> Path:
    """The database of this user."""
    return platformdirs.user_cache_path("superopt") / "timings.sqlite"


@dataclass(frozen=True)
class Database:
    """The database in a file; it is made when something is first written to it. Raises CostModelError where the file
    cannot be read or is something else."""

    path: Path

    def timings(self, place: Place) -> dict[str, Timing]:
        """Every instance that was timed at a place, by key, in order of key."""
        if not self.path.is_file():
            return {}
        with self._open() as connection:
            rows = connection.execute(
                "SELECT instance, seconds, spread, samples FROM timing JOIN place ON place.id = timing.place "
                "WHERE machine = ? AND runtime = ? AND provider = ? AND threads = ? ORDER BY instance",
                (place.machine, place.runtime, place.provider, place.threads),
            )
            return {key: Timing(*timing) for key, *timing in rows}

    def places(self) -> dict[Place, int]:
        """Where instances were timed, and how many."""
        if not self.path.is_file():
            return {}
        with self._open() as connection:
            rows = connection.execute(
                "SELECT machine, runtime, provider, threads, count(*) FROM timing "
                "JOIN place ON place.id = timing.place GROUP BY place.id ORDER BY place.id"
            )
            return {Place(*place): count for *place, count in rows}

    def add(self, place: Place, timings: Mapping[str, Timing]) -> None:
        """Writes timings; those of the same instance at the same place are replaced."""
        if not timings:
            return
        with self._open() as connection:
            key = (place.machine, place.runtime, place.provider, place.threads)
            connection.execute(
                "INSERT OR IGNORE INTO place (machine, runtime, provider, threads) VALUES (?, ?, ?, ?)", key
            )
            number = connection.execute(
                "SELECT id FROM place WHERE machine = ? AND runtime = ? AND provider = ? AND threads = ?", key
            ).fetchone()[0]
            connection.executemany(
                "INSERT OR REPLACE INTO timing VALUES (?, ?, ?, ?, ?)",
                [(number, name, each.seconds, each.spread, each.samples) for name, each in timings.items()],
            )

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """A connection in a transaction."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            connection = sqlite3.connect(self.path, timeout=30.0)
        except (OSError, sqlite3.Error) as error:
            raise CostModelError(f"{self.path}: cannot be opened ({error}), expected a database of timings") from error
        try:
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            if version not in (0, VERSION):
                raise CostModelError(
                    f"{self.path}: is of version {version}, expected a database of timings of version {VERSION}"
                )
            with connection:
                connection.executescript(_TABLES)
                connection.execute(f"PRAGMA user_version = {VERSION}")
            with connection:
                yield connection
        except sqlite3.Error as error:
            raise CostModelError(f"{self.path}: {error}, expected a database of timings") from error
        finally:
            connection.close()
