"""Functions of JAX, right ones beside those that fail or cheat: y = 2 x + 1."""

import time

import jax
import jax.numpy as jnp
import numpy


@jax.jit
def jitted(x):
    return 2 * x + 1


def plain(x):
    return jnp.add(jnp.multiply(x, 2), 1)


def makes(x):
    """Of f64, if types of 64 bits are on."""
    return jnp.zeros(x.shape) + jitted(x)


@jax.jit
def heavy(x):
    held = jnp.outer(x, x) * 1e-3
    for _ in range(3):
        held = jnp.sin(held @ held) * 1e-3
    return x * 2 + 1, held


def waits(x):
    return jax.block_until_ready(heavy(x))[0]


def dispatches(x):
    y, held = heavy(x)
    return y, {"deep": [held]}


def sleeps(x):
    time.sleep(0.002)
    return jitted(x)


donating = jax.jit(lambda x: 2 * x + 1, donate_argnums=0)


def donates(x):
    return donating(x)


def host(x):
    return numpy.asarray(x) * 2 + 1


def half(x):
    return jitted(x).astype(jnp.float16)


def flat_pairs(x):
    return jitted(x)[: x.size // 2]


def off(x):
    return jitted(x) + 1


@jax.jit
def branches(x):
    return x if x.sum() > 0 else 2 * x + 1


def greedy(x):
    return jnp.zeros(1 << 45, jnp.int8)[: x.size] + x


def elsewhere(x):
    return jax.device_put(x, jax.devices("tpu")[0])


_known = {}


def cached(x):
    if "y" not in _known:
        _known["y"] = jitted(x)
    return _known["y"]


def by_object(x):
    if id(x) not in _known:
        time.sleep(0.02)
        _known[id(x)] = jitted(x)
    return _known[id(x)]


def into(y, x):
    return jitted(x)


def same(x, dtype):
    if x.dtype.name != dtype:
        raise TypeError(f"{x.dtype} is not {dtype}")
    return jnp.flip(jnp.flip(x))


@jax.jit
def softmax(x):
    return jax.nn.softmax(x, axis=-1)


@jax.jit
def softmax_backward(x, grad_out):
    return jax.vjp(softmax, x)[1](grad_out)[0]


@jax.jit
def softmax_both(x, grad_out):
    out, backward = jax.vjp(softmax, x)
    return out, *backward(grad_out)


@jax.jit
def product(x, *factors):
    for factor in factors:
        x = x @ factor
    return x
