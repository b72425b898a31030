"""One function of the user for one problem: its arguments, a call of it, and its results."""

import contextlib
import functools
import os
from time import perf_counter_ns

from . import autograd, compiled, faults, kernelbench, sources
from .arrays import are_one_shape
from .autotuned import WATCH
from .graph import Graph


class Copies:
    """Processes that the user's function forked. One that comes back from the function ends: it
    would go on with the calls, and fork again in each."""

    is_copy = False


def _mark_copy():
    Copies.is_copy = True


os.register_at_fork(after_in_child=_mark_copy)


# Names of the attributes that `Program.use` sets.
ARGUMENTS = ("given", "own", "targets", "positional", "named", "runner", "graph")


class Program:
    """A function that is ready to be called again and again."""

    def __init__(self, request, framework, given, turn):
        self.request = request
        # What it changes in this process.
        self.turn = turn
        self.framework = framework
        self.what = request["what"]
        self.files = {held["path"] for held in request["source"].get("files", [])}
        # A model may be one of another file's.
        problem = (request.get("model") or {}).get("problem", {})
        files = [*request["source"].get("files", []), *problem.get("files", [])]
        self.texts = {held["path"]: held["text"] for held in files}
        self.setting = framework.setting(request, given)
        framework.enter(self.setting)
        start = perf_counter_ns()
        self.function = self._load(request, framework)
        self.import_ns = perf_counter_ns() - start
        self.outputs = {held["name"]: held for held in request["outputs"]}
        # Of gradients at results, where no input is one.
        self.ones = None
        # Its audit, once that has begun.
        self.audit = None
        # Whether its launches are one CUDA graph.
        self.as_graph = False
        # How long its first call took.
        self.first_ns = 0.0
        # The most memory of its first call, where the library counts none itself.
        self.peak_bytes = None
        # The library's count when its results were last read, and what is left of them for others.
        self.peak = self.left = None
        self.use(given)
        self.results = None

    def _load(self, request, framework):
        """The function or the model that is called."""
        if request.get("model") is not None:
            function = kernelbench.model(request, framework)
        else:
            module = sources.load(request["source"], request["path"])
            function = sources.entry(module, request["entry"], self.what)
        options = request.get("torch_compile")
        self.original = function
        return function if options is None else framework.torch.compile(function, **options)

    def call_first(self):
        """The call that compiles it."""
        before = compiled.graphs()
        self.call()
        if self.request.get("torch_compile") is not None:
            compiled.refuse_eager(self.original, before)

    def uses(self, name):
        """Whether it was given an input, which it might overwrite."""
        held = [*self.request["args"], *(held for _, held in self.request["kwargs"])]
        return any(is_of(argument, name) for argument in held)

    def use(self, given):
        """Takes its arguments from these arrays: those of the problem, or others for an audit."""
        self.graph = None
        self.given = given
        self.own = {name: self._copy(given[name]) for name in self.request["mutates"]}
        passed = {name: held for name, held in self.outputs.items() if held["passed"]}
        if passed and not self.framework.can_write:
            name = self.framework.name
            reason = f"arrays of {name} can't be written: let it return `{next(iter(passed))}`"
            raise faults.Refused("error", reason)
        self.targets = {
            name: self.framework.poisoned(held["dtype"], held["shape"])
            for name, held in passed.items()
        }
        self._take_arguments()
        self._choose_runner()

    def _choose_runner(self):
        gradient = self.request.get("autograd")
        if gradient is None:
            self.runner = Forward(self)
        else:
            self.runner = autograd.runner(self, gradient, self.request["phase"])

    def _take_arguments(self):
        self.positional = [self._argument(held) for held in self.request["args"]]
        self.named = {name: self._argument(held) for name, held in self.request["kwargs"]}
        if self.framework.is_asynchronous:
            self.framework.wait((self.positional, self.named))

    def arguments(self):
        """Its arguments as they are, for `resume`."""
        return {name: getattr(self, name) for name in ARGUMENTS}

    def resume(self, arguments):
        """Takes arguments that it had before: the objects themselves, not copies of them."""
        self.results = None
        vars(self).update(arguments)

    def rewrite(self):
        """Overwrites arrays that are passed with their own bits."""
        for array in [*self.given.values(), *self.targets.values()]:
            self.framework.rewrite(array)

    def _copy(self, array):
        if hasattr(array, "detach"):
            return array.detach().clone()
        return array.copy()

    def _argument(self, held):
        if "list" in held:
            return [self._argument(item) for item in held["list"]]
        if "tensor" not in held:
            return held["value"]
        name = held["tensor"]
        array = self.targets.get(name, self.own.get(name, self.given.get(name)))
        if hasattr(array, "detach"):
            # An alias: a function that sets `requires_grad` of its argument would switch all later
            # ones of the problem, and other phases of its own, to their paths for training.
            array = array.detach()
        shape = held.get("shape")
        return array if shape is None else array.reshape(shape)

    def restore(self):
        """Restores, untimed before each call, contents of arrays that the function writes."""
        self.results = self.left = None
        self.framework.enter(self.setting)
        if self.as_graph and self.graph is None:
            with WATCH.launches():
                self.graph = Graph(self)
            # Calls before the recording computed results that the graph is to compute.
            self._poison_known()
        if self.own and not self.framework.can_write:
            # The call before may have taken their memory.
            self.own = {name: self._copy(self.given[name]) for name in self.own}
            self._take_arguments()
        else:
            for name, array in self.own.items():
                self.framework.copy(self.given[name], array)
        for name, array in self.targets.items():
            initial = self.outputs[name].get("initial")
            if initial is None:
                continue
            if "input" in initial:
                self.framework.copy(self.given[initial["input"]], array)
            else:
                self.framework.fill(array, initial["value"])
        self.runner.prologue()
        if Copies.is_copy:
            os._exit(0)

    @property
    def restores(self):
        """Whether something has to be made as it was before each call."""
        outputs = (self.outputs[name].get("initial") for name in self.targets)
        return bool(self.own) or any(outputs) or self.runner.has_prologue

    def poison(self):
        """Sets the bits of all outputs that it writes. Memory for those that it returns
        comes from an allocator, and is poisoned where the allocator hands it out again."""
        self.results = None
        self._poison_known()
        self.poison_returned()

    def poison_returned(self):
        """Poisons memory for outputs that it returns, and gives it back to the allocator."""
        held = [
            self.framework.poisoned(output["dtype"], output["shape"])
            for name, output in self.outputs.items()
            if name not in self.targets
        ]
        self.framework.synchronize()
        del held

    def _poison_known(self):
        """Sets the bits of outputs that it is given, and of those that a graph returns."""
        for array in self.targets.values():
            self.framework.poison(array)
        if self.graph is not None:
            self.graph.poison(self.framework)

    def call(self):
        """Calls it once, or launches the graph of a call. Its results are kept until the next."""
        self.results = self.runner.call() if self.graph is None else self.graph.launch()
        if Copies.is_copy:
            os._exit(0)
        if self.framework.is_asynchronous:
            self.framework.wait(self.results)

    def call_in_a_row(self, count):
        """Calls it so many times, with as little as can be between the calls."""
        run = self.runner.bound() if self.graph is None else self.graph.launch
        wait = self.framework.wait if self.framework.is_asynchronous else None
        with self.runner.around:
            for _ in range(count):
                self.results = run()
                if Copies.is_copy:
                    os._exit(0)
                if wait is not None:
                    wait(self.results)

    def read(self):
        """The outputs in memory of the host."""
        return {name: self.bits(name, array) for name, array in self.arrays().items()}

    def arrays(self):
        """The arrays of the outputs, those that it was given and those that it returned. Those
        that contradict the manifest make the point `wrong`."""
        found = dict(self.targets)
        names = self.runner.returns
        held = self.results
        held = list(held) if isinstance(held, (tuple, list)) else [held]
        if not names:
            held = []
        if len(held) != len(names):
            raise faults.Refused("wrong", f"{self.what} returns {len(held)} values, `returns` has {len(names)}")
        for name, array in zip(names, held):
            if name not in self.outputs:
                continue
            if not self.framework.holds(array):
                kind = type(array).__name__
                raise faults.Refused("wrong", f"`{name}` is a {kind}, and no array of {self.framework.name}")
            found[name] = self.framework.plain(array)
        return found

    def refuse_others(self, name, array):
        """Refuses an array of another type or shape than an output has."""
        output = self.outputs[name]
        dtype = self.framework.dtype(array)
        if dtype not in self.framework.accepted(output["dtype"]):
            raise faults.Refused("wrong", f"`{name}` is of type {dtype}, and not {output['dtype']}")
        shape = list(array.shape)
        if not are_one_shape(shape, output["shape"]):
            raise faults.Refused("wrong", f"`{name}` has shape {shape}, and not {output['shape']}")

    def bits(self, name, array):
        self.refuse_others(name, array)
        output = self.outputs[name]
        tensor = self.framework.bits(array, output["dtype"])
        tensor.array = tensor.array.reshape(output["shape"])
        return tensor


def is_of(argument, name):
    """Whether an argument is a tensor of this name, or has it in a list."""
    if "list" in argument:
        return any(is_of(item, name) for item in argument["list"])
    return argument.get("tensor") == name


class Forward:
    """Calls of the function itself."""

    has_prologue = False

    def __init__(self, program):
        self.program = program
        self.returns = program.request["returns"]
        self.around = program.framework.forward() or contextlib.nullcontext()

    def prologue(self):
        pass

    def call(self):
        with self.around:
            return self.bound()()

    def bound(self):
        """The function with its arguments, for calls within `around`."""
        program = self.program
        return functools.partial(program.function, *program.positional, **program.named)
