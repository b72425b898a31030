"""How much memory a function takes on a CPU, where libraries do not count it."""

import ctypes

# A longer function is not called once more to find out.
LONGEST_NS = 2e9


def trim():
    """Gives memory that is free back to the system; whether the allocator can do that."""
    give_back = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return give_back is not None and bool(give_back(0))


def growth_bytes(call):
    """How many bytes this process holds more during a call than before it; zero where the system does not tell. What
    the allocator kept is given back first: memory that is used again is not growth."""
    trim()
    try:
        with open("/proc/self/clear_refs", "w") as file:
            # The most that it held so far is what it holds now.
            file.write("5")
        before = status_bytes("VmRSS:")
    except OSError:
        return 0
    call()
    return max(0, status_bytes("VmHWM:") - before)


def status_bytes(key):
    with open("/proc/self/status") as file:
        for line in file:
            if line.startswith(key):
                return 1024 * int(line.split()[1])
    return 0
