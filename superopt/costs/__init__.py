"""What operators cost: prices by formula, and instances of operators that were timed, with the database of these."""
