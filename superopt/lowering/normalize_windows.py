"""The normal form of convolutions and pools: strides, dilations and pads in full, and a bias."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from onnx import helper

from superopt.lowering.site import NotNormal, Site
from superopt.operators import dtype_number


def zero_bias(site: Site, count: int) -> None:
    """Gives the site a third input: this many zeros of the second one's element type."""
    if count < 0:
        raise NotNormal("fewer than no groups")
    dtype = helper.tensor_dtype_to_np_dtype(dtype_number(site.type(1).dtype))
    site.args = [*site.args[:2], site.make(np.zeros(count, dtype=dtype))]


def _kernel(site: Site) -> tuple[int, ...]:
    """The kernel's spatial size, from the weight; from the attribute where the weight's type does not tell."""
    shape = site.type(1).shape
    given = site.numbers("kernel_shape")
    if shape is None:
        if not given:
            raise NotNormal("kernel size not known")
        return given
    kernel = []
    for index, dim in enumerate(shape[2:]):
        size = dim if isinstance(dim, int) else (given[index] if given and index < len(given) else None)
        if size is None:
            raise NotNormal("kernel size not known")
        kernel.append(size)
    if given and tuple(kernel) != given:
        raise NotNormal("kernel_shape is not the weight's")
    return tuple(kernel)


def _windows(site: Site, kernel: tuple[int, ...]) -> None:
    """Completes strides and dilations; refuses lists that do not fit the kernel."""
    rank = len(kernel)
    if not rank:
        raise NotNormal("no spatial axes")
    for name in ("strides", "dilations"):
        site.attrs[name] = site.numbers(name) or (1,) * rank
        if len(site.numbers(name) or ()) != rank:
            raise NotNormal(f"{name} does not fit the kernel")


def _pads(site: Site, kernel: tuple[int, ...], ceil_mode: bool = False) -> None:
    """Puts explicit pads in place of auto_pad."""
    rank = len(kernel)
    mode = site.attrs.pop("auto_pad", "NOTSET")
    if mode == "NOTSET":
        site.attrs["pads"] = site.numbers("pads") or (0,) * (2 * rank)
    elif ceil_mode:
        raise NotNormal("auto_pad and ceil_mode together")
    elif mode == "VALID":
        site.attrs["pads"] = (0,) * (2 * rank)
    elif mode in ("SAME_UPPER", "SAME_LOWER"):
        strides, dilations = site.numbers("strides") or (), site.numbers("dilations") or ()
        begins, ends = [], []
        for axis in range(rank):
            size = site.dim(axis + 2)
            reach = (kernel[axis] - 1) * dilations[axis] + 1
            total = (-(-size // strides[axis]) - 1) * strides[axis] + reach - size
            if total < 0:
                raise NotNormal("auto_pad with strides that leave out places")
            less, more = total // 2, total - total // 2
            begins.append(less if mode == "SAME_UPPER" else more)
            ends.append(more if mode == "SAME_UPPER" else less)
        site.attrs["pads"] = (*begins, *ends)
    else:
        raise NotNormal(f"auto_pad {mode}")
    if len(site.numbers("pads") or ()) != 2 * rank:
        raise NotNormal("pads do not fit the kernel")


def _conv(site: Site) -> None:
    kernel = _kernel(site)
    _windows(site, kernel)
    _pads(site, kernel)
    if not site.given(2):
        zero_bias(site, site.dim(0, 1))


def _conv_transpose(site: Site) -> None:
    kernel = _kernel(site)
    _windows(site, kernel)
    rank = len(kernel)
    extra = site.numbers("output_padding") or (0,) * rank
    if len(extra) != rank:
        raise NotNormal("output_padding does not fit the kernel")
    site.attrs["output_padding"] = extra
    wanted = site.numbers("output_shape")
    mode = site.attrs.get("auto_pad", "NOTSET")
    if wanted or mode in ("SAME_UPPER", "SAME_LOWER"):
        if wanted and len(wanted) == rank + 2:
            wanted = wanted[2:]
        site.attrs["pads"] = _even_pads(site, kernel, extra, wanted)
    elif mode not in ("NOTSET", "VALID"):
        raise NotNormal(f"auto_pad {mode}")
    elif mode == "VALID":
        site.attrs["pads"] = (0,) * (2 * rank)
    else:
        site.attrs["pads"] = site.numbers("pads") or (0,) * (2 * rank)
    if len(site.numbers("pads") or ()) != 2 * rank:
        raise NotNormal("pads do not fit the kernel")
    if not site.given(2):
        zero_bias(site, site.dim(1, 1) * site.number("group"))


def _even_pads(
    site: Site, kernel: tuple[int, ...], extra: tuple[int, ...], wanted: tuple[int, ...] | None
) -> tuple[int, ...]:
    """Pads that make an output size; only where they are even: versions and runtimes differ on which side is longer."""
    strides, dilations = site.numbers("strides") or (), site.numbers("dilations") or ()
    halves = []
    for axis in range(len(kernel)):
        reach = (kernel[axis] - 1) * dilations[axis] + 1
        total = extra[axis] + reach - strides[axis]
        if wanted:
            if len(wanted) != len(kernel):
                raise NotNormal("output_shape does not fit the kernel")
            total += strides[axis] * site.dim(axis + 2) - wanted[axis]
        if total < 0 or total % 2:
            raise NotNormal("pads that an output size asks for are uneven")
        halves.append(total // 2)
    return (*halves, *halves)


def _pool(site: Site) -> None:
    kernel = site.numbers("kernel_shape")
    if not kernel:
        raise NotNormal("kernel_shape is not given")
    _windows(site, kernel)
    _pads(site, kernel, bool(site.attrs.get("ceil_mode")))
    site.attrs.setdefault("ceil_mode", 0)


SPECIAL: Mapping[str, Callable[[Site], None]] = {
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "AveragePool": _pool,
    "MaxPool": _pool,
    "LpPool": _pool,
}
"""How each of these operators comes into normal form."""
