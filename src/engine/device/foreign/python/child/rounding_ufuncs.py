"""Rounding of operations of NumPy, for the arrays of `rounding_numpy`. All take the evaluation, and plain
arrays in f64."""

import functools
import math

import numpy

from . import roundings
from .roundings import Rules

EXACT = set("""
abs absolute angle bitwise_and bitwise_not bitwise_or bitwise_xor ceil choose clip concatenate conj
conjugate copysign copyto diagonal empty_like equal fabs fix floor floor_divide fmax fmin fmod frexp
full_like gcd greater greater_equal heaviside imag invert isfinite isinf isnan isnat lcm ldexp left_shift
less less_equal logical_and logical_not logical_or logical_xor maximum minimum modf negative nextafter
not_equal ones_like partition positive putmask real repeat reshape right_shift rint searchsorted sign
signbit sort spacing take transpose trunc unique where zeros_like
""".split())

# Roundings of one element.
ELEMENTWISE = {
    **roundings.ELEMENTWISE,
    **dict.fromkeys("cbrt deg2rad degrees divide divmod multiply rad2deg radians remainder".split(), 1.0),
    **dict.fromkeys("""arccos arccosh arcsin arcsinh arctan arctan2 arctanh entr erfcinv erfcx gammaln kl_div
                    log_expit log_ndtr logaddexp logaddexp2 logit ndtr ndtri psi rel_entr xlog1py""".split(),
                    2.0),
    "subtract": 1.0,
    "expit": 2.5, "float_power": 3.0, "interp": 3.0, "power": 3.0, "gamma": 4.0, "loggamma": 4.0,
}

PRODUCTS = {"matmul", "matvec", "vecdot", "vecmat"}

# By the name of the method of a ufunc.
METHODS = Rules()

# Functions that are not ufuncs, nor composed of them.
FUNCTIONS = Rules()


def linear(mode, operation, terms, *operands):
    """A sum of so many products of elements of operands, by an operation that makes it of any."""
    s = operation(*operands)
    if not mode.is_noisy or numpy.asarray(s).dtype.char not in "dD":
        return s
    q = operation(*(numpy.square(numpy.abs(held)) for held in operands))
    return mode.summed(s, abs(q), float(terms))


@METHODS.of("__call__")
def call(mode, ufunc, args, named):
    """A ufunc of elements, or of small arrays where it has a signature."""
    name, operation = ufunc.__name__, functools.partial(ufunc, **named)
    if name in PRODUCTS:
        terms = args[1].shape[-2] if name == "vecmat" else args[0].shape[-1]
        return linear(mode, operation, terms, *args)
    if not mode.is_noisy or name in EXACT:
        return operation(*args)
    if ufunc.signature:
        return sensitive(mode, ufunc, args, named)
    numbers = [held for held in args if isinstance(held, (int, float))]
    if name in ("multiply", "divide") and any(map(roundings.is_power_of_two, numbers)):
        return operation(*args)
    if name in ("power", "float_power"):
        is_number = isinstance(args[1], (int, float))
        return mode.rounded(operation(*args), roundings.POWERS.get(args[1], 3.0) if is_number else 3.0)
    result = operation(*mode.numbers(args, name == "divide"))
    if name not in ELEMENTWISE:
        return mode.counted(name, result)
    count = ELEMENTWISE[name]
    if name in ("exp", "exp2", "expit"):
        # An honest exponential rounds its argument in another base.
        slope = args[0] * (1.0 - result if name == "expit" else math.log(2.0) ** (name == "exp2"))
        count = numpy.hypot(count, abs(numpy.where(numpy.isfinite(slope), slope, 0.0)))
    return mode.rounded(result, count)


def sensitive(mode, ufunc, args, named):
    """A decomposition or a transform: as far out as it is for arguments that are disturbed."""
    extents = [held.shape[-1] for held in args if isinstance(held, numpy.ndarray) and held.ndim]
    most = max([2, *extents])
    count = math.sqrt(math.log2(most) if "fft" in ufunc.__name__ else most)
    result = ufunc(*(mode.shaken(held, count) for held in args), **named)
    return mode.rounded(result)


@METHODS.of("outer")
def outer(mode, ufunc, args, named):
    return mode.rounded(ufunc.outer(*args, **named), rounds(ufunc))


