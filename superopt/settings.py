"""What the options of a run stand for: its rules, cost models, libraries, and the inputs that a model is run on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from superopt.cost import CostModel
from superopt.cost import load as load_cost_model
from superopt.costs.timing import Runtime
from superopt.errors import EvaluationError, FeedError
from superopt.evaluate import found_libraries
from superopt.inputs.feeds import Feeds
from superopt.inputs.sample import FEEDS, sample
from superopt.models.byte_counts import stored_bytes
from superopt.models.model import Model
from superopt.models.narrow import computes_narrow
from superopt.options import Options
from superopt.rule_text import load as load_rules
from superopt.rules import RuleSet
from superopt.verification.verify_regions import LARGEST_RUN


def rules_of(chosen: Options) -> RuleSet:
    """The rules that the options name, of the numeric class that they allow. Raises ``RuleError``, ``OptionError``."""
    rules = RuleSet()
    for one in chosen.rules:
        rules = rules + (one if isinstance(one, RuleSet) else load_rules(one))
    return rules.without(*chosen.without).of_class(chosen.numeric, chosen.ignoring)


def cost_model_of(chosen: Options) -> CostModel:
    """The cost model that the options name first. Raises ``CostModelError``."""
    return cost_models_of(chosen)[0]


def cost_models_of(chosen: Options) -> tuple[CostModel, ...]:
    """The cost models that the options name. Raises ``CostModelError``, and ``OptionError`` where the provider that
    they are to be for is not there."""
    runtime = Runtime(chosen.provider, chosen.threads)
    runtime.check()
    return tuple(one if isinstance(one, CostModel) else load_cost_model(one, runtime) for one in chosen.costs)


def with_libraries(original: Model, chosen: Options) -> Model:
    """The model with the libraries of custom operators that it is to be run with. Raises ``OptionError``."""
    return replace(original, libraries=found_libraries(chosen.custom_op_library))


_NARROW_FEEDS = 12
"""On how many inputs bits of float16 are compared: where onnxruntime has no kernel for it, it computes in float32, and
drops roundings to float16 between two such nodes. What an exact rule takes from between them may so change a last bit
of some values, and on a few numbers that is soon missed."""


def feeds_of(original: Model, chosen: Options) -> Feeds:
    """Inputs that the model runs on; none where none could be found, or running it would take too much memory.

    Raises ``FeedError`` where those that were given do not fit.
    """
    if chosen.verify == "regions" and stored_bytes(original) > LARGEST_RUN:
        return Feeds((), chosen.seed, ("not run as a whole",))
    try:
        exact = chosen.numeric == "exact"
        count = _NARROW_FEEDS if exact and computes_narrow(original.proto) else FEEDS
        shapes, given = chosen.input_shape, chosen.inputs
        return sample(
            original, seed=chosen.seed, count=count, shapes=shapes, given=given, edge_sizes=True, special=exact
        )
    except EvaluationError as error:
        if chosen.input_shape and chosen.inputs is None and _runs(original, chosen):
            raise FeedError(f"input-shape: the model does not run with it: {error}") from error
        return Feeds((), chosen.seed, (str(error),))


def _runs(original: Model, chosen: Options) -> bool:
    """Whether a model runs with any shapes."""
    try:
        sample(original, seed=chosen.seed, count=1)
    except EvaluationError:
        return False
    return True


def sizes_of(feeds: Feeds) -> Mapping[str, int]:
    """What symbolic dimensions are priced at: as they are in the most ordinary inputs."""
    return feeds.feeds[0].dims if feeds.feeds else {}
