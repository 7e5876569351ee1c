"""Inputs for running a model: read from files, or made up from a seed."""
