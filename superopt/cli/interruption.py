"""^C: it ends a run as long as nothing is written; from then on the run is brought to its end."""

from __future__ import annotations

import signal
import threading


def ignore_interrupts() -> None:
    """From here on ^C does nothing: what was found is written whole, and told, whatever comes meanwhile."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def heed_interrupts() -> None:
    """^C raises ``KeyboardInterrupt`` again."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.default_int_handler)
