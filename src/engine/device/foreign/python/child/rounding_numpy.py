"""What rounding does to the results of a function of NumPy: it is evaluated in f64 on arrays of a class of
their own, whose operations are disturbed as rounding to another format would.

Functions of NumPy that are composed of ufuncs follow by themselves, once their arrays stay of the class: so
functions that make arrays are replaced, in all modules that hold them, while an evaluation goes on.
"""

import contextlib
import math
import random
import sys

import numpy
from numpy import array, asarray, ndarray

from . import roundings
from .rounding_ufuncs import EXACT, FUNCTIONS, METHODS, PRODUCTS
from .roundings import RMS

# Functions that make plain arrays.
MAKERS = """array asanyarray asarray ascontiguousarray asfortranarray arange empty eye fromiter full identity
linspace ones tri zeros""".split()

# Types that stand for others while a function is evaluated in f64.
F32 = {numpy.dtype("f4"): numpy.dtype("f8"), numpy.dtype("c8"): numpy.dtype("c16")}
F16 = {numpy.dtype("f2"): numpy.dtype("f8")}


class Rounding:
    """One evaluation, as a context: with noise if there is a seed."""

    now = None

    def __init__(self, dtype, seed=None, unknown=None):
        self.u, self.least = roundings.FORMATS[dtype]
        self.accumulated = min(self.u, roundings.ACCUMULATED)
        self.is_noisy = seed is not None
        self.random = random.Random(seed)
        # How often each operation was met that has no model.
        self.unknown = {} if unknown is None else unknown
        # A function whose format is less exact means f32 by f32 as well, and its numbers are held so.
        self.is_wide = self.u < roundings.ACCUMULATED
        self.widened = {} if self.is_wide else {**F32, **F16} if dtype == "f16" else F32
        # Within an operation arrays are as they were made.
        self.is_inside = False
        self.replaced = []

    def __enter__(self):
        Rounding.now = self
        makers = {id(held): maker(held) for held in (getattr(numpy, name) for name in MAKERS)}
        for module in [held for name, held in sys.modules.items() if not name.startswith(__package__)]:
            names = getattr(module, "__dict__", None) or {}
            for name, held in list(names.items()):
                if id(held) in makers:
                    self.replaced.append((names, name, held))
                    names[name] = makers[id(held)]
        return self

    def __exit__(self, *error):
        for names, name, held in self.replaced:
            names[name] = held
        self.replaced.clear()
        Rounding.now = None

    def raw(self, function, *args, **named):
        """The result of an operation on plain arrays, inside of which nothing is disturbed."""
        before, self.is_inside = self.is_inside, True
        try:
            return function(*args, **named)
        finally:
            self.is_inside = before

    def dtype(self, held):
        """The type that stands for one that is asked for, or an argument that is none."""
        if isinstance(held, (type, numpy.dtype)) or isinstance(held, str) and held != "F":
            # That letter is an order of axes as well.
            with contextlib.suppress(TypeError):
                return self.widened.get(numpy.dtype(held), held)
        return held

    def types(self, named):
        return {**named, "dtype": self.dtype(named["dtype"])} if "dtype" in named else named

    def plain(self, held):
        """An argument without the class, in f64 where it is real."""
        if type(held) in (tuple, list):
            return type(held)(map(self.plain, held))
        if not isinstance(held, (ndarray, numpy.generic)):
            return held
        found = held.view(ndarray) if isinstance(held, ndarray) else held
        return found.astype(self.widened[found.dtype]) if found.dtype in self.widened else found

    def wrapped(self, held):
        """A result as arrays of the class; whole numbers are those of NumPy."""
        if type(held) in (tuple, list):
            return type(held)(map(self.wrapped, held))
        if not isinstance(held, (ndarray, numpy.generic)) or isinstance(held, Rounded):
            return held
        if held.ndim == 0 and held.dtype.kind not in "fc":
            return held[()]
        return asarray(self.plain(held)).view(Rounded if held.ndim else Number)

    def disturbed(self, out, deviation):
        """Results with noise of a deviation for each, where that is finite."""
        noise = roundings.normal(self.random, out.shape)
        if out.dtype.kind == "c":
            noise = (noise + 1j * roundings.normal(self.random, out.shape)) * math.sqrt(0.5)
        return out + numpy.where(numpy.isfinite(deviation), deviation, 0.0) * noise

    def rounded(self, out, count=1.0):
        """Results with the noise of so many roundings (a number, or one for each) where they have any."""
        if type(out) is tuple:
            return tuple(self.rounded(one, count) for one in out)
        return self.shaken(out, count * self.is_inexact(out)) if self.is_noisy and is_real(out) else out

    def shaken(self, out, count):
        """Numbers with noise, whatever their digits."""
        if not self.is_noisy or not is_real(out):
            return out
        out = asarray(out)
        size = abs(out)
        if self.least > 1e-30:
            # Numbers of f16 are often less than normal ones.
            size = numpy.maximum(size, self.least) * (size != 0)
        return self.disturbed(out, size * (RMS * self.u * count))

    def is_inexact(self, held):
        """Whether numbers have digits that the format does not hold; such as it does, small whole ones above
        all, are not rounded."""
        if self.is_wide or held.dtype.kind == "c":
            return True
        with numpy.errstate(all="ignore"):
            # The leading digits, by a number that takes the others.
            shifted = held * (self.u * 2.0**53 + 1.0)
            return shifted - (shifted - held) != held

    def summed(self, s, q, terms):
        """Sums of so many terms, whose squares add up to `q`, with noise."""
        if not self.is_noisy or not is_real(s):
            return s
        s = asarray(s)
        variance = roundings.variance_of_sum(abs(s), q, terms, self.accumulated, self.u)
        return self.disturbed(s, variance**0.5 * (self.is_inexact(s) | self.is_inexact(q)))

    def numbers(self, args, is_divided=False):
        """Arguments whose numbers are off as f32 holds them, all in one direction: everywhere alike."""
        def one(held):
            error = roundings.number_error(held, is_divided) if isinstance(held, float) else 0.0
            return held * (1.0 + self.random.choice((-error, error))) if error else held

        return list(args) if self.is_wide or not self.is_noisy else [one(held) for held in args]

    def counted(self, name, result):
        """The result of an operation that has no model, each element with the noise of one rounding."""
        held = result[0] if type(result) in (tuple, list) and result else result
        if self.is_noisy and is_real(held):
            self.unknown[name] = self.unknown.get(name, 0) + 1
        return self.rounded(result)


