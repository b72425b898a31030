"""States of this process that all its functions share, and that each of them may change.

One table has them. After each turn of a function they are as they were before; a setting of the
function's own work, such as its number of threads, is made again for its next turn. The row of a
function that changed one says so. One that leaves what can't be put back loses the interpreter.
"""

import ctypes
import gc
import importlib
import os
import resource
import signal
import sys

import numpy

# The value of a state whose library is not loaded.
ABSENT = object()

# Variables by which libraries tell their own later parts, and other processes of theirs, something.
OF_LIBRARIES = ("TORCH", "_TORCH", "TRITON", "PYTORCH", "KINETO", "TPU_", "TF_", "XLA_", "KMP_")


class State:
    """A state: its name, how it is read and written. One that `stays` is made again for the
    function that changed it. `usual` is its value where a function itself loads the library."""

    def __init__(self, name, read, write, stays=False, usual=ABSENT):
        self.name, self.read, self.write, self.stays, self.usual = name, read, write, stays, usual


class FloatingPoint:
    """Modes of floating-point numbers of this thread: rounding, and what becomes of denormals."""

    # Of x86-64: the control word, and MXCSR behind the other registers of 28 bytes; its bits above
    # the first six are modes. Of 64-bit Arm: FPCR.
    PARTS = {"x86_64": ((0, 2, 0xFFFF), (28, 4, 0xFFC0)), "aarch64": ((0, 4, 0xFFFFFFFF),)}

    def __init__(self):
        self.libm = ctypes.CDLL("libm.so.6")
        self.parts = self.PARTS.get(os.uname().machine, ())

    def _environment(self):
        held = ctypes.create_string_buffer(64)
        self.libm.fegetenv(held)
        return held

    def read(self):
        held = self._environment().raw
        return tuple(int.from_bytes(held[at : at + size], "little") & mask
                     for at, size, mask in self.parts)

    def write(self, modes):
        held = self._environment()
        for (at, size, mask), mode in zip(self.parts, modes):
            word = int.from_bytes(held.raw[at : at + size], "little") & ~mask | mode
            held[at : at + size] = word.to_bytes(size, "little")
        self.libm.fesetenv(held)


class Pools:
    """Threads of the pools of C libraries that are loaded."""

    NAMES = (("omp_get_max_threads", "omp_set_num_threads"),
             ("openblas_get_num_threads", "openblas_set_num_threads"),
             ("openblas_get_num_threads64_", "openblas_set_num_threads64_"),
             ("scipy_openblas_get_num_threads64_", "scipy_openblas_set_num_threads64_"))
    FILES = ("openblas", "libgomp", "libiomp", "libomp")

    def __init__(self):
        self.pools = {}

    def look(self):
        """Looks for libraries that were loaded since."""
        with open("/proc/self/maps") as maps:
            lines = (line.rstrip("\n").partition("/")[2] for line in maps)
            files = {f"/{file}" for file in lines if any(name in file for name in self.FILES)}
        for file in files - {file for file, _ in self.pools}:
            for read, write in self.NAMES:
                try:
                    library = ctypes.CDLL(file, mode=os.RTLD_NOLOAD)
                    self.pools[file, read] = getattr(library, read), getattr(library, write)
                except (OSError, AttributeError):
                    continue

    def read(self):
        return {place: read() for place, (read, _) in self.pools.items()}

    def write(self, counts):
        for place, count in counts.items():
            self.pools[place][1](ctypes.c_int(count))


POOLS = Pools()


def of_torch(read, write):
    """How a state of PyTorch is read and written; one that a version does not have is absent."""

    def reads():
        torch = sys.modules.get("torch")
        try:
            return ABSENT if torch is None else read(torch)
        except (AttributeError, RuntimeError):
            return ABSENT

    return reads, lambda value: write(sys.modules["torch"], value)


def torch_flag(*path):
    """A flag of PyTorch by its dotted name."""

    def owner(torch):
        for name in path[:-1]:
            torch = getattr(torch, name)
        return torch

    return of_torch(lambda torch: getattr(owner(torch), path[-1]),
                    lambda torch, value: setattr(owner(torch), path[-1], value))


def limits():
    names = sorted(name for name in dir(resource) if name.startswith("RLIMIT_"))
    return {name: resource.getrlimit(getattr(resource, name)) for name in names}


def set_limits(held):
    for name, limit in held.items():
        if resource.getrlimit(getattr(resource, name)) != limit:
            resource.setrlimit(getattr(resource, name), limit)


def handlers():
    """Those that Python knows; the system has others."""
    held = {number: signal.getsignal(number) for number in signal.valid_signals()}
    return {number: handler for number, handler in held.items() if handler is not None}


def set_handlers(held):
    for number, handler in held.items():
        if signal.getsignal(number) is not handler:
            signal.signal(number, handler)


TIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)


def timers():
    """Whether each runs."""
    return [signal.getitimer(timer) != (0.0, 0.0) for timer in TIMERS]


def stop_timers(_):
    for timer in TIMERS:
        signal.setitimer(timer, 0)


def environment():
    return {name: value for name, value in os.environ.items() if not name.startswith(OF_LIBRARIES)}


def set_environment(held):
    for name in environment().keys() - held.keys():
        del os.environ[name]
    os.environ.update(held)


def streams():
    return sys.stdin, sys.stdout, sys.stderr


def set_streams(held):
    sys.stdin, sys.stdout, sys.stderr = held


