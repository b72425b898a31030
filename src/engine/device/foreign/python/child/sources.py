"""The user's source, executed from the text that was read and hashed with the manifest.

Modules beside it that it imports come from such texts as well, so that the measured code is that
of the run's identity. Everything else is imported as always.
"""

import ast
import hashlib
import importlib
import importlib.abc
import importlib.util
import linecache
import sys

from . import faults, unlisted
from .imports import IMPORTS

# The name under which the user's main file is executed.
MAIN = "sweeper_user"


class Texts(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds modules among texts."""

    def __init__(self, modules):
        # Path and text by the module's name.
        self.modules = modules

    def find_spec(self, name, path=None, target=None):
        if name not in self.modules:
            return None
        file = self.modules[name]["path"]
        is_package = file.endswith("__init__.py")
        spec = importlib.util.spec_from_loader(name, self, origin=file, is_package=is_package)
        if is_package:
            spec.submodule_search_locations = [file.rsplit("/", 1)[0]]
        spec.has_location = True
        return spec

    def exec_module(self, module):
        held = self.modules[module.__name__]
        module.__file__ = held["path"]
        execute(module, held["path"], ast.parse(held["text"], held["path"]), held["text"])

    def get_source(self, name):
        return self.modules[name]["text"]


def execute(module, path, tree, text):
    """Executes a tree in a module. Tools that look at a function's source find the text."""
    linecache.cache[path] = (len(text), None, text.splitlines(True), path)
    exec(compile(tree, path, "exec"), module.__dict__)


def search(folders):
    """Has modules of the user be looked for in folders."""
    for folder in folders:
        if folder not in sys.path:
            sys.path.append(folder)


def load(source, folders, constants=None):
    """The module that a backend's source is. Names that it gives values to may have others."""
    search(folders)
    before = set(sys.modules)
    try:
        return loaded(source, constants)
    except BaseException:
        forget(set(sys.modules) - before)
        raise


def forget(names):
    """Forgets modules of the user that came with an import that failed: the next one would find some of them without
    their packages. Installed packages stay, since not all of them can be loaded twice."""
    for name in names:
        file = getattr(sys.modules.get(name), "__file__", None)
        if isinstance(file, str) and not unlisted.is_installed(file):
            sys.modules.pop(name, None)


def loaded(source, constants):
    is_module = "module" in source
    # A main file is not a module, unless it is imported as one.
    modules = source.get("files", [])[0 if is_module else 1 :]
    if modules:
        sys.meta_path.insert(0, Texts({held["module"]: held for held in modules}))
        IMPORTS.stay_first()
    if is_module:
        name = source["module"]
        try:
            return importlib.import_module(name)
        except ImportError as error:
            raise faults.import_error(error, f"`{name}`") from error
    main = source["files"][0]
    path, text = main["path"], main["text"]
    tree = ast.parse(text, path)
    if source["load"] == "definitions":
        tree = definitions(tree)
    if constants:
        tree = with_constants(tree, constants)
    identity = [path, source["load"], text, repr(sorted((constants or {}).items()))]
    digest = hashlib.sha256("\0".join(identity).encode()).hexdigest()
    name = f"{MAIN}_{digest[:16]}"
    if name in sys.modules:
        return sys.modules[name]
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader=None))
    module.__file__ = path
    sys.modules[name] = module
    try:
        execute(module, path, tree, text)
    except BaseException as error:
        del sys.modules[name]
        if isinstance(error, ImportError):
            raise faults.import_error(error, path.rsplit("/", 1)[-1]) from error
        raise
    return module


def entry(module, name, what):
    """The object that a dotted name leads to."""
    held = module
    for part in name.split("."):
        try:
            held = getattr(held, part)
        except AttributeError:
            near = [own for own in vars(module) if not own.startswith("_") and callable(getattr(module, own))]
            shown = " ".join(sorted(near)[:8])
            raise faults.Refused("unavailable", f"{what} has no `{name}`; it has: {shown}") from None
    if not callable(held):
        raise faults.Refused("unavailable", f"`{name}` of {what} is not a function")
    return held


def with_constants(tree, values):
    """A file in which names have these values from where it gives them others."""
    body = []
    for node in tree.body:
        body.append(node)
        if not isinstance(node, (ast.Assign, ast.AnnAssign)):
            continue
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        stored = [held.id for target in targets for held in ast.walk(target)
                  if isinstance(held, ast.Name) and isinstance(held.ctx, ast.Store)]
        for name in stored:
            if name in values:
                value = ast.Assign([ast.Name(name, ast.Store())], ast.Constant(values[name]))
                body.append(ast.fix_missing_locations(ast.copy_location(value, node)))
    return ast.Module(body=body, type_ignores=[])


def definitions(tree):
    """A file's definitions, without its actions: bare calls, assertions, loops and values that its
    own functions compute are left out, and all that needs such a value, or one that they change."""
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    return ast.Module(body=kept(tree.body, functions, set(), set()), type_ignores=[])


def kept(body, functions, values, missing):
    """The statements of a body that define something. `values` are names that such a statement gave one to, and
    `missing` are those whose values are not what the whole file would make them."""
    found = []
    for node in body:
        stored = {held.id for held in ast.walk(node) if isinstance(held, ast.Name) and isinstance(held.ctx, ast.Store)}
        if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
            used = {held.id for held in ast.walk(node) if isinstance(held, ast.Name)}
            called = {held.func.id for held in ast.walk(node)
                      if isinstance(held, ast.Call) and isinstance(held.func, ast.Name)}
            if called & functions or used & missing:
                missing |= stored
            else:
                values |= stored
                found.append(node)
        elif isinstance(node, (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef,
                               ast.AsyncFunctionDef, ast.Try)):
            found.append(node)
        elif isinstance(node, ast.If) and "__name__" not in {
            held.id for held in ast.walk(node.test) if isinstance(held, ast.Name)
        }:
            node.body = kept(node.body, functions, values, missing) or [ast.Pass()]
            node.orelse = kept(node.orelse, functions, values, missing)
            found.append(ast.fix_missing_locations(node))
        else:
            missing |= stored | changed(node) & values
    return found


def changed(node):
    """Names whose values a statement may change in place: by a method, or by an element or attribute of theirs."""
    places = [held.func.value for held in ast.walk(node)
              if isinstance(held, ast.Call) and isinstance(held.func, ast.Attribute)]
    places += [held.value for held in ast.walk(node)
               if isinstance(held, (ast.Subscript, ast.Attribute)) and isinstance(held.ctx, ast.Store)]
    found = set()
    for place in places:
        while isinstance(place, (ast.Attribute, ast.Subscript)):
            place = place.value
        if isinstance(place, ast.Name):
            found.add(place.id)
    return found
