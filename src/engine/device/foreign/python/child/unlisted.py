"""Files of the user that a function loaded though they are not part of the run's identity: the scan
of imports did not see them, as those of `importlib` or of a package that is installed as editable."""

import os
import re
import site
import sys
import sysconfig
from importlib import metadata

# Where libraries keep sources that they make themselves.
MADE = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "NUMBA_CACHE_DIR", "CUPY_CACHE_DIR")


# Folders of installed packages, and for which caches they were looked for: that takes some milliseconds.
FOLDERS = None


def loaded():
    """The files of all modules."""
    files = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
    return {os.path.abspath(file) for file in files if isinstance(file, str)}


class Unlisted:
    """Those that functions of one interpreter loaded so far."""

    def __init__(self):
        # The last parts of their modules' names.
        self.names = {}

    def of(self, before, texts):
        """The files that a function depends on whose listed ones have these texts, by path: those that were loaded
        since, and those that were loaded earlier and are named in a text of it. Those of the interpreter and of
        installed packages, whose versions are part of the identity, and made ones are none."""
        listed = {os.path.abspath(file) for file in texts}
        new = {file for file in loaded() - before - listed if not is_installed(file)}
        for name, module in list(sys.modules.items()) if new else ():
            file = getattr(module, "__file__", None)
            if isinstance(file, str) and os.path.abspath(file) in new:
                self.names[os.path.abspath(file)] = name.rpartition(".")[2]
        reached = set(new)
        words = set().union(*map(words_of, texts.values()), *(words_of(read(file)) for file in new))
        while further := {file for file, name in self.names.items()
                          if name in words and file not in reached | listed}:
            reached |= further
            words.update(*(words_of(read(file)) for file in further))
        return sorted(reached)


def words_of(text):
    return set(re.findall(r"\w+", text))


def read(file):
    """The text of a file; none of one that is not text."""
    try:
        with open(file, encoding="utf-8") as held:
            return held.read()
    except (OSError, UnicodeDecodeError):
        return ""


def is_installed(file):
    """Whether a file is one of the interpreter, of an installed package or of a cache."""
    global FOLDERS
    names = [os.environ.get(name) for name in MADE]
    if FOLDERS is None or FOLDERS[0] != names:
        FOLDERS = names, tuple(f"{folder}{os.sep}" for folder in folders())
    return os.path.realpath(file).startswith(FOLDERS[1])


def folders():
    """Folders whose files belong to packages with a version, or to a cache."""
    held = {sys.prefix, sys.base_prefix, site.getusersitepackages(), *sysconfig.get_paths().values()}
    held.update(os.environ[name] for name in MADE if name in os.environ)
    held.update(str(package.locate_file("")) for package in metadata.distributions())
    return {os.path.realpath(folder) for folder in held if folder}
