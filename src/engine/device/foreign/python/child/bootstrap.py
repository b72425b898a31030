"""Makes the modules that stand in the first frame, and calls `serve` of the one that is `main`.

No file is written for them, and no name of theirs can be that of a module of the user.
"""

import importlib.util
import json
import struct
import sys
import types

PACKAGE = "sweeper_child"


class Finder:
    """Finds the modules of the package among texts."""

    def __init__(self, texts):
        self.texts = texts

    def find_spec(self, name, path=None, target=None):
        if name.rpartition(".")[0] != PACKAGE or name.rpartition(".")[2] not in self.texts:
            return None
        return importlib.util.spec_from_loader(name, self, origin=name)

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        name = module.__name__.rpartition(".")[2]
        exec(compile(self.texts[name], f"<sweeper {name}.py>", "exec"), module.__dict__)


def first_frame():
    # Without a buffer, which would take the frames that follow.
    stream = open(0, "rb", buffering=0, closefd=False)

    def read(count):
        held = b""
        while len(held) < count:
            piece = stream.read(count - len(held))
            if not piece:
                sys.exit(0)
            held += piece
        return held

    (length,) = struct.unpack("<I", read(4))
    return json.loads(read(length))


texts = first_frame()
package = types.ModuleType(PACKAGE)
package.__path__ = []
sys.modules[PACKAGE] = package
sys.meta_path.insert(0, Finder(texts))
try:
    from sweeper_child import main
except ImportError as error:
    reason = f"{sys.executable} does not have the package `{error.name}`, which is needed"
    answer = {"error": {"status": "unavailable", "reason": reason}}
    body = json.dumps(answer, ensure_ascii=False).encode(errors="replace")
    sys.stdout.buffer.write(struct.pack("<I", len(body)) + body)
    sys.stdout.buffer.flush()
    sys.exit(1)
main.serve()
