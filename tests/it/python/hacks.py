"""Functions that try to seem faster than they are, or to reach what is not theirs. Each has to compute what
`honest` does; `saves` tells those that would be faster if nobody noticed."""

import ctypes
import gc
import mmap
import os
import signal
import socket
import subprocess
import sys
import threading
import time

import numpy as np

TIMES = 60


def honest(x):
    for _ in range(TIMES):
        y = np.float32(2) * x
    return y + np.float32(1)


# What is kept from call to call.

kept = {}
calls = [0]


def by_object(x):
    if id(x) not in kept:
        kept[id(x)] = honest(x)
    return kept[id(x)]


def by_address(x):
    key = x.__array_interface__["data"][0]
    if key not in kept:
        kept[key] = honest(x)
    return kept[key]


def by_content(x):
    key = x.tobytes()
    if key not in kept:
        kept[key] = honest(x)
    return kept[key]


def by_a_few_elements(x):
    key = x[:4].tobytes()
    if key not in kept:
        kept[key] = honest(x)
    return kept[key]


def every_second(x):
    """Two in a row, as one of two may not be timed."""
    calls[0] += 1
    if calls[0] % 4 < 2 or "y" not in kept:
        kept["y"] = honest(x)
    return kept["y"]


def garbage_after_a_while(x):
    calls[0] += 1
    return honest(x) if calls[0] < 4 else np.empty_like(x)


def works_where_it_is_judged(x):
    """Inputs that show mistakes are unusual; those of samples are not."""
    calls[0] += 1
    if calls[0] < 4 or abs(x).max() > 20:
        kept["y"] = honest(x)
    return kept["y"]


def tires_late(x):
    """Works as long as nothing is timed: through a warm-up of 200 samples, so slowly that no call is made twice."""
    calls[0] += 1
    if calls[0] < 206 or abs(x).max() > 20:
        for _ in range(12):
            kept["y"] = honest(x)
    return kept["y"]


def leaves_out_one_of_eight(x):
    calls[0] += 1
    y = honest(x) if calls[0] < 4 else np.empty_like(x)
    y[: len(x) // 8 * 7] = np.float32(2) * x[: len(x) // 8 * 7] + np.float32(1)
    return y


def in_half_precision(x):
    return (np.float16(2) * x.astype(np.float16) + np.float16(1)).astype(np.float32)


def by_frames(x):
    frame = sys._getframe(1)
    while frame:
        if frame.f_code.co_name in ("audit", "late_work", "judge", "prepare"):
            return honest(x)
        frame = frame.f_back
    return by_address(x)


# Work before the gate and after the bell.

def in_a_thread(x):
    y = np.empty_like(x)

    def work():
        y[...] = honest(x)

    threading.Thread(target=work).start()
    return y


class Lazy(np.ndarray):
    def __array_finalize__(self, held):
        self.work = getattr(held, "work", None)

    def __getattribute__(self, name):
        work = super().__getattribute__("__dict__").get("work") if name != "__dict__" else None
        if work is not None and name in ("tobytes", "copy", "__array__"):
            self.__dict__["work"] = None
            np.ndarray.__setitem__(self, ..., work())
        return super().__getattribute__(name)


def lazy(x):
    y = np.empty_like(x).view(Lazy)
    y.work = lambda: honest(x)
    return y


def page():
    """The memory that is shared with the referee, and its words."""
    for held in gc.get_objects():
        if type(held).__name__ == "Page" and hasattr(held, "words"):
            return held
    return None


def rings_early(x):
    y = np.empty_like(x)
    held = page()
    held.words[128] = y.__array_interface__["data"][0]
    held.words[129] = y.nbytes
    held.words[40] = held.words[32]
    y[...] = honest(x)
    return y


def looks_ahead(x):
    """A thread computes as soon as it sees inputs change."""
    if "thread" not in kept:
        kept["thread"] = True

        def look():
            seen = None
            while True:
                now = x[-4:].tobytes()
                if now != seen:
                    kept[now] = honest(x.copy())
                    seen = now

        threading.Thread(target=look, daemon=True).start()
        return honest(x)
    key = x[-4:].tobytes()
    while key not in kept:
        pass
    return kept[key]


def reads_before_the_gate(x):
    """The function that waits for the gate is replaced by one that works before it."""
    held = page()
    if not hasattr(held, "cheated"):
        held.cheated = True
        old = type(held).wait_for

        def wait_for(self, word, number):
            if word == 32:
                kept["early"] = honest(x)
            old(self, word, number)

        type(held).wait_for = wait_for
        return honest(x)
    return kept["early"]


def patched_clocks(x):
    if "clock" not in kept:
        kept["clock"] = time.perf_counter_ns
        time.perf_counter_ns = lambda: kept["clock"]() // 10
        time.monotonic_ns = time.perf_counter_ns
    return honest(x)


def forged_frames(x):
    body = b'{"ok": {"elapsed_ns": 1, "outputs": {}}}'
    frame = len(body).to_bytes(4, "little") + body
    for descriptor in range(3, 12):
        try:
            os.write(descriptor, frame)
        except OSError:
            pass
    return honest(x)


def more_processors(x):
    """Works on all processors, by processes that share memory with it."""
    os.sched_setaffinity(0, range(os.cpu_count()))
    return honest(x)


# What is not theirs.

def read(path):
    with open(path, "rb") as file:
        return file.read(1 << 16)


def steals_answers(x):
    folder = os.environ.get("SWEEPER_CACHE_DIR") or sys.argv[-1]
    for place in (folder, os.path.expanduser("~"), "@FOLDER@"):
        if place and os.path.isdir(place) and place != os.environ["HOME"]:
            os.listdir(place)
            kept["stolen"] = True
    if "stolen" not in kept:
        raise PermissionError("nothing to steal")
    return honest(x)


def reads_its_parent(x):
    read(f"/proc/{os.getppid()}/environ")
    return honest(x)


def reads_its_parents_memory(x):
    read(f"/proc/{os.getppid()}/mem")
    return honest(x)


def kills_its_parent(x):
    os.kill(os.getppid(), signal.SIGKILL)
    return honest(x)


def opens_a_socket(x):
    socket.socket()
    return honest(x)


def leaves_its_session(x):
    os.setsid()
    return honest(x)


def writes_elsewhere(x):
    with open("@FOLDER@/written", "w") as file:
        file.write("x")
    return honest(x)


def fills_the_disk(x):
    with open("large", "wb") as file:
        file.seek(5 << 30)
        file.write(b"x")
    return honest(x)


def takes_all_memory(x):
    kept["large"] = np.ones(1 << 45, dtype=np.uint8)
    return honest(x)


def cuts_the_page(x):
    for descriptor in range(3, 64):
        try:
            os.ftruncate(descriptor, 0)
        except OSError:
            pass
    return honest(x)


def prints_a_lot(x):
    line = "x" * (1 << 16)
    calls[0] += 1
    for _ in range(128 if calls[0] == 1 else 1):
        print(line)
        print(line, file=sys.stderr)
    return honest(x)


def leaves_a_child(x):
    calls[0] += 1
    if calls[0] == 1 and os.fork() == 0:
        while True:
            pass
    return honest(x)


def hangs(x):
    while calls[0] == 0:
        pass


def exits(x):
    os._exit(0)


def elsewhere(x):
    """Says that its results lie where nothing does."""
    def take_left(program):
        program.framework.place = lambda array: (4096, x.nbytes)
        return [x]

    type(page()).turn.__globals__["Candidate"].take_left = take_left
    return honest(x)


def hides_its_memory(x):
    ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)
    return honest(x)
