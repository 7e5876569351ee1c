"""Whole models, loaded to be timed: in onnxruntime, or in another runtime than the one that verifies them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from superopt.costs.executor import Prepared
from superopt.costs.timing import Runtime
from superopt.errors import EvaluationError
from superopt.evaluate import Feed, Runner
from superopt.models.model import Model, message
from superopt.sessions import CPU


def ready(model: Model, feed: Feed, runtime: Runtime) -> Callable[[], object]:
    """A model, optimized by a runtime; each call runs it once on these inputs. Raises EvaluationError where the runtime
    cannot load it, and where it needs one message for that and is larger."""
    if runtime.provider == CPU:
        return partial(Runner(model, optimized=True, threads=runtime.threads).run, feed)
    try:
        return runtime.executor.load(Prepared(message(model), feed, to_optimize=True))
    except Exception as error:  # Runtimes have no common base class for their own.
        raise EvaluationError(f"{runtime.provider} does not run it: {' '.join(str(error).split())}") from error
