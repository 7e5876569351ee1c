"""Experiments: models x rule sets x cost models x limits, in parallel, resumable, with each rule's contribution."""
