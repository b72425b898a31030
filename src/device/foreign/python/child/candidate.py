"""A function that nobody trusts: its side of the referee's protocol.

Inputs lie in memory that the referee writes before each call, and results are read from this process's
memory when it rings. Nothing that this process says, or measures, counts: what follows makes honest
functions fast, and stops nobody.
"""

import mmap
import os
import platform
import resource
import threading

import numpy

from . import faults
from .main import Server
from .program import Program
from .state import Turn
from .tensors import DTYPES, Tensor

# Words of the page, a line of the cache each. They have the number of the call that is announced, that this
# process waits for, whose inputs are there, before whose gate it stands, whose gate is open, and whose
# results are there.
ANNOUNCED, READY, WRITTEN, AWAKE, OPENED, RUNG = range(0, 48, 8)

# Where results lie: an address and a number of bytes each.
RESULTS = 64

# Announced in place of a call: there are no more.
NO_MORE = 2**64 - 1


def has_ordered_stores():
    """Whether others see what this processor stores in its order."""
    return platform.machine() in ("x86_64", "AMD64")


class Page:
    """The memory that is shared with the referee."""

    def __init__(self, opened):
        self.memory = mmap.mmap(opened["descriptor"], opened["bytes"])
        self.words = memoryview(self.memory)[: opened["page_bytes"]].cast("Q")
        self.lock = None if has_ordered_stores() else threading.Lock()
        # Where both share a processor, each lets the other have it.
        self.waits = os.sched_yield if opened["yields"] else None
        self.inputs, self.targets = opened["inputs"], opened["outputs"]

    def tensor(self, held):
        """A tensor whose elements lie in the page."""
        bits = numpy.dtype(DTYPES[held["dtype"]][1])
        count = int(numpy.prod(held["shape"], dtype=numpy.int64))
        array = numpy.frombuffer(self.memory, bits, count, held["offset"])
        return Tensor(held["dtype"], array.reshape(held["shape"]))

    def wait_for(self, word, number):
        words, waits = self.words, self.waits
        while words[word] != number:
            if waits is not None:
                waits()

    def is_announced(self, number):
        """Waits for a call; whether there is one."""
        words, waits = self.words, self.waits
        while (announced := words[ANNOUNCED]) != number:
            if announced == NO_MORE:
                return False
            if waits is not None:
                waits()
        return True

    def fence(self):
        if self.lock is not None:
            with self.lock:
                pass

    def call(self, program, number):
        """A call between the gate and the bell."""
        words = self.words
        # An allocator finds the memory of the results before these.
        program.results = program.left = None
        words[READY] = number
        self.wait_for(WRITTEN, number)
        words[AWAKE] = number
        self.wait_for(OPENED, number)
        self.fence()
        program.results = program.runner.call()
        place = RESULTS
        for address, count in program.places():
            words[place] = address
            words[place + 1] = count
            place += 2
        self.fence()
        words[RUNG] = number


class Candidate(Program):
    """A function whose arguments lie in the page."""

    def __init__(self, request, framework, page, turn):
        self.page = page
        given = {held["name"]: framework.shared(page.tensor(held)) for held in page.inputs}
        super().__init__(request, framework, given, turn)

    def use(self, given):
        self.graph = None
        self.given = given
        # What it overwrites is written anew before each call.
        self.own = {}
        self.targets = {held["name"]: self.framework.shared(self.page.tensor(held)) for held in self.page.targets}
        self._take_arguments()
        self._choose_runner()
        if self.runner.has_prologue:
            reason = "a backward pass alone can't be refereed: the forward pass before it knows its inputs"
            raise faults.Refused("unavailable", reason + " (`both` can)")
        self.names = list(self.outputs)

    def places(self):
        """Where results lie. Those that are not in one piece are copied, in the time of the call."""
        framework = self.framework
        if not self.targets and len(self.names) == 1 and self.runner.returns == self.names:
            held = self.results
            if isinstance(held, (list, tuple)):
                (held,) = held
            self.left = [framework.in_one_piece(framework.plain(held))]
        else:
            arrays = self.arrays()
            self.left = [framework.in_one_piece(arrays[name]) for name in self.names]
        # Copies live as long as results do.
        return map(framework.place, self.left)


class Empty(Candidate):
    """A function that does nothing: its results are there before it is called."""

    def _load(self, request, framework):
        held = [framework.poisoned(output["dtype"], output["shape"])
                for output in request["outputs"] if not output["passed"]]
        by_name = dict(zip([output["name"] for output in request["outputs"] if not output["passed"]], held))
        results = [by_name.get(name) for name in request["returns"]]
        return lambda *args, **kwargs: results

    def _choose_runner(self):
        super()._choose_runner()
        if self.request.get("autograd") is not None and self.request["phase"] != "forward":
            # Gradients of nothing can't be derived.
            held = [self.framework.poisoned(self.outputs[name]["dtype"], self.outputs[name]["shape"])
                    if name in self.outputs else None for name in self.runner.returns]
            self.runner.call = lambda: held


class Refereed(Server):
    """The server of one candidate."""

    def __init__(self, opened):
        super().__init__(opened)
        limit, _ = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        self.page = Page(opened["page"])
        self.candidate = self.empty = None

    def enter(self, request):
        """Loads the library of its arrays, and makes the calls of an empty function: none of the
        candidate's text has run yet."""
        framework = self.framework(request["arrays"])
        if not hasattr(framework, "shared"):
            reason = f"arrays of {framework.name} can't be refereed: they can't lie in memory that another process writes"
            raise faults.Refused("unavailable", reason)
        self.load_compiler(request)
        self.empty = Empty(request, framework, self.page, Turn(request))
        return {}

    def prepare(self, request):
        """Imports the candidate's text, and calls it once, so that its kernels are compiled."""
        self.files = {held["path"] for held in request["source"].get("files", [])}
        framework = self.framework(request["arrays"])
        turn = Turn(request)
        self.states.enter(turn)
        program = Candidate(request, framework, self.page, turn)
        program.call_first()
        for name, array in program.arrays().items():
            program.refuse_others(name, array)
        program.places()
        self.candidate = program
        return {}

    def calls(self, request):
        """Calls between gate and bell, from a number on, until there are no more."""
        program = self.candidate or self.empty
        program.framework.enter(program.setting)
        self.files = program.files
        number = request["first"]
        while self.page.is_announced(number):
            self.page.call(program, number)
            number += 1
        return {}
