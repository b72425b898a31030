"""Single runs of a function for its audit: on inputs that it never saw, at addresses that it never
had, and on those that it knows. The other process has the times of both, and judges results.

The time that counts is that of the first call on some contents at some addresses. A second call
would tell nothing: a function that keeps results by the contents of inputs is fast from then on.
But that one call, on memory that was just written, differs from samples in more than its inputs.
Samples are calls one after another, whose threads are awake, on memory that these cores read again
and again: a product of a matrix of some MB and a vector takes half as long then. So it is compared
with calls on known inputs, also one at a time, in turns with the others. Before each call of both
kinds, all arrays that are passed are overwritten with their own bits here, so that caches, and the
copies of lines that cores have, are alike. Known inputs then differ from others in nothing but
properties by which results can be kept: objects, addresses, versions and contents are those of the
samples. A function that keeps results is fast on known inputs, whichever of these it looks at, and
slow or wrong on others.

Calls also differ in where the allocator finds memory for results: pages that it gave back to the
system are mapped again, in the call. Which kind of call that hits is a matter of sizes and order, so
it may hit those on other inputs alone. Where it does, free memory is given back before every call.
"""

import random
import resource
from time import sleep

from . import faults, handover, tensors
from .arrays import same_bits
from .footprint import trim

# Inputs of earlier calls are kept, so that an allocator hands out no address again, and an object
# made later is never taken for one of them. Of arrays larger than this together, there are few tries.
MOST_KEPT_BYTES = 1 << 30
LEAST_KEPT = 4

# Before a shorter call than this others are made. After a pause, or other work than the function's,
# a call of JAX that takes 5 us takes 20: threads sleep, and caches hold other code.
SHORT_NS = 1e6

# How many is a matter of chance: a function that works in each second or third call has no rhythm.
MOST_CALLS_BEFORE = 3

# The least that is waited for work after the end of a span.
LEAST_WAIT_S = 0.02


def run(program, clock, request):
    """What is done before and after a span: nothing, unless it is one of an audit."""
    if "unseen" in request:
        return Unseen(program, clock, request["unseen"])
    return Known(program, clock) if "known" in request else Sample()


class Sample:
    """A span of a sample."""

    def read(self, request):
        return {}

    def end(self):
        pass


class Audit:
    """What is kept of a function between the runs of its audit."""

    def __init__(self, program):
        self.held = program.arguments()
        self.kept = []
        self.kept_bytes = 0
        self.chance = random.Random(len(program.given))
        # Whether free memory is given back to the system before each timed call.
        self.trims = False
        self.last_ns = 0
        self.faults = {"unseen": 0, "known": 0}

    @staticmethod
    def of(program):
        if program.audit is None:
            program.audit = Audit(program)
        return program.audit

    @property
    def has_room(self):
        return self.kept_bytes <= MOST_KEPT_BYTES

    def keep(self, arrays):
        if self.has_room or len(self.kept) <= LEAST_KEPT:
            self.kept.append(arrays)
            self.kept_bytes += sum(array.nbytes for array in arrays.values())

    def call_known(self, program, clock):
        """Calls it on the inputs that it knows, as samples do."""
        least = 1 if self.last_ns < SHORT_NS else 0
        most = MOST_CALLS_BEFORE if least else 1
        for _ in range(self.chance.randint(least, most)):
            self.last_ns, _ = clock.span(program, 1)


class Run:
    """A run for an audit."""

    def __init__(self, program, clock):
        self.program, self.clock = program, clock
        self.audit = Audit.of(program)
        self.program.resume(self.audit.held)
        self.audit.call_known(program, clock)

    def begin(self):
        """The last that is done before the span."""
        self.program.poison_returned()
        self.program.rewrite()
        if self.audit.trims:
            trim()
        self.faults_before = page_faults()

    def note_faults(self, kind):
        self.audit.faults[kind] = page_faults() - self.faults_before

    def end(self):
        self.program.resume(self.audit.held)


class Known(Run):
    """A run on the inputs that a function knows, with the arguments that it had in its samples."""

    def __init__(self, program, clock):
        super().__init__(program, clock)
        self.begin()

    def read(self, request):
        self.note_faults("known")
        held = self.audit
        if held.faults["unseen"] > held.faults["known"] and not held.trims:
            held.trims = trim()
        return {}


class Unseen(Run):
    """A run on inputs that a function has not seen, from a file."""

    def __init__(self, program, clock, path):
        super().__init__(program, clock)
        try:
            self.use(path)
            self.begin()
        except BaseException:
            self.end()
            raise

    def use(self, path):
        """Takes its arguments from a file. Outputs that it is given are poisoned."""
        program, framework = self.program, self.program.framework
        given = {name: framework.of(held) for name, held in tensors.read(path).items()}
        if self.clock.is_device and not self.audit.kept:
            # Others still: the timed call is the first on those that are given.
            program.use({name: framework.rolled(array, 1) for name, array in given.items()})
            program.poison()
            self.clock.refuse_work_behind_gate(program)
        self.audit.keep(given)
        program.use(given)

    def read(self, request):
        """Writes the results as they are when the span ends."""
        self.note_faults("unseen")
        answer = handover.hand_over(self.program, self.clock, request)
        return {**answer, "has_room": self.audit.has_room}


def page_faults():
    """Page faults of this process so far, without those that read a disk."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def refuse_late_work(program, clock):
    """Refuses a function that works after the span in which it was called: one on a GPU that keeps
    it busy, one on a CPU whose results change."""
    clock.refuse_work_after_stop(program)
    if clock.is_device:
        return
    program.poison()
    elapsed, _ = clock.span(program, 1)
    first = program.read()
    sleep(max(2e-9 * elapsed, LEAST_WAIT_S))
    second = program.read()
    for name, tensor in first.items():
        if not same_bits(tensor.array, second[name].array):
            reason = f"`{name}` changes after the call: it works outside the timed span"
            raise faults.Refused("wrong", reason)
