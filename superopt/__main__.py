"""``superopt`` and ``python -m superopt``: the command line."""

import gc
import sys


def main() -> None:
    """Runs the command line, which takes a moment to load: ^C is told then, too."""
    # Records are many and hardly any are in cycles: to look for these after every 700 takes a tenth of a run.
    gc.set_threshold(50_000)
    try:
        from superopt.cli.main import main as run
    except KeyboardInterrupt:
        sys.stderr.write("superopt: interrupted, nothing was written\n")
        exec("")  # see superopt.cli.interruption
        sys.exit(130)
    run()


if __name__ == "__main__":
    main()
