"""The outcome of a request that failed: a status of the engine, and a sentence for people."""

import os
import sys
import traceback


class Refused(Exception):
    """A failure whose status is known where it is raised. `ends` says that this interpreter can't
    go on."""

    def __init__(self, status, reason, ends=False):
        super().__init__(reason)
        self.status = status
        self.ends = ends


def refused_for_chance():
    """A reference that is right in one evaluation is wrong in the next."""
    return Refused("error", "it draws random numbers: two evaluations of it differ, and no result can be judged by "
                            "them. Take the numbers as an input, or leave them out (`eval()`)")


# Names of exception classes, of whatever library, by the status that they mean.
CLASSES = {
    "unavailable": {"ModuleNotFoundError", "NotImplementedError"},
    "oom": {"MemoryError", "OutOfMemoryError", "XlaOutOfMemoryError"},
    "compile_error": {
        "SyntaxError",
        "IndentationError",
        "CompilationError",
        "CompileTimeAssertionFailure",
        "UnsupportedLanguageConstruct",
        "InductorError",
        "BackendCompilerFailed",
        "Unsupported",
        "TorchRuntimeError",
        "UserError",
        "CompileException",
        "NVRTCError",
        "LoweringError",
        "TypingError",
        "PTXASError",
    },
    "launch_error": {"OutOfResources"},
}

# Words in messages, where the class says nothing.
WORDS = [
    # Triton without a GPU.
    ("unavailable", ["0 active drivers"]),
    # JAX without a kind of device.
    ("unavailable", ["Unknown backend", "' failed to initialize: "]),
    ("crashed", ["illegal memory access", "an illegal instruction", "misaligned address",
                 "unspecified launch failure", "device-side assert triggered", "hardware stack error"]),
    ("oom", ["RESOURCE_EXHAUSTED", "out of memory", "Unable to allocate", "Cannot allocate memory",
             "can't allocate memory"]),
    ("launch_error", ["invalid configuration argument", "too many resources requested",
                      "invalid argument", "no kernel image"]),
]


def status_of(error):
    """The status that an exception means."""
    if isinstance(error, Refused):
        return error.status
    names = {held.__name__ for held in type(error).__mro__}
    for status, classes in CLASSES.items():
        if names & classes:
            return status
    if isinstance(error, (RuntimeError, ValueError)) or "Error" in type(error).__name__:
        for status, words in WORDS:
            if any(word in str(error) for word in words):
                return status
    return "error"


def answer(error, files=()):
    """An exception as an answer. The reason is one line; `files` are the user's, whose last line
    in the traceback is named."""
    text = str(error).strip().splitlines()
    first = text[0] if text else ""
    if isinstance(error, Refused):
        reason = str(error)
    else:
        reason = f"{type(error).__name__}: {first}" if first else type(error).__name__
        place = place_of(error, files)
        if place:
            reason = f"{place}: {reason}"
    traceback.print_exception(type(error), error, error.__traceback__, file=sys.stderr)
    sys.stderr.flush()
    status = status_of(error)
    ends = status == "crashed" or getattr(error, "ends", False) is True
    return {"error": {"status": status, "reason": reason, "ends": ends}}


def place_of(error, files):
    """File and line where an exception left the user's own files."""
    if isinstance(error, SyntaxError) and error.filename in files:
        return f"{os.path.basename(error.filename)}:{error.lineno}"
    held = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in held if frame.filename in files]
    return f"{os.path.basename(own[-1].filename)}:{own[-1].lineno}" if own else ""


def import_error(error, what):
    """An import that failed: a package that is not here, or a file that is wrong."""
    if isinstance(error, ModuleNotFoundError):
        said = str(error)
        # A source may say itself how a package is installed.
        help = f"install it for {sys.executable}" if said.startswith("No module named") else said
        return Refused("unavailable", f"{what} needs the package `{error.name}`, which is not here: {help}")
    return error
