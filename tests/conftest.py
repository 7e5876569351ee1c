"""What all tests share: the same examples in every run, and a quiet runtime."""

from __future__ import annotations

import hypothesis
import onnxruntime

hypothesis.settings.register_profile("repeatable", derandomize=True, deadline=None, database=None)
hypothesis.settings.load_profile("repeatable")

onnxruntime.set_default_logger_severity(3)
