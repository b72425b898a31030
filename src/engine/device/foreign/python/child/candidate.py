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

from . import faults, libraries
from .main import Server
from .program import Program
from .state import Turn
from .tensors import DTYPES, Tensor

# Words of the page, a line of the cache each. They have the number of the turn that is announced, that this
# process waits for or has queued, whose inputs are there, before whose gate it stands, whose gate is open, whose
# results are there, and are in the table; then how many calls it has, and whether they are queued on a GPU.
ANNOUNCED, READY, WRITTEN, AWAKE, OPENED, RUNG, TOLD, COUNT, IS_QUEUED = range(0, 72, 8)

# Where results lie: an address and a number of bytes each. On a GPU the address begins where an allocation does,
# and there follow whether that is the referee's, and at the fifth word what it is opened by.
RESULTS, RECORD = 128, 12

# Announced in place of a turn: there are no more.
NO_MORE = 2**64 - 1


def has_ordered_stores():
    """Whether others see what this processor stores in its order."""
    return platform.machine() in ("x86_64", "AMD64")


class Page:
    """The memory that is shared with the referee, on a CPU with all tensors."""

    def __init__(self, opened):
        self.memory = mmap.mmap(opened["descriptor"], opened["bytes"])
        self.page_bytes = opened["page_bytes"]
        self.words = memoryview(self.memory)[: self.page_bytes].cast("Q")
        self.lock = None if has_ordered_stores() else threading.Lock()
        # Where both share a processor, each lets the other have it.
        self.waits = os.sched_yield if opened["yields"] else None

    def share(self, told):
        """Learns where the tensors lie, of so many calls."""
        self.sets, self.tensors = told["sets"], told["tensors"]

    def arrays(self, framework, kind, number):
        """The inputs, or the outputs that are given, of one call of a turn."""
        first = number * self.tensors["set_bytes"]
        return {held["name"]: self.array(framework, held, first + held["offset"]) for held in self.tensors[kind]}

    def array(self, framework, held, offset):
        """An array whose elements lie in the page."""
        bits = numpy.dtype(DTYPES[held["dtype"]][1])
        count = int(numpy.prod(held["shape"], dtype=numpy.int64))
        array = numpy.frombuffer(self.memory, bits, count, self.page_bytes + offset)
        return framework.shared(Tensor(held["dtype"], array.reshape(held["shape"])))

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

    def turn(self, program, number):
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
        for address, count in map(program.framework.place, program.take_left()):
            words[place] = address
            words[place + 1] = count
            place += RECORD
        self.fence()
        words[RUNG] = number


class Candidate(Program):
    """A function whose arguments lie where the referee writes them."""

    def __init__(self, request, framework, page, turn):
        self.page, self.number = page, 0
        super().__init__(request, framework, page.arrays(framework, "inputs", 0), turn)
        self.sets = [self.arguments()]
        for self.number in range(1, page.sets):
            self.use(page.arrays(framework, "inputs", self.number))
            self.sets.append(self.arguments())
        self.resume(self.sets[0])

    def use(self, given):
        self.graph = None
        self.given = given
        # What it overwrites is written anew before each call.
        self.own = {}
        self.targets = self.page.arrays(self.framework, "outputs", self.number)
        self._take_arguments()
        self._choose_runner()
        if self.runner.has_prologue:
            reason = "a backward pass alone can't be refereed: the forward pass before it knows its inputs"
            raise faults.Refused("unavailable", reason + " (`both` can)")
        self.names = list(self.outputs)

    def take_left(self):
        """The results. Those that are not in one piece are copied, in the time of the call."""
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
        return self.left


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
        if self.device == "cuda":
            from .device_page import DevicePage

            # A driver reserves addresses for far more than there is.
            forbid_raising(resource.RLIMIT_DATA, opened["memory_bytes"])
            self.page = DevicePage(opened["shared"])
        else:
            limit, _ = resource.getrlimit(resource.RLIMIT_AS)
            forbid_raising(resource.RLIMIT_AS, limit)
            self.page = Page(opened["shared"])
        self.candidate = self.empty = self.watching = None

    def start_clock(self, opened):
        """The clock is the referee's."""

    def share(self, request):
        self.page.share(request)
        return {}

    def enter(self, request):
        """Gets an empty function ready: none of the candidate's text has run yet."""
        framework = self.framework(request["arrays"])
        if not hasattr(framework, "shared"):
            reason = f"arrays of {framework.name} can't be refereed: they can't lie in memory that another process writes"
            raise faults.Refused("unavailable", reason)
        self.empty = Empty(request, framework, self.page, Turn(request))
        return {}

    def prepare(self, request):
        """Imports the candidate's text, and calls it on all that it will be called on, so that its kernels are
        compiled and loaded."""
        self.files = {held["path"] for held in request["source"].get("files", [])}
        framework = self.framework(request["arrays"])
        turn = Turn(request)
        self.states.enter(turn)
        program = Candidate(request, framework, self.page, turn)
        program.call_first()
        if self.device == "cuda":
            # Behind a gate nothing can be loaded. Later calls may take other kernels than the first.
            for held in program.sets * 2:
                program.resume(held)
                program.call()
        framework.synchronize()
        for name, array in program.arrays().items():
            program.refuse_others(name, array)
        program.take_left()
        self.candidate = program
        return {}

    def calls(self, request):
        """Turns between gate and bell, from a number on, until there are no more."""
        program = self.candidate or self.empty
        program.framework.enter(program.setting)
        self.files = program.files
        number = request["first"]
        while self.page.is_announced(number):
            self.page.turn(program, number)
            number += 1
        return {}

    def watch(self, request):
        """Notes kernels from now on, until `watched`."""
        self.watching = libraries.Watch(self.candidate.framework)
        return {}

    def watched(self, request):
        """The kernels of libraries since then. The page launches one, too."""
        return self.watching.end({self.page.entry})


def forbid_raising(kind, limit):
    """Sets a limit for good."""
    _, most = resource.getrlimit(kind)
    limit = limit if most == resource.RLIM_INFINITY else min(limit, most)
    resource.setrlimit(kind, (limit, limit))
