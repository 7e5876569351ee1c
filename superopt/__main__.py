"""``superopt`` and ``python -m superopt``: the command line."""

import sys


def main() -> None:
    """Runs the command line, which takes a moment to load: ^C is told then, too."""
    try:
        from superopt.cli.main import main as run
    except KeyboardInterrupt:
        sys.stderr.write("superopt: interrupted, nothing was written\n")
        exec("")  # see superopt.cli.interruption
        sys.exit(130)
    run()


if __name__ == "__main__":
    main()
