"""``make fuzz``: draws models until stopped, checks them as tests/fuzz/properties.py says, shrinks and saves finds.

    python -m benchmarks.fuzz [--seed N] [--graphs N] [--numeric CLASS] [--bundle N] [--out FOLDER]

Every find becomes a folder with model.onnx, feed0.npz and what.txt, as in tests/cases.
"""

from __future__ import annotations

import argparse
import collections
import time
import traceback
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import hypothesis
import numpy as np
import onnx
import onnxruntime
from hypothesis import HealthCheck, Phase, given, settings

from superopt.rule_text import load as load_rules
from superopt.rules import RuleSet
from tests.fuzz.graphs import Fuzzed, bundles
from tests.fuzz.properties import Skipped, check_optimized, check_round_trip, groups

BATCH = 25
"""Bundles of models drawn from one seed: hypothesis tries variations of what it has within a batch."""

CLASSES = ("exact", "reassociates", "approximates")


class Fuzzer:
    """Counts, and keeps finds apart by what they say."""

    def __init__(self, out: Path, numeric: str | None, rules: RuleSet, bundle: int) -> None:
        self.out = out
        self.bundle = bundle
        self.numeric = numeric
        self.rules = rules
        self.seed = 0
        self.counts: collections.Counter[str] = collections.Counter()
        self.started = time.perf_counter()
        self.last: tuple[Fuzzed, str, BaseException] | None = None

    def check(self, parts: Sequence[Fuzzed], numeric: str) -> None:
        """Some graphs, bundled. Raises what was found."""
        self.counts["graphs"] += len(parts)
        cases, skipped = groups(parts)
        self.counts["skipped"] += skipped
        for case in cases:
            count = len(case.graphs)
            # What kills the process, or never ends, leaves its model behind.
            onnx.save(case.model, self.out / f"at-{self.seed}.onnx")
            try:
                check_round_trip(case)
                result = check_optimized(case, numeric, self.rules)
            except Skipped:
                self.counts["skipped"] += count
                continue
            except hypothesis.errors.HypothesisException:
                raise
            except Exception as error:
                self.last = (case, numeric, error)
                raise
            self.counts["models"] += 1
            self.counts[f"{numeric} checked"] += count
            self.counts["models changed"] += result.report["changed"]

    def batch(self, seed: int) -> None:
        """Some bundles, to the first find, shrunk."""
        numeric = self.numeric or CLASSES[seed % len(CLASSES)]
        self.seed = seed

        @hypothesis.seed(seed)
        @settings(
            max_examples=BATCH, deadline=None, database=None, report_multiple_bugs=False, print_blob=False,
            phases=[Phase.generate, Phase.shrink], suppress_health_check=list(HealthCheck),
            verbosity=hypothesis.Verbosity.quiet,
        )  # fmt: skip
        @given(bundles(self.bundle))
        def examine(parts: tuple[Fuzzed, ...]) -> None:
            self.check(parts, numeric)

        try:
            examine()
        except Exception as error:
            self.found(seed, error)
        (self.out / f"at-{seed}.onnx").unlink(missing_ok=True)

    def found(self, seed: int, error: BaseException) -> None:
        case, numeric, error = self.last or (None, self.numeric, error)
        self.counts["finds"] += 1
        folder = self.out / f"find-{seed}"
        folder.mkdir(parents=True, exist_ok=True)
        text = "".join(traceback.format_exception(error))
        if case is not None:
            onnx.save(case.model, folder / "model.onnx")
            for place, kind in enumerate(("plain", "special")):
                np.savez(folder / f"feed{place}.npz", **dict(case.feed(kind)))
        (folder / "what.txt").write_text(f"seed {seed}, {numeric}\n{case!r}\n\n{text}", encoding="utf-8")
        print(f"FOUND {folder}: {str(error).splitlines()[0] if str(error) else type(error).__name__}", flush=True)

    def progress(self) -> str:
        graphs, spent = self.counts["graphs"], time.perf_counter() - self.started
        parts = ", ".join(f"{count} {name}" for name, count in sorted(self.counts.items()))
        return f"{parts}; {spent:.0f} s ({time.process_time():.0f} s of CPU), {graphs / spent:.1f} graphs/s"


def main() -> Any:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--seed", type=int, default=0, help=f"the first seed; each batch of {BATCH} has the next")
    arguments.add_argument("--graphs", type=int, default=0, help="stop after about so many; 0 never stops")
    arguments.add_argument("--numeric", choices=CLASSES, help="check this class alone")
    arguments.add_argument("--rules", default="default", help="rule set or file")
    arguments.add_argument("--out", type=Path, default=Path("fuzz-finds"), help="where finds are saved")
    arguments.add_argument("--bundle", type=int, default=8, help="up to so many graphs side by side in one model")
    given_arguments = arguments.parse_args()
    warnings.simplefilter("ignore")
    onnxruntime.set_default_logger_severity(4)
    rules = load_rules(given_arguments.rules)
    fuzzer = Fuzzer(given_arguments.out, given_arguments.numeric, rules, given_arguments.bundle)
    fuzzer.out.mkdir(parents=True, exist_ok=True)
    seed = given_arguments.seed
    try:
        while not given_arguments.graphs or fuzzer.counts["graphs"] < given_arguments.graphs:
            fuzzer.batch(seed)
            seed += 1
            print(fuzzer.progress(), flush=True)
    except KeyboardInterrupt:
        print("stopped:", fuzzer.progress())
    return int(fuzzer.counts["finds"] > 0)


if __name__ == "__main__":
    raise SystemExit(main())
