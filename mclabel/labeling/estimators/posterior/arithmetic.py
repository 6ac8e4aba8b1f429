"""Arithmetic whose last bits do not depend on what else is in an array.

The matrix products of a BLAS round by the number of rows and by the CPU's kernels, and numpy's
`exp` and `log` by the vector instructions at hand. Here everything is built from additions,
multiplications and divisions of doubles, which IEEE 754 rounds in one way only, and sums run from
the first term to the last. Arrays have a batch as their last axis, each element of it a lane that
no operation mixes with others.

`np.einsum` alone could fuse a multiplication and an addition, which rounds once in place of twice:
in whole vectors and not in what is left at the end of a row, in theory. So batches are padded to
whole vectors, and lanes remain alike. numpy's own wheels for x86 do not fuse, so that there
numbers are the same on any CPU. On others, where it may, they are the same on one kind of machine.

`log` and `exp` are those of fdlibm (Sun Microsystems, 1993), which most C libraries descend from.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

LANES = 8
"""Batches are padded to a multiple of this number: the doubles of numpy's widest vectors."""

_einsum = getattr(np.einsum, "__wrapped__", np.einsum)
"""`einsum` without its search for other array types, which takes as long as a small sum."""

_LN2 = 0.6931471805599453
_LN2_HIGH, _LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
"""Together `_LN2`; the first ends in zeros, so that whole multiples of it are exact."""
_INVERSE_LN2 = 1.4426950408889634
_LOG_TERMS = (
    1.479819860511658591e-01,
    1.531383769920937332e-01,
    1.818357216161805012e-01,
    2.222219843214978396e-01,
    2.857142874366239149e-01,
    3.999999999940941908e-01,
    6.666666666666735130e-01,
)
_EXP_TERMS = (
    4.13813679705723846039e-08,
    -1.65339022054652515390e-06,
    6.61375632143793436117e-05,
    -2.77777777770155933842e-03,
    1.66666666666666019037e-01,
)
_MANTISSA_BITS, _EXPONENT_BIAS = 52, 1023
_BITS_OF_ROOT_HALF = 0x3FE6A09E667F3BCD
_EXPONENTS = (-708.0, 709.0)


def combine(weights: Floats, vectors: Floats, out: Floats | None = None) -> Floats:
    """Weighted sums of vectors, each added from the first term to the last.

    Args:
        weights: [k, j]
        vectors: [k, ..., batch]
        out: [j, ..., batch], where the sums are written.

    Returns:
        [j, ..., batch]
    """
    return np.asarray(_einsum("kj,k...->j...", weights, vectors, out=out))


def total(terms: Floats, axis: int = 0) -> Floats:
    """Sum over an axis, from the first term to the last.

    Args:
        terms: [..., batch], contiguous along the batch. (numpy adds in another order only along
            the axis that is contiguous.)
        axis: any but that of the batch.
    """
    return np.asarray(np.add.reduce(terms, axis=axis))


def log(x: Floats) -> Floats:
    """Natural logarithm, within a unit in the last place.

    Args:
        x: positive, finite, and not subnormal.
    """
    bits = np.ascontiguousarray(x).view(np.int64)
    power = bits - _BITS_OF_ROOT_HALF
    power >>= _MANTISSA_BITS
    logarithm = power.astype(np.float64)
    logarithm *= _LN2
    power <<= _MANTISSA_BITS
    np.subtract(bits, power, out=power)
    ratio = power.view(np.float64)  # of x and a power of two: in [sqrt(1/2), sqrt(2))
    square = ratio + 1.0
    ratio -= 1.0
    ratio /= square
    np.multiply(ratio, ratio, out=square)
    curve = square * _LOG_TERMS[0]
    for term in _LOG_TERMS[1:]:
        curve += term
        curve *= square
    curve += 2.0
    curve *= ratio
    logarithm += curve
    return logarithm.reshape(np.shape(x))


def exp(x: Floats) -> Floats:
    """Exponential, within a unit in the last place.

    Args:
        x: beyond the exponents of normal doubles, as the nearest that is not.
    """
    x = np.clip(x, *_EXPONENTS)
    power = np.rint(x * _INVERSE_LN2)
    rest = x - power * _LN2_HIGH
    rest -= power * _LN2_LOW
    square = rest * rest
    curve = square * _EXP_TERMS[0]
    for term in _EXP_TERMS[1:]:
        curve += term
        curve *= square
    curve = rest - curve
    mantissa = 1.0 - ((rest * curve) / (curve - 2.0) - rest)
    scale = (power.astype(np.int64) + _EXPONENT_BIAS) << _MANTISSA_BITS
    return np.asarray(mantissa * scale.view(np.float64))
