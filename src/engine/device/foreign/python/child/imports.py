"""Calls functions after modules were imported, by whomever. Nothing is imported for them."""

import importlib.abc
import sys


class Imports(importlib.abc.MetaPathFinder):
    """Finds modules by the other finders, and has some of them followed by a function."""

    def __init__(self):
        # Functions that take a module, by the module's name.
        self.after = {}

    def stay_first(self):
        """Is asked for modules before all other finders."""
        sys.meta_path[:] = [self, *(finder for finder in sys.meta_path if finder is not self)]

    def find_spec(self, name, path=None, target=None):
        if name not in self.after:
            return None
        others = (finder for finder in sys.meta_path if finder is not self)
        for find in (getattr(finder, "find_spec", None) for finder in others):
            spec = find(name, path, target) if find else None
            if spec is not None:
                if hasattr(spec.loader, "exec_module"):
                    spec.loader = Loader(spec.loader, self.after[name])
                return spec
        return None


class Loader(importlib.abc.Loader):
    """Loads a module as its own loader does, and calls a function with it."""

    def __init__(self, loader, after):
        self.loader = loader
        self.after = after

    def create_module(self, spec):
        return self.loader.create_module(spec)

    def exec_module(self, module):
        module.__spec__.loader = module.__loader__ = self.loader
        self.loader.exec_module(module)
        self.after(module)


IMPORTS = Imports()
