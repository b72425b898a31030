"""The streams to the process that started this one: frames of a length and a JSON text.

Functions of the user may print, read, and start processes. The two streams are moved away from
their descriptors first, so that nothing but frames is ever on them.
"""

import json
import os
import struct
import sys

LENGTH = struct.Struct("<I")


class Frames:
    """Requests come in and answers go out, in turns."""

    def __init__(self):
        self._requests = os.fdopen(os.dup(0), "rb")
        self._answers = os.fdopen(os.dup(1), "wb")
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        os.dup2(2, 1)
        sys.stdin = open(0, closefd=False)
        self._owner = os.getpid()

    def receive(self):
        """The next request; None at the end of the stream."""
        head = self._requests.read(LENGTH.size)
        if len(head) < LENGTH.size:
            return None
        (length,) = LENGTH.unpack(head)
        return json.loads(self._requests.read(length))

    def send(self, answer):
        """Writes an answer. A process that the user's function forked, and that came back here,
        ends instead."""
        if os.getpid() != self._owner:
            os._exit(0)
        # A half of a pair of surrogates is not text: whoever reads it would refuse the answer.
        body = json.dumps(answer, ensure_ascii=False).encode(errors="replace")
        self._answers.write(LENGTH.pack(len(body)) + body)
        self._answers.flush()
