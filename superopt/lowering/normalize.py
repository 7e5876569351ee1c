"""The normal form of every understood operator, by operator: what its versions, defaults and inputs mean today."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from superopt.lowering import normalize_moves as moves
from superopt.lowering import normalize_windows as windows
from superopt.lowering.site import NotNormal, Site
from superopt.operators import named
from superopt.terms import ABSENT, Attrs, AttrValue, Node


def normal_form(site: Site) -> Node:
    """The node in normal form. Raises NotNormal, with the reason, where it has none."""
    spec = site.operator
    special = _SPECIAL.get(spec.name)
    taken = spec.form.attribute_inputs or {}
    if special is not None:
        special(site)
    else:
        site.attrs.update({name: plain(site.value(at)) for at, name in taken.items() if site.given(at)})
        if "axis" in spec.attributes:
            site.attrs["axis"] = site.axis(site.number("axis"))
    args = [arg for position, arg in enumerate(site.args) if position not in taken]
    if spec.arity is not None:
        if any(arg != ABSENT for arg in args[spec.arity :]):
            raise NotNormal("more inputs than the operator has")
        args = [*args, *[ABSENT] * spec.arity][: spec.arity]
    if ABSENT in (args if spec.arity is None else args[: spec.required]):
        raise NotNormal("an input that is needed is not given")
    attrs = {name: value for name, value in site.attrs.items() if name in spec.attributes}
    return Node(spec.name, tuple(args), Attrs.of(attrs))


def plain(array: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> AttrValue:
    """A constant input as an attribute: a number, or a tuple of numbers."""
    if array.ndim > 1 or not (np.issubdtype(array.dtype, np.integer) or np.issubdtype(array.dtype, np.floating)):
        raise NotNormal("a parameter is not a list of numbers")
    value = array.tolist()
    return tuple(value) if isinstance(value, list) else value


def _softmax(site: Site) -> None:
    axis = site.axis(site.number("axis"))
    if site.version < 13 and axis != site.rank() - 1:
        raise NotNormal("before opset 13, over several axes at once")
    site.attrs["axis"] = axis


def _clip(site: Site) -> None:
    if site.version >= 11:
        return
    dtype = _float_dtype(site)
    for name, without in (("min", -np.inf), ("max", np.inf)):
        bound = site.attrs.pop(name)
        with np.errstate(over="ignore"):  # beyond the range of float16, as the default is, it bounds nothing
            limit = np.asarray(bound, dtype=dtype)
        site.args.append(ABSENT if limit == without else site.make(limit))


def _float_dtype(site: Site) -> np.dtype[np.generic]:
    dtype = site.type(0).dtype
    if dtype not in ("float16", "float32", "float64"):
        raise NotNormal(f"bounds for {dtype}")
    return np.dtype(dtype)


def _dropout(site: Site) -> None:
    if site.version < 12:
        return
    site.attrs.pop("seed", None)
    if site.given(2) and site.value(2).any():
        raise NotNormal("in training mode")
    site.attrs["ratio"] = float(site.value(1).reshape(-1)[0]) if site.given(1) and site.value(1).size == 1 else 0.5
    site.args = site.args[:1]


def _batch_normalization(site: Site) -> None:
    if not site.attrs.pop("spatial", 1):
        raise NotNormal("statistics for each place, not for each channel")
    if site.attrs.get("training_mode"):
        raise NotNormal("in training mode")


def _group_normalization(site: Site) -> None:
    if site.version < 21:
        raise NotNormal("before opset 21, a scale for each group")


def _gemm(site: Site) -> None:
    if site.given(2):
        return
    scale = site.attrs.get("alpha", 1.0)
    if isinstance(scale, (int, float)) and scale <= 0:
        raise NotNormal("no bias beside a scale that is not positive: one of zeros would make zeros positive")
    sizes = site.shape(1)
    if len(sizes) != 2:
        raise NotNormal("weight is not a matrix")
    count = sizes[0 if site.number("transB") else 1]
    if not isinstance(count, int):
        raise NotNormal("number of columns not known")
    windows.zero_bias(site, count)


def _reduce(site: Site) -> None:
    if site.given(1):
        site.attrs["axes"] = plain(site.value(1))
    axes = site.numbers("axes")
    if not axes:
        if site.attrs.get("noop_with_empty_axes"):
            raise NotNormal("reduces over no axes")
        site.attrs["axes"] = tuple(range(site.rank()))
    else:
        site.attrs["axes"] = moves.sorted_axes(site, axes)


def _cumsum(site: Site) -> None:
    value = site.value(1)
    if value.size != 1:
        raise NotNormal("several axes")
    site.attrs["axis"] = site.axis(int(value.reshape(-1)[0]))


def _quantize(site: Site) -> None:
    site.attrs.setdefault("axis", 1)
    scale = site.type(1).shape
    if scale == () or site.version < 13:
        site.attrs["axis"] = 1
    else:
        site.attrs["axis"] = site.axis(site.number("axis"))


def _cast(site: Site) -> None:
    if not site.attrs.get("to"):
        raise NotNormal("no element type to cast to")


def _stft(site: Site) -> None:
    window = site.shape(2) if site.given(2) else ()
    given = int(site.value(3).reshape(())) if site.given(3) else None
    length = window[0] if given is None and window else given
    if not isinstance(length, int) or (window and window[0] != length):
        raise NotNormal("the frames' length is not known, or not the window's")
    site.attrs.update(frame_step=int(site.value(1).reshape(())), frame_length=length)


_SPECIAL: Mapping[str, Callable[[Site], None]] = {
    "Softmax": _softmax,
    "LogSoftmax": _softmax,
    "Clip": _clip,
    "Cast": _cast,
    "Dropout": _dropout,
    "BatchNormalization": _batch_normalization,
    "GroupNormalization": _group_normalization,
    "Gemm": _gemm,
    **dict.fromkeys(named(lambda form: form.reduces), _reduce),
    "CumSum": _cumsum,
    "STFT": _stft,
    "QuantizeLinear": _quantize,
    "DequantizeLinear": _quantize,
    **windows.SPECIAL,
    **moves.SPECIAL,
}  # fmt: skip