def is_real(held):
    return isinstance(held, (ndarray, numpy.generic)) and held.dtype.char in "dD"


def is_text(held):
    """Whether numbers stand in the text of a function."""
    return type(held) is float or type(held) in (list, tuple) and all(map(is_text, held))


def maker(function):
    """A function that makes arrays, as it is while an evaluation goes on."""
    def make(*args, **named):
        mode = Rounding.now
        if mode is None or mode.is_inside:
            return function(*args, **named)
        found = function(*args[:1], *map(mode.dtype, args[1:]), **mode.types(named))
        is_held = mode.is_wide or not mode.is_noisy or found.dtype != numpy.float64
        if args and not is_held and is_text(args[0]):
            # Its own program holds them in f32.
            error = found.astype(numpy.float32) - found
            found = found + numpy.where(numpy.isfinite(error), error, 0.0) * mode.random.choice((-1.0, 1.0))
        return found if isinstance(found, Rounded) else asarray(found).view(Rounded)

    return make


class Rounded(ndarray):
    """An array whose operations are those of the evaluation that goes on."""

    def __array_ufunc__(self, ufunc, method, *args, out=None, where=True, subok=True, **named):
        mode = Rounding.now or Rounding("f64")
        target = args[0].view(ndarray) if method == "at" else None
        args, where, named = mode.plain(args), mode.plain(where), mode.types(named)
        args = args if target is None else (target, *args[1:])
        if where is not True and method != "__call__":
            named["where"], where = where, True
        if out is not None and ufunc.signature and ufunc.__name__ not in PRODUCTS:
            # The extents of some results are known by these alone.
            named["out"] = tuple(mode.plain(out))
        result = mode.raw(METHODS[method], mode, ufunc, args, named)
        return mode.wrapped(result) if out is None else stored(mode, result, out, where)

    def __array_function__(self, func, types, args, kwargs):
        mode, name = Rounding.now or Rounding("f64"), func.__name__
        args = tuple(mode.dtype(held) if isinstance(held, (type, numpy.dtype)) else held for held in args)
        kwargs = mode.types(kwargs)
        if name in FUNCTIONS:
            named = {key: mode.plain(held) for key, held in kwargs.items()}
            out = named.pop("out", None)
            result = mode.raw(FUNCTIONS[name], mode, func, *mode.plain(args), **named)
            return mode.wrapped(result) if out is None else stored(mode, result, (kwargs["out"],), True)
        result = super().__array_function__(func, types, args, kwargs)
        is_lost = is_real(result) and not isinstance(result, Rounded)
        return mode.wrapped(mode.counted(name, result) if is_lost and name not in EXACT else result)

    def __getitem__(self, index):
        found = super().__getitem__(index)
        return array(found).view(Number) if isinstance(found, numpy.inexact) else found

    def astype(self, dtype, *args, **named):
        mode = Rounding.now
        return super().astype(mode.dtype(dtype) if mode else dtype, *args, **named)

    def dot(self, other, out=None):
        return numpy.dot(self, other, out=out)


class Number(Rounded):
    """A number. Operators in place make another, as they do for numbers of NumPy."""


def operator(name):
    in_place, other = getattr(ndarray, f"__i{name}__"), getattr(ndarray, f"__{name}__")
    return lambda self, value: in_place(self, value) if self.ndim else other(self, value)


for _name in "add sub mul truediv floordiv mod pow".split():
    setattr(Number, f"__i{_name}__", operator(_name))


def stored(mode, result, out, where):
    """The arrays that results are to be written to."""
    results = result if type(result) is tuple else (result,)
    for one, target in zip(results, out):
        if target is not None:
            numpy.copyto(target.view(ndarray), one, casting="unsafe", where=where)
    found = [mode.wrapped(one) if target is None else target for one, target in zip(results, out)]
    return found[0] if len(found) == 1 else tuple(found)
