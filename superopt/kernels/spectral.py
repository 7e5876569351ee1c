"""Kernels of spectra."""

from __future__ import annotations

import numpy as np

from superopt.kernels.algebra import Algebra, Array, NotInRing
from superopt.kernels.registry import Args, given, integer, kernel
from superopt.terms import Attrs


@kernel("STFT")
def _stft(algebra: Algebra, attrs: Attrs, args: Args) -> Array:
    """Discrete Fourier transforms of frames [batch, frames, bins, (real, imaginary)]; one-sided spectra are of real
    signals."""
    if algebra.exact:
        raise NotInRing("STFT")
    signal = given("STFT", args, 0)
    length, step = integer(attrs, "frame_length"), integer(attrs, "frame_step")
    if signal.ndim == 3:
        signal = signal[..., 0] if signal.shape[2] == 1 else signal[..., 0] + 1j * signal[..., 1]
    frames = np.lib.stride_tricks.sliding_window_view(signal, length, axis=1)[:, ::step]
    window = args[1] if len(args) > 1 else None
    frames = frames if window is None else frames * window
    spectra = np.fft.fft(frames, axis=-1)
    if integer(attrs, "onesided"):
        spectra = spectra[..., : length // 2 + 1]
    return np.stack((spectra.real, spectra.imag), axis=-1)
