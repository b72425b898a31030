"""What rounding does to the results of a function of JAX: its jaxpr is evaluated in f64, and the result of
each primitive is disturbed as rounding to another format would.

The evaluation is itself a function of JAX, which is compiled once for all evaluations with noise. So the
places of noise in a tile of normal numbers are drawn from a key: numbers of 64 bits, and a hash of them.
"""

import math

import jax
import numpy
from jax import lax
from jax import numpy as jnp

from . import roundings
from .rounding_jaxprs import CONTROL, SUMS, Draws, is_real
from .roundings import RMS

EXACT = set("""
abs and argmax argmin argsort bitcast_convert_type broadcast broadcast_in_dim ceil clamp clz complex
concatenate conj convert_element_type copy copy_p copysign cummax cummin device_put dynamic_slice
dynamic_update_slice empty eq eq_to expand_dims floor ge gather gt imag iota is_finite le le_to lt lt_to max
min ne neg nextafter not optimization_barrier or pad population_count pvary random_bits random_fold_in
random_seed random_split random_unwrap random_wrap real reduce_and reduce_max reduce_min reduce_or
reduce_precision reduce_window_max reduce_window_min reduce_xor rem reshape rev round scatter scatter-max
scatter-min select_and_gather_add select_n shift_left shift_right_arithmetic shift_right_logical sign slice
sort split squeeze stack stop_gradient threefry2x32 top_k transpose xor
""".split())

# Roundings of one element.
ELEMENTWISE = {
    **roundings.ELEMENTWISE,
    **dict.fromkeys("add_any cbrt".split(), 1.0),
    **dict.fromkeys("bessel_i0e bessel_i1e erf_inv".split(), 2.0),
    "logistic": 2.5, "igamma": 4.0, "igammac": 4.0, "regularized_incomplete_beta": 4.0, "polygamma": 4.0,
}

# As far out as for arguments that are disturbed.
DECOMPOSITIONS = set("""cholesky eig eigh fft householder_product lu qr geqrf schur svd triangular_solve
tridiagonal tridiagonal_solve hessenberg""".split())

# Names of parameters that are the one jaxpr of a primitive, and such primitives.
CALLED = {"jaxpr", "call_jaxpr", "fun_jaxpr"}
CALLS = set("""checkpoint closed_call core_call core_closed_call custom_jvp_call custom_vjp_call
custom_vjp_call_jaxpr jit pjit remat remat2""".split())

# Types that stand for others.
WIDENED = {numpy.dtype(held): numpy.dtype("f8") for held in (jnp.float32, jnp.bfloat16, jnp.float16)}
WIDENED[numpy.dtype("c8")] = numpy.dtype("c16")


