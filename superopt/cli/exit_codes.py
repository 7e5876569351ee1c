"""What the command says to the shell when it ends."""

OK = 0
FAILED = 1
"""What was asked for could not be done or shown, or something wrong was found."""
BAD_INPUT = 2
INTERRUPTED = 130
