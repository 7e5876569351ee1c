"""The command line: what a command does in a module of its own, its signature in ``*_commands``."""