class Rounding:
    """Evaluates jaxprs: with noise, if there is a tile."""

    def __init__(self, dtype, unknown=None, tile=None, key=None):
        self.u, self.least = roundings.FORMATS[dtype]
        self.accumulated = min(self.u, roundings.ACCUMULATED)
        self.unknown = {} if unknown is None else unknown
        self.tile, self.draws = tile, Draws(key)
        # What the function asks for in these is evaluated in f64, unless that is what it is judged in.
        self.is_wide = self.u < roundings.ACCUMULATED
        self.widened = {} if self.is_wide else WIDENED

    def wide(self, held):
        """A value as it is evaluated."""
        dtype = self.widened.get(numpy.dtype(held.dtype)) if isinstance(held.dtype, numpy.dtype) else None
        return held if dtype is None else lax.convert_element_type(held, dtype)

    def param(self, held):
        """A parameter of a primitive, which may be a type."""
        return self.widened.get(held, held) if isinstance(held, numpy.dtype) else held

    def evaluate(self, jaxpr, consts, args, draws=None):
        """The results of a jaxpr."""
        before, self.draws = self.draws, draws or self.draws
        values = dict(zip(jaxpr.constvars, map(self.wide, consts)))
        values.update(zip(jaxpr.invars, args))

        def read(atom):
            return self.wide(jnp.asarray(atom.val, atom.aval.dtype)) if hasattr(atom, "val") else values[atom]

        for eqn in jaxpr.eqns:
            found = self.equation(eqn, [read(atom) for atom in eqn.invars])
            values.update(zip(eqn.outvars, map(self.wide, found)))
        found = [read(atom) for atom in jaxpr.outvars]
        self.draws = before
        return found

    def closed(self, held, args, draws=None):
        consts, jaxpr = (held.consts, held.jaxpr) if hasattr(held, "consts") else ((), held)
        return self.evaluate(jaxpr, consts, args, draws)

    def equation(self, eqn, args):
        name, params = eqn.primitive.name, eqn.params
        if name in CONTROL:
            return CONTROL[name](self, params, args)
        if name in CALLS:
            return self.closed(next(params[key] for key in params if key in CALLED), args)
        if name in SUMS:
            return [SUMS[name](self, lambda *held: self.bound(eqn, held)[0], params, *args)]
        if self.tile is None or name in EXACT:
            return self.bound(eqn, args)
        if name in DECOMPOSITIONS:
            most = max([2, *(extent for held in args for extent in held.shape[-2:])])
            count = math.sqrt(math.log2(most) if name == "fft" else most)
            args = [self.shaken(held, count) for held in args]
            return [self.rounded(held) for held in self.bound(eqn, args)]
        literals = [atom for atom in eqn.invars if hasattr(atom, "val")]
        numbers = [float(atom.val) for atom in literals if atom.aval.dtype.kind == "f"]
        if name in ("mul", "div") and any(map(roundings.is_power_of_two, numbers)):
            return self.bound(eqn, args)
        count = ELEMENTWISE.get(name, 1.0)
        if name in ("integer_pow", "pow"):
            exponent = params.get("y", numbers[0] if numbers and hasattr(eqn.invars[-1], "val") else None)
            count = roundings.POWERS.get(exponent, 3.0)
        else:
            args = [self.number(atom, held, name == "div") for atom, held in zip(eqn.invars, args)]
        found = self.bound(eqn, args)
        if name not in ELEMENTWISE and name != "integer_pow" and any(map(is_real, found)):
            self.unknown[name] = self.unknown.get(name, 0) + 1
        if name in ("exp", "exp2", "logistic"):
            # An honest exponential rounds its argument in another base.
            slope = args[0] * (1.0 - found[0] if name == "logistic" else math.log(2.0) ** (name == "exp2"))
            count = jnp.hypot(count, jnp.where(jnp.isfinite(slope), abs(slope), 0.0))
        return [self.rounded(held, count) for held in found]

    def bound(self, eqn, args):
        """The results of a primitive itself."""
        if eqn.primitive.name == "bitcast_convert_type":
            # Bits are those of the type that it was given.
            args = [lax.convert_element_type(args[0], eqn.invars[0].aval.dtype)]
            return eqn.primitive.bind(*args, **eqn.params),
        params = {name: self.param(held) for name, held in eqn.params.items()}
        # Of versions before 0.10 they are a pair, whose first has functions.
        params = eqn.primitive.get_bind_params(params)
        functions, params = params if isinstance(params, tuple) else ((), params)
        found = eqn.primitive.bind(*functions, *args, **params)
        return found if eqn.primitive.multiple_results else [found]

    def number(self, atom, held, is_divided):
        """A number of the function's text, which is off as f32 holds it, everywhere alike."""
        if self.is_wide or not hasattr(atom, "val") or atom.aval.dtype.kind != "f":
            return held
        error = roundings.number_error(float(atom.val), is_divided)
        return held * (1.0 + error * self.draws.next()[1]) if error else held

    def normal(self, shape):
        count, step, pieces = math.prod(shape), roundings.TILE // 2, []
        for start in range(0, count, step):
            begin, sign, _ = self.draws.next()
            pieces.append(lax.dynamic_slice(self.tile, (begin,), (min(step, count - start),)) * sign)
        return jnp.concatenate(pieces).reshape(shape) if pieces else jnp.zeros(shape)

    def disturbed(self, out, deviation):
        noise = self.normal(out.shape)
        if out.dtype.kind == "c":
            noise = (noise + 1j * self.normal(out.shape)) * math.sqrt(0.5)
        return out + jnp.where(jnp.isfinite(deviation), deviation, 0.0) * noise

    def rounded(self, out, count=1.0):
        """A value with the noise of so many roundings (a number, or one for each) where it has any."""
        is_still = self.tile is None or not is_real(out)
        return out if is_still else self.shaken(out, count * self.is_inexact(out))

    def shaken(self, out, count):
        """A value with noise, whatever its digits."""
        if self.tile is None or not is_real(out):
            return out
        size = abs(out)
        if self.least > 1e-30:
            # Numbers of f16 are often less than normal ones.
            size = jnp.maximum(size, self.least) * (size != 0)
        return self.disturbed(out, size * (RMS * self.u * count))

    def summed(self, s, q, terms):
        """Sums of so many terms, whose squares add up to `q`, with noise."""
        variance = roundings.variance_of_sum(abs(s), q, terms, self.accumulated, self.u)
        return self.disturbed(s, variance**0.5 * (self.is_inexact(s) | self.is_inexact(q)))

    def is_inexact(self, held):
        """Whether numbers have digits that the format does not hold; such as it does, small whole ones above
        all, are not rounded."""
        if self.is_wide or held.dtype.kind == "c":
            return True
        return lax.reduce_precision(held, 11, round(-math.log2(self.u)) - 1) != held


def compiled(function, given, dtype):
    """A function that evaluates another of a tree of arrays, with noise if it gets a seed and a dictionary of
    operations without a model."""
    closed = jax.make_jaxpr(function)(given)
    evaluators = {}

    def evaluate(given, seed=None, unknown=None):
        def traced(consts, leaves, tile, key):
            mode = Rounding(dtype, unknown, tile, key)
            return mode.evaluate(closed.jaxpr, consts, map(mode.wide, leaves))

        is_noisy = seed is not None
        if is_noisy not in evaluators:
            evaluators[is_noisy] = jax.jit(traced)
        noise = (roundings.tile(), numpy.uint64(seed)) if is_noisy else (None, None)
        return evaluators[is_noisy](closed.consts, jax.tree_util.tree_leaves(given), *noise)

    return evaluate
