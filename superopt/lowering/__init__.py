"""From a model's nodes to terms in normal form: a new operator's goes to one of the ``normalize`` modules."""
