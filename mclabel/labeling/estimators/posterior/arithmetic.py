"""Arithmetic that gives each element of a batch the same bits whatever else the batch contains.

Rounding errors of a BLAS matrix product depend on the number of rows and on the CPU, and those of
numpy's `exp` and `log` on the CPU's vector instructions. This module uses only additions,
multiplications and divisions of doubles, whose rounding IEEE 754 fixes, and adds the terms of a sum
from the first to the last. The last axis of every array is the batch. Its elements are called
lanes, and no operation mixes lanes.

Only `np.einsum` could fuse a multiplication and an addition, which rounds once instead of twice. In
theory it could do so in full vectors but not in the remainder of a row, and lanes would differ. So
batches are padded to full vectors. numpy's wheels for x86 do not fuse, so results are the same on
any x86 CPU. On other architectures, results are the same on machines of one kind.

`log` and `exp` follow fdlibm (Sun Microsystems, 1993), on which most C libraries are based.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

LANES = 8
"""Batches are padded to a multiple of this number of lanes, the width of numpy's widest vectors in
doubles."""

_einsum = getattr(np.einsum, "__wrapped__", np.einsum)
"""`einsum` without numpy's dispatch to other array types, which takes as long as a small sum."""

_LN2 = 0.6931471805599453
_LN2_HIGH, _LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
"""Two numbers whose sum is ln 2. The first ends in zero bits, so its products with small integers
are exact."""
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


def weighted_sums(weights: Floats, vectors: Floats, out: Floats | None = None) -> Floats:
    """Return weighted sums of vectors over k, each added from the first term to the last.

    Args:
        weights: [k, j], the weight of vector k in sum j.
        vectors: [k, ..., batch], the vectors to add.
        out: [j, ..., batch], the array to write the sums to; None makes a new one.

    Returns:
        [j, ..., batch]
    """
    return np.asarray(_einsum("kj,k...->j...", weights, vectors, out=out))


def sum_in_order(terms: Floats, axis: int = 0) -> Floats:
    """Return the sum over an axis, added from the first term to the last.

    Args:
        terms: [..., batch], contiguous along the batch. numpy adds in another order only along
            the contiguous axis.
        axis: any axis except the batch.
    """
    return np.asarray(np.add.reduce(terms, axis=axis))


def log(x: Floats) -> Floats:
    """Return the natural logarithm, with an error below one unit in the last place.

    Args:
        x: positive and finite doubles that are not subnormal.
    """
    bits = np.ascontiguousarray(x).view(np.int64)
    power = bits - _BITS_OF_ROOT_HALF
    power >>= _MANTISSA_BITS
    logarithm = power.astype(np.float64)
    logarithm *= _LN2
    power <<= _MANTISSA_BITS
    np.subtract(bits, power, out=power)
    ratio = power.view(np.float64)  # x divided by a power of two, in [sqrt(1/2), sqrt(2))
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
    """Return the exponential, with an error below one unit in the last place.

    Args:
        x: any doubles; they are clipped to [-708, 709], where results are normal doubles.
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