def jax_settings():
    """Those of JAX but for the width of types, which `arrays` brings about before each call."""
    jax = sys.modules.get("jax")
    if not hasattr(jax, "config"):
        return ABSENT
    return {name: held for name, held in jax.config.values.items() if name != "jax_enable_x64"}


def set_jax(held):
    config = sys.modules["jax"].config
    for name, value in held.items():
        if config.values[name] != value:
            config.update(name, value)


# Modules whose functions this process works with: what a function puts in their place is taken out.
MODULES = ("time", "json", "json.decoder", "json.encoder", "os", "gc", "mmap", "resource", "signal",
           "struct", "threading", "numpy", "ctypes")


def functions():
    return {(name, key): held for name in MODULES if name in sys.modules
            for key, held in vars(sys.modules[name]).items() if key in FUNCTIONS[name]}


def set_functions(held):
    for (name, key), function in held.items():
        setattr(sys.modules[name], key, function)


FUNCTIONS = {name: {key for key, held in vars(importlib.import_module(name)).items()
                    if callable(held) and not key.startswith("__")}
             for name in MODULES}

_MODES = FloatingPoint()

STATES = [
    State("functions of modules", functions, set_functions),
    State("floating-point modes", _MODES.read, _MODES.write, stays=True),
    State("default dtype", *of_torch(lambda torch: torch.get_default_dtype(),
                                     lambda torch, held: torch.set_default_dtype(held)), stays=True),
    State("threads of PyTorch", *of_torch(lambda torch: torch.get_num_threads(),
                                          lambda torch, held: torch.set_num_threads(held)), stays=True),
    State("threads of libraries", POOLS.read, POOLS.write, stays=True),
    State("precision of products", *of_torch(lambda torch: torch.get_float32_matmul_precision(),
                                             lambda torch, held: torch.set_float32_matmul_precision(held)),
          stays=True, usual="highest"),
    State("tf32 of products", *torch_flag("backends", "cuda", "matmul", "allow_tf32"), stays=True, usual=False),
    State("tf32 of cuDNN", *torch_flag("backends", "cudnn", "allow_tf32"), stays=True, usual=True),
    State("cuDNN's benchmark", *torch_flag("backends", "cudnn", "benchmark"), stays=True, usual=False),
    State("cuDNN's determinism", *torch_flag("backends", "cudnn", "deterministic"), stays=True, usual=False),
    State("deterministic algorithms",
          *of_torch(lambda torch: torch.get_deterministic_debug_mode(),
                    lambda torch, held: torch.set_deterministic_debug_mode(held)), stays=True, usual=0),
    State("gradients", *of_torch(lambda torch: torch.is_grad_enabled(),
                                 lambda torch, held: torch.set_grad_enabled(held)), stays=True, usual=True),
    State("settings of JAX", jax_settings, set_jax, stays=True),
    State("errors of NumPy", numpy.geterr, lambda held: numpy.seterr(**held), stays=True),
    State("resource limits", limits, set_limits),
    State("signal handlers", handlers, set_handlers),
    State("blocked signals", lambda: signal.pthread_sigmask(signal.SIG_BLOCK, []),
          lambda held: signal.pthread_sigmask(signal.SIG_SETMASK, held)),
    State("timers", timers, stop_timers),
    State("processors", lambda: os.sched_getaffinity(0), lambda held: os.sched_setaffinity(0, held)),
    State("priority", lambda: os.getpriority(os.PRIO_PROCESS, 0),
          lambda held: os.setpriority(os.PRIO_PROCESS, 0, held)),
    State("os.environ", environment, set_environment, stays=True),
    State("folder", os.getcwd, os.chdir, stays=True),
    State("streams", streams, set_streams),
    State("garbage collection", gc.isenabled, lambda held: (gc.enable if held else gc.disable)()),
]


# Of a function whose products may have factors in tf32.
TF32 = {"precision of products": "high", "tf32 of products": True, "tf32 of cuDNN": True}


class Turn:
    """What a function changes in its turns. Those of a request that says so begin with tf32."""

    def __init__(self, request=None):
        self.changed = set()
        self.stated = TF32 if request and request.get("tf32") else {}
        # Values that are made again, by name.
        self.own = dict(self.stated)


class States:
    """The states of this process between turns."""

    def __init__(self):
        self.turn = None
        self.held = {}
        self.take()

    def take(self):
        """Takes all states as they are now for those between turns."""
        POOLS.look()
        self.held = {state.name: state.read() for state in STATES}

    def enter(self, turn):
        """Begins a turn: settings of a function are made again."""
        self.turn = turn
        for state in STATES:
            if state.name in turn.own:
                state.write(turn.own[state.name])

    def leave(self):
        """Ends the turn, if there is one: what it changed is put back. The names of all that it has
        changed so far, and whether some of that is left."""
        turn, self.turn = self.turn, None
        if turn is None:
            return [], False
        is_left = False
        for state in STATES:
            now, before = state.read(), self.held[state.name]
            if before is ABSENT and now is not ABSENT:
                before = self.held[state.name] = now if state.usual is ABSENT else state.usual
            if now == before or now is ABSENT:
                turn.own.pop(state.name, None)
                continue
            if turn.stated.get(state.name, ABSENT) != now:
                turn.changed.add(state.name)
            if state.stays:
                turn.own[state.name] = now
            is_left |= not put_back(state, before)
        return sorted(turn.changed), is_left


def put_back(state, before):
    """Whether a state is again as it was."""
    try:
        state.write(before)
        return state.read() == before
    except Exception:
        return False
