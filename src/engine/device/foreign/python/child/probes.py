"""References of libraries with arrays, NumPy and JAX above all: their answers in f64, and what they are in
evaluations with noise as rounding to the judged format makes it.

Where a function can't be evaluated so, because compiled code in it refuses the arrays or returns others, it
is a black box: its inputs are disturbed instead.
"""

import math
import time

import numpy

from . import faults, roundings
from .arrays import NumPy
from .generate import rounded
from .program import Program
from .state import Turn
from .tensors import DTYPES, Tensor

# Outputs of more elements than this show in two evaluations with noise what rounding does. Of others
# there are more, unless two take so long.
MANY_ELEMENTS = 100_000
FEW_PROBES, MANY_PROBES = 2, 8
LONG_S = 5.0

# A function that takes no longer is evaluated twice, to see whether it draws random numbers.
SHORT_S = 1.0

# Between evaluations in f64, sums in another order are off by no more than this part.
ORDER = 1e-6

REAL = ("f64", "f32", "f16", "bf16")

# Named instead of operations where a function is a black box.
BLACK_BOX = "all (judged by its sensitivity to its inputs)"


class Lost(Exception):
    """Noise does not come as far as an output."""


def answer(request, framework, inputs):
    """Tensors by name: right outputs, and where a tolerance follows from rounding, `probe K of` each real one
    with noise, and `own error of` it where it could be evaluated in the judged format; `overflows` where an
    output was not finite there."""
    inputs = {name: widened(tensor) for name, tensor in inputs.items()}
    kind = {"numpy": OfNumPy, "jax": OfJax}.get(request["arrays"], Plain)
    try:
        function = kind(request, framework)
        found = settled(function, inputs)
    except Exception as error:
        error.__traceback__ = None
        function = Plain(request, framework)
        found = settled(function, inputs)
    answers = {name: held.array for name, held in found.items() if held.dtype in REAL}
    if not request["with_spread"]:
        return found
    own, overflows = own_errors(request, framework, inputs, answers)
    if overflows:
        found["overflows"] = Tensor("f64", numpy.array([1.0]))
    found.update({f"own error of {name}": Tensor("f64", numpy.array([held])) for name, held in own.items()})
    unknown = {}
    try:
        probes = evaluations(answers, lambda seed: function.noisy(inputs, seed, unknown))
        for name, held in probes.items():
            if own.get(name, 0.0) > 0.0 and all(numpy.array_equal(one, answers[name]) for one in held):
                raise Lost(name)
        text = ", ".join(f"{name} ({count})" for name, count in sorted(unknown.items()))
    except Exception as error:
        error.__traceback__ = None
        text = BLACK_BOX
        black_box = BlackBox(function, inputs, answers)
        probes = evaluations(answers, black_box.noisy)
    for name, held in probes.items():
        found.update({f"probe {at} of {name}": Tensor("f64", one) for at, one in enumerate(held)})
    if text:
        # As bytes of UTF-8: an answer has nothing but tensors.
        found["operations without a model"] = Tensor("u8", numpy.frombuffer(text.encode(), numpy.uint8))
    return found


def widened(tensor):
    """A tensor with its real numbers in f64."""
    if tensor.dtype not in REAL:
        return tensor
    array = tensor.array
    if tensor.dtype == "bf16":
        array = (array.astype(numpy.uint32) << 16).view(numpy.float32)
    return Tensor("f64", array.astype(numpy.float64))


def narrowed(tensor, dtype):
    """A tensor of f64 in another format."""
    if tensor.dtype != "f64":
        return tensor
    array = tensor.array.astype(numpy.float32 if dtype == "bf16" else DTYPES[dtype][1])
    return Tensor(dtype, rounded(array) if dtype == "bf16" else array)


def rms(array):
    return float(numpy.sqrt(numpy.mean(numpy.square(array)))) if array.size else 0.0


def settled(function, inputs):
    """The outputs of a function, which draws no random numbers if it is short enough to find out."""
    start = time.monotonic()
    found = function.exact(inputs)
    if time.monotonic() - start < SHORT_S:
        others = function.exact(inputs)
        if any(far_apart(held, others[name]) for name, held in found.items()):
            raise faults.refused_for_chance()
    return found


def far_apart(one, other):
    """Whether two evaluations in f64 differ by more than the order of its sums does."""
    if one.dtype not in REAL:
        return not numpy.array_equal(one.array, other.array)
    with numpy.errstate(all="ignore"):
        error = one.array - other.array
    return rms(error[numpy.isfinite(error)]) > ORDER * rms(other.array[numpy.isfinite(other.array)])


def evaluations(answers, evaluate):
    """Real outputs of an even number of evaluations, which take a seed."""
    many = sum(held.size for held in answers.values()) > MANY_ELEMENTS
    probes = {name: [] for name in answers}
    start = math.inf
    for at in range(FEW_PROBES if many else MANY_PROBES):
        if at >= FEW_PROBES and at % 2 == 0 and time.monotonic() - start > LONG_S:
            break
        outputs = evaluate(at + 1)
        for name, held in probes.items():
            held.append(outputs[name].array)
        # The first may compile.
        start = min(start, time.monotonic())
    return probes


