"""Configurations that autotuners chose for kernels which a function launches: Triton's, of kernels
under `@triton.autotune`, and that of PyTorch's compiler.

They choose by timing, so that another run may end with another choice, and with it another time and
other bits. While a function is prepared, all its launches are noted: the choice may have been made
by this call, by a function before it, or by an earlier process that kept it in a file. Later the
methods that launch are the libraries' own again, and samples pay nothing; only the methods that
choose, which a launch without a choice never calls, are still watched. What a version of a library
does not tell is left out.
"""

import contextlib
import functools
import re
import sys

from .imports import IMPORTS

# Settings of a configuration beside its keyword values, in the order of the text, each with the
# value that says nothing.
SETTINGS = {
    "num_warps": None,
    "num_stages": None,
    "num_ctas": 1,
    "maxnreg": None,
    "num_consumer_groups": 0,
    "num_buffers_warp_spec": 0,
}


class Triton:
    """The autotuner of `triton.autotune`, with a configuration for each key."""

    module = "triton.runtime.autotuner"
    tuner = "Autotuner"
    choosing = "prune_configs"

    @staticmethod
    def launched(tuner):
        """The text of the launch that has just ended."""
        return text(tuner.base_fn.__name__, tuner.best_config) if len(tuner.configs) > 1 else None

    @staticmethod
    def begin(tuner):
        """A function for the texts of choices that are made from now on."""
        before = set(tuner.cache)
        return lambda: [text(tuner.base_fn.__name__, config)
                        for key, config in tuner.cache.items() if key not in before]


class Inductor:
    """The autotuner of PyTorch's compiler, with one configuration for all launches."""

    module = "torch._inductor.runtime.triton_heuristics"
    tuner = "CachingAutotuner"
    choosing = "autotune_to_one_config"

    @staticmethod
    def launched(tuner):
        """As of Triton."""
        if Inductor._is_compiling():
            return None
        known = getattr(tuner, "autotune_cache_info", None) or {}
        compiled = getattr(tuner, "compile_results", None) or tuner.configs or ()
        is_chosen = known.get("autotune_cache_state") in ("hit", "miss") or len(compiled) > 1
        # A template is one of several, and of the library's calls, for a product. Its configuration
        # is written into its source.
        is_template = getattr(getattr(tuner, "heuristic_type", None), "name", "") == "TEMPLATE"
        return Inductor._text(tuner) if is_chosen or is_template else None

    @staticmethod
    def begin(tuner):
        """As of Triton."""
        is_candidate = Inductor._is_compiling()
        return lambda: [] if is_candidate else [Inductor._text(tuner)]

    @staticmethod
    def _is_compiling():
        """Whether the compiler is at work: it launches candidates to time them."""
        held = sys.modules.get("torch._inductor.virtualized")
        return held is not None and not isinstance(held.V.graph, held.NullHandler)

    @staticmethod
    def _text(tuner):
        held = getattr(tuner, "inductor_meta", None) or {}
        name = held.get("kernel_name") or tuner.fn.__name__
        return text(name, tuner.launchers[0].config, held.get("config_args") or {})


def text(name, config, further=()):
    """A kernel and its configuration: `softmax_kernel: BLOCK=1024 num_warps=8 num_stages=2`."""
    values = {**dict(further), **getattr(config, "kwargs", {})}
    held = [(key, values[key]) for key in sorted(values) if key not in SETTINGS]
    for key, nothing in SETTINGS.items():
        value = getattr(config, key, values.get(key))
        if value not in (None, nothing):
            held.append((key, value))
    words = (f"{word(key)}={word(value)}" for key, value in held)
    return " ".join([f"{word(name)}:", *words])


def word(value):
    """A value without spaces, addresses of objects and what separates kernels."""
    held = getattr(value, "__name__", None) or str(value)
    return re.sub(r"[\s;]+", "_", re.sub(r" at 0x[0-9a-f]+", "", held))


class Watch:
    """Watches autotuners of libraries, once somebody has imported them."""

    def __init__(self, *libraries):
        # Classes that are watched, by the library's module.
        self.tuners = {}
        self.are_launches_noted = False
        self.found = set()
        self.begun = []
        for library in libraries:
            IMPORTS.after[library.module] = functools.partial(self.hook, library)

    def hook(self, library, module):
        """Watches the autotuner of a library that was imported."""
        with contextlib.suppress(Exception):
            tuner = getattr(module, library.tuner)
            setattr(tuner, library.choosing, self._choosing(library, getattr(tuner, library.choosing)))
        with contextlib.suppress(Exception):
            tuner = getattr(module, library.tuner)
            self.tuners[module.__name__] = (tuner, tuner.run, self._launching(library, tuner.run))
            if self.are_launches_noted:
                self._switch(module.__name__, True)

    def _choosing(self, library, own):
        @functools.wraps(own)
        def choose(tuner, *args, **kwargs):
            with contextlib.suppress(Exception):
                self.begun.append(library.begin(tuner))
            return own(tuner, *args, **kwargs)

        return choose

    def _launching(self, library, own):
        @functools.wraps(own)
        def run(tuner, *args, **kwargs):
            result = own(tuner, *args, **kwargs)
            # Somebody may have kept this method.
            if self.are_launches_noted:
                with contextlib.suppress(Exception):
                    self.found.add(library.launched(tuner))
            return result

        return run

    def _switch(self, name, is_on):
        tuner, own, noting = self.tuners[name]
        # A method that somebody else has put there since stays.
        if tuner.__dict__.get("run") is (own if is_on else noting):
            tuner.run = noting if is_on else own

    @contextlib.contextmanager
    def launches(self):
        """Notes all launches within, too."""
        self.are_launches_noted = True
        for name in self.tuners:
            self._switch(name, True)
        try:
            yield
        finally:
            self.are_launches_noted = False
            for name in self.tuners:
                self._switch(name, False)

    def forget(self):
        """Forgets what was noted so far: what follows is another function's."""
        self.found.clear()
        self.begun.clear()

    def texts(self):
        """What was noted, in order."""
        for chosen in self.begun:
            with contextlib.suppress(Exception):
                self.found.update(chosen())
        found = sorted(held for held in self.found if held)
        self.forget()
        return found


WATCH = Watch(Triton, Inductor)
