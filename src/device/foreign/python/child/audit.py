"""Whether a function does the work that it is timed for: on inputs that it never saw, at addresses
that it never had, within the time that it takes.

A function that keeps results and hands them out again is wrong or slow on such inputs. One whose
work is done later, in a thread or on another stream, changes its results after the span ended.
"""

import time

from . import faults
from .arrays import same_bits

# The most calls on new inputs that are timed, and the pause before each but the first few: other
# work of the machine may slow some of them.
MOST_CALLS = 24
CALLS_AT_ONCE = 4
PAUSE_S = 0.01

# Arrays of earlier calls are kept up to so many bytes, so that an allocator hands out no address
# again.
MOST_KEPT_BYTES = 1 << 26

# The least that is waited for work after the end of a span.
LEAST_WAIT_S = 0.02


def audit(program, clock, given, timed, enough_ns):
    """The outputs for other inputs, and the time of a call in nanoseconds: of the first that takes
    no longer than is enough, or the least. Each timed call has contents and addresses of its own:
    those before, moved on by some elements. Inputs that a function of the user made may mean
    something else then: the one timed call has others of its making, `timed`."""
    held = program.given
    try:
        program.use(given)
        program.poison()
        clock.refuse_work_behind_gate(program)
        clock.span(program, 1)
        outputs = program.read()
        if timed is not None:
            program.use(timed)
            return outputs, clock.span(program, 1)[0]
        times, kept, kept_bytes = [], [], 0
        for step in range(1, MOST_CALLS + 1):
            if step > CALLS_AT_ONCE:
                time.sleep(PAUSE_S)
            moved = {name: program.framework.rolled(array, step) for name, array in given.items()}
            kept_bytes += sum(array.nbytes for array in moved.values())
            if kept_bytes <= MOST_KEPT_BYTES:
                kept.append(moved)
            program.use(moved)
            times.append(clock.span(program, 1)[0])
            if times[-1] <= enough_ns:
                break
        return outputs, min(times)
    finally:
        program.use(held)


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
