"""From a model's nodes to terms in normal form: a new operator's normal form goes to ``normalize``."""
