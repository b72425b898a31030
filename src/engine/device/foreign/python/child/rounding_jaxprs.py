"""Primitives of JAX that sum, and those that contain jaxprs, for the evaluation of `rounding_jax`."""

import math

import numpy
from jax import lax
from jax import numpy as jnp

from .roundings import ACCUMULATED, RMS, TILE, Rules

# They take the evaluation, the primitive itself, its parameters and its arguments.
SUMS = Rules()

# They take the evaluation, parameters and arguments.
CONTROL = Rules()


def mixed(key):
    """A hash of numbers of 64 bits (splitmix64)."""
    key = key * jnp.uint64(0x9E3779B97F4A7C15) + jnp.uint64(0x632BE59BD9B4E019)
    key = (key ^ (key >> jnp.uint64(30))) * jnp.uint64(0xBF58476D1CE4E5B9)
    key = (key ^ (key >> jnp.uint64(27))) * jnp.uint64(0x94D049BB133111EB)
    return key ^ (key >> jnp.uint64(31))


class Draws:
    """Random numbers that follow from a key, all of which are made at once."""

    COUNT = 256

    def __init__(self, key):
        self.key, self.used = key, self.COUNT
        self.places = self.signs = self.keys = None

    def next(self):
        """A place in the first half of the tile, a sign, and a key of other draws."""
        if self.used == self.COUNT:
            self.key, self.used = mixed(self.key), 0
            self.keys = mixed(self.key + jnp.arange(self.COUNT, dtype=jnp.uint64))
            self.places = (self.keys % jnp.uint64(TILE // 2)).astype(jnp.int32)
            self.signs = jnp.where(self.keys >> jnp.uint64(63), 1.0, -1.0)
        at = self.used
        self.used += 1
        return self.places[at], self.signs[at], self.keys[at]

    def many(self, count):
        """Keys of other draws; without a key there is none to draw by."""
        if self.key is None:
            return jnp.zeros(count, jnp.uint64)
        return mixed(self.next()[2] + jnp.arange(count, dtype=jnp.uint64))


def is_real(held):
    """Whether a value has noise; keys of random numbers have types of their own."""
    return isinstance(held.dtype, numpy.dtype) and held.dtype.char in "dD"


def linear(places, terms):
    """The rule of a primitive that adds up products of the arguments at these places. The number of terms
    is that of parameters, arguments and result; where it is None, the primitive counts them by itself."""
    def apply(mode, operation, params, *args):
        def with_each(change):
            return operation(*(change(held) if at in places else held for at, held in enumerate(args)))

        s = operation(*args)
        if mode.tile is None or not is_real(s):
            return s
        q = abs(with_each(lambda held: jnp.square(abs(held)).astype(held.dtype)))
        count = with_each(jnp.ones_like).real if terms is None else float(terms(params, args, s))
        return mode.summed(s, q, count)

    return apply


def of_sizes(params, args, s):
    return args[0].size / max(1, s.size)


def of_product(params, args, s):
    return math.prod(args[0].shape[axis] for axis in params["dimension_numbers"][0][0])


def of_convolution(params, args, s):
    taps = args[1].size // max(1, args[1].shape[params["dimension_numbers"].rhs_spec[0]])
    return max(1, taps // math.prod(params["lhs_dilation"]))


SUMS.update({
    "reduce_sum": linear((0,), of_sizes),
    "dot_general": linear((0, 1), of_product),
    "conv_general_dilated": linear((0, 1), of_convolution),
    "reduce_window_sum": linear((0,), lambda params, args, s: math.prod(params["window_dimensions"])),
    "select_and_scatter_add": linear((0,), None),
})


@SUMS.of("scatter-add", "scatter_add")
def scatter_add(mode, operation, params, *args):
    """Through the function of the library: the primitive has a jaxpr for elements of another type."""
    names = ("dimension_numbers", "indices_are_sorted", "unique_indices", "mode")
    named = {name: params[name] for name in names}
    return linear((0, 2), None)(mode, lambda *held: lax.scatter_add(*held, **named), params, *args)


@SUMS.of("cumsum")
def cumsum(mode, operation, params, x):
    s = operation(x)
    if mode.tile is None or not is_real(s):
        return s
    size = operation(jnp.square(abs(s)).astype(s.dtype)).real ** 0.5
    found = mode.disturbed(s, size * (RMS * mode.accumulated))
    return found if mode.u <= ACCUMULATED else mode.rounded(found)


@SUMS.of("cumprod", "cumlogsumexp")
def cumulated(mode, operation, params, x):
    axis = params["axis"]
    steps = jnp.sqrt(jnp.arange(x.shape[axis], dtype=float))
    steps = steps[::-1] if params["reverse"] else steps
    return mode.rounded(operation(x), steps.reshape([-1 if at == axis else 1 for at in range(x.ndim)]))


@SUMS.of("reduce_prod")
def reduce_prod(mode, operation, params, x):
    s = operation(x)
    return mode.rounded(s, math.sqrt(of_sizes(params, (x,), s)))


@CONTROL.of("scan")
def scan(mode, params, args):
    consts, rest = args[: params["num_consts"]], args[params["num_consts"] :]
    count = params["num_carry"]

    def step(carry, held):
        found = mode.closed(params["jaxpr"], [*consts, *carry, *held[1]], Draws(held[0]))
        return found[:count], found[count:]

    keys = mode.draws.many(params["length"])
    carry, found = lax.scan(step, rest[:count], (keys, rest[count:]), params["length"], params["reverse"])
    return [*carry, *found]


@CONTROL.of("while")
def loop(mode, params, args):
    of_cond, of_body = params["cond_nconsts"], params["body_nconsts"]
    for_cond, for_body, start = args[:of_cond], args[of_cond : of_cond + of_body], args[of_cond + of_body :]

    def is_on(held):
        return mode.closed(params["cond_jaxpr"], [*for_cond, *held[1]], Draws(held[0] + jnp.uint64(1)))[0]

    def step(held):
        return mixed(held[0]), mode.closed(params["body_jaxpr"], [*for_body, *held[1]], Draws(held[0]))

    return lax.while_loop(is_on, step, (mode.draws.many(1)[0], start))[1]


@CONTROL.of("cond")
def cond(mode, params, args):
    key = mode.draws.many(1)[0]

    def branch(held):
        return lambda *values: mode.closed(held, values, Draws(key))

    return lax.switch(args[0], [branch(held) for held in params["branches"]], *args[1:])


@CONTROL.of("custom_linear_solve")
def solve(mode, params, args):
    """By the jaxpr that solves; others are for derivatives."""
    lengths = params["const_lengths"]
    before = lengths.matvec + lengths.vecmat
    known, values = args[before : before + lengths.solve], args[sum(lengths) :]
    return mode.closed(params["jaxprs"].solve, [*known, *values])
