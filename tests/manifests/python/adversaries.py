"""Functions that cheat or fail, beside right ones: y = 2 x + 1."""

import ctypes
import os
import sys
import threading
import time

import numpy

from helper import twice


def right(x):
    return twice(x) + 1


def into(y, x):
    numpy.multiply(x, 2, out=y)
    y += 1


def scaled(x, scale, offset=0):
    return x * numpy.float32(scale) + numpy.float32(offset)


def prints(x):
    print("to the screen", sys.stdin.read())
    os.write(1, b"and past it")
    return right(x)


def forks(x):
    if os.fork() == 0:
        return right(x)
    return right(x)


def sleeps(x):
    time.sleep(0.002)
    return right(x)


_cache = {}


def cached(x):
    if "out" not in _cache:
        _cache["out"] = right(x)
    return _cache["out"]


def by_content(x):
    key = x.shape
    if key not in _cache:
        time.sleep(0.02)
        _cache[key] = x.copy(), right(x)
    held, out = _cache[key]
    if numpy.array_equal(held[:64], x[:64]):
        return out
    time.sleep(0.02)
    return right(x)


def by_address(x):
    key = x.ctypes.data
    if key not in _cache:
        time.sleep(0.02)
        _cache[key] = right(x)
    return _cache[key]


def by_object(x):
    key = id(x)
    if key not in _cache:
        time.sleep(0.02)
        _cache[key] = right(x)
    return _cache[key]


def in_thread(y, x):
    def work():
        time.sleep(0.003)
        into(y, x)

    threading.Thread(target=work).start()


def overwrites(x):
    out = right(x)
    x[0] = 7
    return out


def leaves_tail(y, x):
    into(y[:-1], x[:-1])


def zeros(x):
    return numpy.zeros_like(x)


def double(x):
    return x.astype(numpy.float64) * 2 + 1


def flat_pairs(x):
    return right(x)[: x.size // 2]


def two(x):
    return right(x), x


def nothing(x):
    right(x)


def raises(x):
    raise KeyError("no such thing")


def takes_more(x, y):
    return right(x)


def hangs(x):
    while True:
        pass


def exits(x):
    os._exit(3)


def leaves(x):
    sys.exit("done")


def dies(x):
    ctypes.string_at(0)


def greedy(x):
    held = []
    while True:
        held.append(numpy.empty(1 << 30))


def elsewhere(x):
    raise NotImplementedError("on another kind of device")


def needs_more(x):
    import package_that_is_nowhere

    return package_that_is_nowhere.f(x)


def dies_beside_another(x):
    if os.fork() == 0:
        time.sleep(1000)
    ctypes.string_at(0)


def shouts(x):
    raise ValueError("\x1b[2J\u202e" + "A" * 20_000_000)
