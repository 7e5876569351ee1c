"""``python -m superopt``: the command line."""

from superopt.cli import main

if __name__ == "__main__":
    main()
