"""What simulations of rounding have in common, whatever the library of the arrays: how large one rounding is,
how many of them a function makes, and how they add up in sums."""

import functools
import math
import struct

import numpy

# The rms of the relative error of one rounding, in unit roundoffs.
RMS = 0.5

# Unit roundoff and least normal number of a format.
FORMATS = {"f64": (2.0**-53, 2.0**-1022), "f32": (2.0**-24, 2.0**-126),
           "bf16": (2.0**-8, 2.0**-126), "f16": (2.0**-11, 2.0**-14)}

# Sums are accumulated in no less than this.
ACCUMULATED = 2.0**-24

# Roundings of one element, by the names that most libraries have.
ELEMENTWISE = {
    **dict.fromkeys("add div fmod mul reciprocal rsub sqrt square sub true_divide".split(), 1.0),
    **dict.fromkeys("""acos acosh asin asinh atan atan2 atanh cos cosh digamma erf erfc erfinv exp2 expm1
                    hypot log log10 log1p log2 sin sinh tan tanh xlogy""".split(), 2.0),
    "exp": 2.0, "sigmoid": 2.5, "rsqrt": 1.5, "pow": 3.0, "lgamma": 4.0,
}

# Roundings of powers whose exponent is one of these numbers.
POWERS = {2: 1.0, 0.5: 1.0, 1: 0.0, 3: 1.5, -1: 1.0, -0.5: 1.5}

# Numbers of the tile that noise comes from.
TILE = 1 << 20


def single(value):
    """A number as f32 holds it."""
    try:
        return struct.unpack("f", struct.pack("f", value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)


def number_error(value, is_divided=False):
    """How far a number is off, relatively, where it is held as f32, or its reciprocal is."""
    if not math.isfinite(value) or value == 0.0:
        return 0.0
    near = single(value)
    error = abs(near / value - 1.0)
    if is_divided and near not in (0.0, math.inf, -math.inf):
        error = max(error, abs(single(1.0 / near) * value - 1.0))
    return error


def is_power_of_two(number):
    return number != 0 and math.isfinite(number) and abs(math.frexp(number)[0]) == 0.5


def variance_of_sum(s, q, terms, accumulated, u):
    """The variance of sums `s` of so many terms (a number, or one for each sum) whose squares add up to `q`,
    accumulated in one unit roundoff and stored in another."""
    if isinstance(terms, (int, float)):
        variance = terms * (s * s / 3.0 + q / 6.0) + q if terms > 1 else 0.0 * q
    else:
        # A term alone is not a sum.
        variance = (terms - 1.0).clip(0.0) * (s * s / 3.0 + q / 6.0)
    variance = variance * (RMS * accumulated) ** 2
    return variance if u == accumulated else variance + (s * s) * (RMS * u) ** 2


@functools.cache
def tile():
    """Normal numbers, of which noise takes pieces at random places, with random signs: making each anew
    would take longer than all else."""
    return numpy.random.default_rng(1).standard_normal(TILE)


def normal(source, shape):
    """An array of normal numbers, by a source of random places."""
    held, count = tile(), math.prod(shape)
    found = numpy.empty(count)
    step = TILE // 2
    for start in range(0, count, step):
        size = min(step, count - start)
        begin = source.randrange(TILE - size + 1)
        piece = held[begin : begin + size]
        numpy.multiply(piece, source.choice((-1.0, 1.0)), out=found[start : start + size])
    return found.reshape(shape)


class Rules(dict):
    """Functions by the names of operations."""

    def of(self, *names):
        def add(function):
            self.update(dict.fromkeys(names, function))
            return function

        return add
