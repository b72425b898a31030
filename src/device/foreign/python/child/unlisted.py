"""Files of the user that a function loaded though they are no part of the run's identity: the scan
of imports did not see them, as those of `importlib` or of a package that is edited where it lies."""

import os
import site
import sys
import sysconfig
from importlib import metadata

# Where libraries keep sources that they make themselves.
MADE = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "NUMBA_CACHE_DIR", "CUPY_CACHE_DIR")


def loaded():
    """The files of all modules."""
    files = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
    return {os.path.abspath(file) for file in files if isinstance(file, str)}


def unlisted(before, listed):
    """Files that were loaded since, but for the listed ones, those of the interpreter and of
    installed packages, whose versions are part of the identity, and made ones."""
    new = loaded() - before - {os.path.abspath(file) for file in listed}
    if not new:
        return []
    known = tuple(f"{folder}{os.sep}" for folder in folders())
    return sorted(file for file in new if not os.path.realpath(file).startswith(known))


def folders():
    """Folders whose files belong to packages with a version, or to a cache."""
    held = {sys.prefix, sys.base_prefix, site.getusersitepackages(), *sysconfig.get_paths().values()}
    held.update(os.environ[name] for name in MADE if name in os.environ)
    held.update(str(package.locate_file("")) for package in metadata.distributions())
    return {os.path.realpath(folder) for folder in held if folder}
