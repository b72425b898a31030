"""Whether a function does the work that it is timed for: on inputs that it never saw, at addresses
that it never had, within the time that it takes.

A function that keeps results and hands them out again is wrong or slow on such inputs. One whose
work is done later, in a thread or on another stream, changes its results after the span ended.

The time that counts is that of its first call on some contents at some addresses. A second call
would tell nothing: a function that keeps results by the contents of inputs is fast from then on.
But that one call, on memory that was just written, differs from samples in more than its inputs.
Samples are calls one after another, whose threads are awake, on memory that these cores read again
and again: a product of a matrix of some MB and a vector takes half as long then. So the function is
compared with calls on the inputs that it knows, also one at a time, in turns with the others; with
its samples too, which may be slower. Before each call of both kinds, all arrays that are passed are
overwritten with their own bits here, so that caches, and the copies of lines that cores have, are
alike. Known inputs then differ from others in nothing but properties by which results can be kept:
objects, addresses, versions and contents are those of the samples. A function that keeps results is
fast on known inputs, whichever of these it looks at, and slow or wrong on others.

Calls also differ in where the allocator finds memory for results: pages that it gave back to the
system are mapped again, in the call. Which kind of call that hits is a matter of sizes and order, so
it may hit those on other inputs alone. Where it does, free memory is given back before every call.

The rest is the luck of a process on a CPU: known arrays may have physical pages of which caches hold
more than of others, for as long as it lives. So a function is accused in two processes, or not at all.
"""

import ctypes
import resource
import statistics
import time

from . import faults
from .arrays import same_bits

# The most calls on new inputs that are timed, and the pause before each but the first few: other
# work of the machine may slow some of them.
MOST_CALLS = 24
CALLS_AT_ONCE = 4
PAUSE_S = 0.01

# A call may take this much longer than those on known inputs, and this part of them.
SLACK_NS = 5e3
SLACK = 1.1

# From so many calls on known inputs on, their median says how long one takes: a single one may
# have been interrupted for as long as a function that keeps results saves.
LEAST_KNOWN = 3

# Inputs of earlier calls are kept, so that an allocator hands out no address again, and an object
# made later is never taken for one of them. Of arrays larger than this together, there are few tries.
MOST_KEPT_BYTES = 1 << 30

# Before a shorter call than this another one is made. After a pause, or other work than the
# function's, a call of JAX that takes 5 us takes 20: threads sleep, and caches hold other code.
SHORT_NS = 1e6

# The least that is waited for work after the end of a span.
LEAST_WAIT_S = 0.02


class Tries:
    """Times of a function's calls in nanoseconds: on inputs that it never saw, and on those that it
    knows. Of the first the least counts, of the others the median, or the slowest sample: a
    function that does its work is as fast on all, and one call of many is undisturbed."""

    def __init__(self, slowest_ns):
        self.slowest_ns = slowest_ns
        self.unseen = []
        self.known = []
        self.kept = []
        self.kept_bytes = 0
        # Whether free memory is given back to the system before each timed call.
        self.trims = False

    @property
    def has_room(self):
        return self.kept_bytes <= MOST_KEPT_BYTES

    def keep(self, arrays):
        if self.has_room or len(self.kept) <= CALLS_AT_ONCE:
            self.kept.append(arrays)
            self.kept_bytes += sum(array.nbytes for array in arrays.values())

    @property
    def usual_ns(self):
        """How long a call on known inputs takes."""
        if len(self.known) < LEAST_KNOWN:
            return self.slowest_ns
        return max(self.slowest_ns, statistics.median(self.known))

    @property
    def is_as_fast(self):
        """Whether a call on new inputs took no longer."""
        return min(self.unseen) <= SLACK * self.usual_ns + SLACK_NS

    def call(self, program, clock, held, other):
        """Times a call on other inputs, and where it was slow one on those that it knows, with the
        arguments that it had in its samples."""
        self.keep(other)
        if self.slowest_ns < SHORT_NS:
            program.resume(held)
            clock.span(program, 1)
        program.use(other)
        elapsed, faults_unseen = self._time(program, clock)
        self.unseen.append(elapsed)
        if self.is_as_fast:
            return
        # The call before was on the other inputs, as it was before the call on these.
        program.resume(held)
        elapsed, faults_known = self._time(program, clock)
        self.known.append(elapsed)
        if faults_unseen > faults_known and not self.trims:
            self.trims = trim()

    def _time(self, program, clock):
        """The time of a call on the arguments that it has now, and its page faults."""
        program.rewrite()
        if self.trims:
            trim()
        before = page_faults()
        elapsed, _ = clock.span(program, 1)
        return elapsed, page_faults() - before


def page_faults():
    """Page faults of this process so far, without those that read a disk."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def trim():
    """Gives memory that is free back to the system; whether the allocator can do that."""
    give_back = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return give_back is not None and bool(give_back(0))


def audit(program, clock, given, timed, tries):
    """The outputs for other inputs, after which `tries` has times of calls on still others: until
    one is as fast as those on known inputs, or there were enough. Each has contents and addresses
    of its own: those before, moved on by some elements. Inputs that a function of the user made may
    mean something else then: the one timed call has others of its making, `timed`."""
    held = program.arguments()
    try:
        tries.keep(given)
        program.use(given)
        program.poison()
        clock.refuse_work_behind_gate(program)
        clock.span(program, 1)
        outputs = program.read()
        if timed is None:
            time_moved(program, clock, held, given, tries)
        else:
            tries.call(program, clock, held, timed)
        return outputs
    finally:
        program.resume(held)


def time_moved(program, clock, held, given, tries):
    """Times calls on inputs whose elements are moved on."""
    for step in range(1, MOST_CALLS + 1):
        if step > CALLS_AT_ONCE:
            if not tries.has_room:
                break
            time.sleep(PAUSE_S)
        try:
            moved = {name: program.framework.rolled(array, step) for name, array in given.items()}
            tries.call(program, clock, held, moved)
        except Exception as error:
            # Too little memory for one more.
            if not tries.unseen or faults.status_of(error) != "oom":
                raise
            break
        if tries.is_as_fast:
            break
    tries.kept.clear()


def late_work(program, clock):
    """Refuses a function that works after the span in which it was called: one on a GPU that keeps
    it busy, one on a CPU whose results change."""
    clock.refuse_work_after_stop(program)
    if clock.is_device:
        return
    program.poison()
    elapsed, _ = clock.span(program, 1)
    first = program.read()
    time.sleep(max(2e-9 * elapsed, LEAST_WAIT_S))
    second = program.read()
    for name, tensor in first.items():
        if not same_bits(tensor.array, second[name].array):
            reason = f"`{name}` changes after the call: it works outside the timed span"
            raise faults.Refused("wrong", reason)
