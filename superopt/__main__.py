"""``python -m superopt``: the command line."""

from superopt.cli.main import main

if __name__ == "__main__":
    main()
