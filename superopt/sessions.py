"""How onnxruntime is asked to run a model: as it is written, for the judge, or as a user would deploy it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnxruntime

CPU = "CPUExecutionProvider"
"""The provider that is in every build of onnxruntime."""


def session_options(*, optimized: bool, threads: int) -> onnxruntime.SessionOptions:
    """With all of onnxruntime's optimizations or none, on so many threads (0: its own choice), without a word on what
    goes wrong: that is raised as well."""
    import onnxruntime

    levels = onnxruntime.GraphOptimizationLevel
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = levels.ORT_ENABLE_ALL if optimized else levels.ORT_DISABLE_ALL
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 4
    # The threads of one session must not spin on while the next one runs.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    return options


def judging_options(*, prepacked: bool = False) -> onnxruntime.SessionOptions:
    """Nothing is fused or folded, and sums are taken in one order by one thread. Nor is anything ``prepacked``, unless
    that is asked for: kernels then may add in another order where a weight is constant."""
    options = session_options(optimized=False, threads=1)
    # Many such sessions live at once, and each would keep the memory of the largest inputs that it was given.
    options.enable_cpu_mem_arena = False
    if not prepacked:
        options.add_session_config_entry("session.disable_prepacking", "1")
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return options
