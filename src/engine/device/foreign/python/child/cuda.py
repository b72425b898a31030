"""Time of calls by the device's clock: between two events, from rest, behind a gate that opens when
all of a call is queued. As `src/device/cuda/timing.rs`, which measures kernels of ours."""

import ctypes
import weakref
from time import perf_counter, perf_counter_ns, sleep

import numpy

from . import faults
from .driver import STREAM, Driver, Event
from .flush import Flush
from .gate import Gate

# The first calls of a function are not gated: work that they do once may wait for the device.
UNGATED_CALLS = 2

# Calls between two events, where nothing untimed comes before each.
MOST_CALLS = 16

PERSISTING_LIMIT = 6
NON_BLOCKING = 1

# Work after the stop event for longer than this, and this part of the call, is outside of it.
LATE_S = 20e-6
LATE_PART = 0.1
LATE_TRIES = 5

# A closed gate is opened by the other process after a quarter of a second.
MOST_WAIT_S = 0.1
MOST_COMPARED_BYTES = 1 << 26


# Results that are nearer than this to those for other inputs do not follow from the inputs: gradients of
# linear functions are such results, and kernels that add in any order make them alike, not equal.
ALIKE = 1e-3


def is_one_number(array):
    """Whether all elements are equal: memory that had zeros before a call is not a sign of work."""
    words = array.reshape(-1)
    return bool((words == words[:1]).all())


def is_alike(one, other, dtype):
    """Whether bytes of as many elements differ by no more than the order of sums may change them."""
    if one is None or one.size != other.size:
        return False
    size = one.size // dtype.itemsize * dtype.itemsize
    one, other = (held[:size].view(dtype).astype(numpy.float64) for held in (one, other))
    with numpy.errstate(all="ignore"):
        return numpy.linalg.norm(one - other) <= ALIKE * numpy.linalg.norm(other)


class DeviceClock:
    """Times calls on the legacy default stream."""

    is_device = True

    def __init__(self, opened):
        self.driver = Driver()
        # Lines that a function asks the cache to keep would survive the flush.
        self.driver.cuCtxSetLimit(PERSISTING_LIMIT, 0)
        self.ready, self.start, self.stop = (Event(self.driver) for _ in range(3))
        self.gate = Gate(self.driver, opened["page"])
        self.flush = Flush.of(self.driver, opened["cache"], opened["read_ptx"])
        self.calls = weakref.WeakKeyDictionary()

    def state(self, program):
        """The state of a program: calls so far, whether it can be gated, calls in a span."""
        state = self.calls.get(program)
        if state is None:
            state = {
                "calls": 0,
                "gated": self.gate.works,
                "most": MOST_CALLS,
                "last_ns": 0.0,
            }
            self.calls[program] = state
        return state

    def span(self, program, iterations):
        """The time of so many calls in nanoseconds, and whether it may hold some of the host's."""
        if program.framework.is_asynchronous:
            return self.host_span(program, iterations), True
        state = self.state(program)
        alone = self.flush is not None or program.restores
        elapsed, is_ungated, left = 0.0, False, iterations
        while left > 0:
            calls = min(left, 1 if alone else state["most"])
            program.restore()
            span, was_gated = self.one_span(program, calls, state)
            elapsed += span
            is_ungated |= not was_gated
            left -= calls
        return elapsed, is_ungated

    def one_span(self, program, calls, state):
        if self.flush is not None:
            self.flush.queue()
        gated = state["gated"] and state["calls"] >= UNGATED_CALLS
        state["calls"] += calls
        self.ready.record()
        gated = gated and self.gate.close()
        try:
            self.start.record()
            program.call_in_a_row(calls)
            self.stop.record()
            self.ready.wait()
        finally:
            was_late = gated and not self.gate.open()
        if was_late:
            # It waited for the device, or queued more than the stream holds.
            state["gated"] = calls > 1
            state["most"] = 1
        state["last_ns"] = self.stop.since_ns(self.start)
        return state["last_ns"], gated and not was_late

    def host_span(self, program, iterations):
        elapsed = 0
        for _ in range(iterations):
            program.restore()
            if self.flush is not None:
                self.flush.queue()
            self.driver.check(self.driver.cuCtxSynchronize(), "flushing the cache")
            start = perf_counter_ns()
            program.call()
            elapsed += perf_counter_ns() - start
        return elapsed

    def refuse_work_after_stop(self, program):
        """Refuses a function that keeps the device at work after the stop event."""
        if program.framework.is_asynchronous:
            return
        late = 0
        for _ in range(LATE_TRIES):
            elapsed, _ = self.span(program, 1)
            start = perf_counter()
            self.driver.check(self.driver.cuCtxSynchronize(), "running the function")
            idle_s = perf_counter() - start
            late += idle_s > LATE_S + LATE_PART * elapsed * 1e-9
        if late > LATE_TRIES // 2:
            reason = "the device works on after the call: it works outside the timed stream"
            raise faults.Refused("wrong", reason)
        self.state(program)["known"] = self.snapshot(program)

    def refuse_work_behind_gate(self, program):
        """Refuses a function whose results for inputs that it never saw are there while the stream
        in which it is called stands still. It is the first call for these inputs: memory that an
        allocator hands out again can't hold the results yet, but those that are the same for the known inputs."""
        state = self.state(program)
        known = state.pop("known", {})
        wait_s = max(2e-9 * state["last_ns"], 1e-3)
        if not state["gated"] or state["calls"] < UNGATED_CALLS or wait_s > MOST_WAIT_S:
            return
        program.restore()
        self.driver.check(self.driver.cuCtxSynchronize(), "running the function")
        if not self.gate.close():
            return
        try:
            program.call()
            sleep(wait_s)
            behind = self.snapshot(program)
        finally:
            in_time = self.gate.open()
        self.driver.check(self.driver.cuCtxSynchronize(), "running the function")
        if not in_time:
            return
        for name, after in self.snapshot(program).items():
            held = behind.get(name)
            if not after.size or not numpy.array_equal(held, after):
                continue
            whole = program.read()[name].array
            if not is_alike(known.get(name), after, whole.dtype) and not is_one_number(whole):
                reason = f"`{name}` was there before its stream went on: it works outside the timed stream"
                raise faults.Refused("wrong", reason)

    def snapshot(self, program):
        """The bytes of outputs as they are now, by a stream that waits for nothing."""
        stream = self.driver.made(ctypes.c_void_p, self.driver.cuStreamCreate, NON_BLOCKING)
        found = {}
        for name, array in program.arrays().items():
            size = min(program.framework.reach_bytes(array), MOST_COMPARED_BYTES)
            held = numpy.zeros(size, numpy.uint8)
            address = program.framework.address(array)
            result = self.driver.cuMemcpyDtoHAsync_v2(held.ctypes.data, address, size, stream)
            self.driver.check(result, "reading outputs")
            found[name] = held
        self.driver.check(self.driver.cuStreamSynchronize(stream), "reading outputs")
        return found