def rounds(ufunc):
    return 0.0 if ufunc.__name__ in EXACT else ELEMENTWISE.get(ufunc.__name__, 1.0)


@METHODS.of("reduce")
def reduce(mode, ufunc, args, named):
    operation = functools.partial(ufunc.reduce, **named)
    if ufunc is numpy.add:
        result = operation(args[0])
        terms = numpy.size(args[0]) / max(1, numpy.size(result))
        return linear(mode, operation, terms, args[0])
    result = operation(*args)
    terms = numpy.size(args[0]) / max(1, numpy.size(result))
    return mode.rounded(result, rounds(ufunc) * math.sqrt(terms))


@METHODS.of("accumulate")
def accumulate(mode, ufunc, args, named):
    axis = named.get("axis", 0)
    result = ufunc.accumulate(*args, **named)
    if ufunc is numpy.add and mode.is_noisy and result.dtype.char in "dD":
        size = numpy.add.accumulate(numpy.square(abs(result)), axis=axis) ** 0.5
        found = mode.disturbed(result, size * (roundings.RMS * mode.accumulated))
        return found if mode.u == mode.accumulated else mode.rounded(found)
    if not mode.is_noisy or rounds(ufunc) == 0.0:
        return result
    steps = numpy.sqrt(numpy.arange(result.shape[axis], dtype=float))
    steps = steps.reshape([-1 if at == axis % result.ndim else 1 for at in range(result.ndim)])
    return mode.rounded(result, rounds(ufunc) * steps)


@METHODS.of("reduceat")
def reduceat(mode, ufunc, args, named):
    operation = functools.partial(ufunc.reduceat, indices=args[1], **named)
    s = operation(args[0])
    if ufunc is not numpy.add or not mode.is_noisy:
        return mode.rounded(s, rounds(ufunc))
    return mode.summed(s, operation(numpy.square(abs(args[0]))), operation(numpy.ones(args[0].shape)))


@METHODS.of("at")
def at(mode, ufunc, args, named):
    """What is done to elements at indices, as often as they are there."""
    target, indices, *values = args
    before = target.copy()
    ufunc.at(target, indices, *values)
    if ufunc not in (numpy.add, numpy.subtract) or not mode.is_noisy or target.dtype.char not in "dD":
        return
    q, terms = numpy.square(abs(before)), numpy.ones(target.shape)
    numpy.add.at(q, indices, numpy.square(numpy.abs(values[0])))
    numpy.add.at(terms, indices, 1.0)
    target[...] = mode.summed(target, q, terms)


@FUNCTIONS.of("dot", "inner", "vdot")
def dot(mode, func, a, b):
    if numpy.ndim(a) == 0 or numpy.ndim(b) == 0:
        return mode.rounded(func(a, b))
    a, b = numpy.asarray(a), numpy.asarray(b)
    return linear(mode, func, a.size if func.__name__ == "vdot" else a.shape[-1], a, b)


@FUNCTIONS.of("convolve", "correlate")
def convolve(mode, func, a, v, *args, **named):
    return linear(mode, lambda a, v: func(a, v, *args, **named), min(numpy.size(a), numpy.size(v)), a, v)


@FUNCTIONS.of("bincount")
def bincount(mode, func, x, weights=None, minlength=0):
    s = func(x, weights, minlength)
    if weights is None or not mode.is_noisy:
        return s
    return mode.summed(s, func(x, numpy.square(weights), minlength), func(x, None, minlength) * 1.0)


@FUNCTIONS.of("interp")
def interp(mode, func, *args, **named):
    return mode.rounded(func(*args, **named), ELEMENTWISE["interp"])


@FUNCTIONS.of("einsum")
def einsum(mode, func, *args, **named):
    """By the extents of the axes that are summed: of several operands, those are sums of pairs."""
    given, kept, operands = func._implementation.__globals__["_parse_einsum_input"](args)
    text, extents = f"{given}->{kept}", {}
    for names, held in zip(given.split(","), operands):
        for name, extent in zip(names, numpy.shape(held)):
            extents[name] = max(extent, extents.get(name, 1))
    summed = [extent for name, extent in extents.items() if name not in kept]
    terms = math.prod(summed) if len(operands) < 3 else max(1, sum(summed))
    result = linear(mode, lambda *held: func(text, *held, **named), terms, *operands)
    return result if terms > 1 else mode.rounded(result, math.sqrt(len(operands) - 1))
