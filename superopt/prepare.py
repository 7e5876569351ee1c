"""What is done to a model before any rule: it may become another one, as it stands."""

from __future__ import annotations

from superopt.bodies.resolve import resolved
from superopt.models.functions import without_calls
from superopt.models.model import Model
from superopt.sizes.written import with_known_sizes


def prepared(model: Model) -> tuple[Model, bool]:
    """The model that rules are to be applied to, and whether it is better than the given one already.

    Functions are written out where they are called: rules do not see into them otherwise. If no rule does anything
    then, that alone is no reason to change a model; control flow that has only one way to go is, and sizes that are
    known.
    Raises ModelError on a graph that is broken.
    """
    plain = without_calls(model)
    better = with_known_sizes(resolved(plain))
    return better, better is not plain
