"""A gate in the stream: the device waits at it until the host opens it.

Its word lies in a page that is shared with the process that started this one. A thread there opens
a gate that stays closed for too long, whatever holds the interpreter here.
"""

import ctypes
import mmap
import os

from .driver import STREAM

PAGE_BYTES = 4096
DEVICE_MAP = 2
REACHED = 0


class Gate:
    """A gate, open at first. `works` is false where the device can't wait for such memory."""

    def __init__(self, driver, path):
        self.driver = driver
        file = os.open(path, os.O_RDWR)
        self.page = mmap.mmap(file, PAGE_BYTES)
        os.close(file)
        # Number of the last closing that was opened again, and of the last closing.
        self.opened = ctypes.c_uint32.from_buffer(self.page, 0)
        self.closed = ctypes.c_uint32.from_buffer(self.page, 4)
        self.closings = self.closed.value
        address = ctypes.addressof(self.opened)
        registered = driver.cuMemHostRegister_v2(address, PAGE_BYTES, DEVICE_MAP)
        self.works = registered == 0
        if self.works:
            self.address = driver.made(
                ctypes.c_uint64, driver.cuMemHostGetDevicePointer_v2, address, 0
            )
            self.works = self._try_once()

    def _try_once(self):
        tried = self.close()
        self.open()
        return tried and self.driver.cuCtxSynchronize() == 0

    def close(self):
        """Work that is queued from now on waits until the gate is opened. False where it can't."""
        self.closings = (self.closings + 1) & 0xFFFFFFFF
        self.closed.value = self.closings
        result = self.driver.cuStreamWaitValue32_v2(STREAM, self.address, self.closings, REACHED)
        if result != 0:
            self.open()
        return result == 0

    def open(self):
        """Lets the stream go on; false if the other process has already."""
        was_closed = self.opened.value != self.closings
        self.opened.value = self.closings
        return was_closed
