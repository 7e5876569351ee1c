"""TASO's files of substitutions, and the same as rules in our text."""
