"""Brings the device's second-level cache into a state before a call, as `src/device/cuda/flush.rs`
does before a kernel: writing other memory pushes everything else out, and for a clean cache as much
is read then."""

import ctypes

from .driver import STREAM

LEAST_BYTES = 64 << 20
VECTOR_BYTES = 16
THREADS = 128
BLOCKS_EACH = 16
WORD = 0x9E3779B9

L2_CACHE_SIZE = 38
MULTIPROCESSORS = 16


class Flush:
    """Pushes everything out of the cache."""

    @staticmethod
    def of(driver, cache, read_ptx):
        return None if cache == "hot" else Flush(driver, cache == "clean", read_ptx)

    def __init__(self, driver, reads, read_ptx):
        self.driver = driver
        size = max(2 * driver.attribute(L2_CACHE_SIZE), LEAST_BYTES)
        self.size = -(-size // VECTOR_BYTES) * VECTOR_BYTES
        self.turn = 0
        self.written = driver.made(ctypes.c_uint64, driver.cuMemAlloc_v2, self.size)
        self.function = None
        if reads:
            self.read = driver.made(ctypes.c_uint64, driver.cuMemAlloc_v2, self.size)
            self._fill(self.read, WORD)
            module = driver.made(ctypes.c_void_p, driver.cuModuleLoadData, read_ptx.encode())
            self.function = driver.made(
                ctypes.c_void_p, driver.cuModuleGetFunction, module, b"read_all"
            )
            self.blocks = driver.attribute(MULTIPROCESSORS) * BLOCKS_EACH
            self.cells = (ctypes.c_uint64 * 2)(self.read, self.size)
            step = ctypes.sizeof(ctypes.c_uint64)
            self.pointers = (ctypes.c_void_p * 2)(
                *(ctypes.addressof(self.cells) + step * place for place in range(2))
            )

    def _fill(self, address, word):
        result = self.driver.cuMemsetD32Async(address, word, self.size // 4, STREAM)
        self.driver.check(result, "flushing the cache")

    def queue(self):
        """Writes other words than the last time, and never zeros."""
        self.turn = (self.turn + 1) & 0xFFFFFFFF
        self.driver.cuCtxResetPersistingL2Cache()
        self._fill(self.written, self.turn * WORD & 0xFFFFFFFF | 1)
        if self.function is not None:
            result = self.driver.cuLaunchKernel(
                self.function, self.blocks, 1, 1, THREADS, 1, 1, 0, STREAM, self.pointers, None
            )
            self.driver.check(result, "reading the cache clean")