def own_errors(request, framework, inputs, answers):
    """How far the outputs of the function as it is are off, in the judged format, and whether some are not finite
    where they could be; none where it has none."""
    dtype = request["judged"]
    if dtype == "f64" or dtype == "bf16" and request["arrays"] == "numpy":
        return {}, False
    outputs = [{**held, "dtype": dtype} if held["dtype"] in REAL else held for held in request["outputs"]]
    try:
        function = Plain({**request, "outputs": outputs}, framework)
        function.call({name: narrowed(tensor, dtype) for name, tensor in inputs.items()})
        found = function.program.arrays()
        types = {name: framework.dtype(array) for name, array in found.items()}
        errors = {name: widened(framework.bits(found[name], types[name])).array.reshape(held.shape) - held
                  for name, held in answers.items()}
        most = {"f16": 65504.0}.get(dtype, float(numpy.finfo(numpy.float32).max))
        overflows = any((numpy.abs(answers[name]) < most)[~numpy.isfinite(error)].any() for name, error in errors.items())
        return {name: rms(error[numpy.isfinite(error)]) for name, error in errors.items()}, overflows
    except Exception as error:
        # Not every function takes every format.
        error.__traceback__ = None
        return {}, False


class Plain:
    """A function as it is."""

    def __init__(self, request, framework):
        self.request, self.framework = request, framework
        self.dtype = request["judged"]
        self.program = None

    def use(self, inputs):
        """Takes inputs as its arguments."""
        given = {name: self.framework.of(tensor) for name, tensor in inputs.items()}
        if self.program is None:
            self.program = Program(self.request, self.framework, given, Turn())
        else:
            self.framework.enter(self.program.setting)
            self.program.use(given)
        return given

    def call(self, inputs):
        self.use(inputs)
        self.program.restore()
        self.program.call()

    def exact(self, inputs):
        self.call(inputs)
        found = self.program.read()
        for name, array in self.program.given.items():
            if self.program.uses(name) and not self.framework.is_same(array, inputs[name]):
                raise faults.Refused("error", f"it overwrote the input `{name}`")
        return found

    def noisy(self, inputs, seed, unknown):
        raise Lost("it is evaluated as it is")


class BlackBox:
    """A function whose inputs are rounded: its outputs are as far out as the longest sum of rounded terms may
    be. Their own elements are rounded as well."""

    def __init__(self, function, inputs, answers):
        self.function, self.inputs, self.answers = function, inputs, answers
        self.u, _ = roundings.FORMATS[function.dtype]
        arrays = [*(held.array for held in inputs.values()), *answers.values()]
        self.longest = max((extent for held in arrays for extent in held.shape), default=1)

    def noisy(self, seed):
        generator = numpy.random.default_rng(seed)

        def disturbed(array):
            return array * (1.0 + roundings.RMS * self.u * generator.standard_normal(array.shape))

        given = {name: Tensor("f64", disturbed(held.array)) if held.dtype == "f64" else held
                 for name, held in self.inputs.items()}
        outputs = self.function.exact(given)
        return {name: Tensor("f64", disturbed(held) + math.sqrt(self.longest) * (outputs[name].array - held))
                for name, held in self.answers.items()}


class OfNumPy(Plain):
    """A function on arrays of a class that disturbs results."""

    def __init__(self, request, framework):
        from . import rounding_numpy

        class Arrays(NumPy):
            def of(self, tensor):
                return super().of(tensor).view(rounding_numpy.Rounded)

            def poisoned(self, dtype, shape):
                return super().poisoned(dtype, shape).view(rounding_numpy.Rounded)

        super().__init__(request, Arrays("cpu"))
        self.classes = rounding_numpy
        self.mode = None

    def call(self, inputs):
        self.use(inputs)
        self.program.restore()
        with self.mode:
            self.program.call()

    def exact(self, inputs):
        self.mode = self.classes.Rounding(self.dtype)
        return super().exact(inputs)

    def noisy(self, inputs, seed, unknown):
        self.mode = self.classes.Rounding(self.dtype, seed, unknown)
        found = super().exact(inputs)
        for name, array in self.program.arrays().items():
            if found[name].dtype in REAL and not isinstance(array, self.classes.Rounded):
                raise Lost(name)
        return found


class OfJax(Plain):
    """A function whose jaxpr is evaluated."""

    def __init__(self, request, framework):
        from . import rounding_jax

        super().__init__(request, framework)
        self.evaluator = rounding_jax
        self.names = None
        self.evaluate = None

    def trace(self, given):
        """Finds the jaxpr of the function."""
        program = self.program

        def call(arrays):
            program.use(arrays)
            program.restore()
            program.call()
            found = program.arrays()
            program.results = None
            return [found[name] for name in self.names]

        self.names = [held["name"] for held in self.request["outputs"]]
        self.evaluate = self.evaluator.compiled(call, given, self.dtype)
        program.use(given)

    def outputs(self, inputs, *noise):
        given = self.use(inputs)
        with self.framework.jax.default_device(self.framework.device):
            if self.evaluate is None:
                self.trace(given)
            found = self.framework.wait(self.evaluate(given, *noise))
        return {name: self.program.bits(name, array) for name, array in zip(self.names, found)}

    def exact(self, inputs):
        return self.outputs(inputs)

    def noisy(self, inputs, seed, unknown):
        return self.outputs(inputs, seed, unknown)
