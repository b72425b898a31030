"""Calls of the CUDA driver, on the legacy default stream: the one on which libraries work, and
kernels that are launched without a stream."""

import ctypes

from . import faults

STREAM = None

# Errors after which the context is of no use.
STICKY = {214, 700, 702, 710, 714, 715, 716, 717, 718, 719, 999}
OUT_OF_MEMORY = 2

_P = ctypes.c_void_p


class IpcHandle(ctypes.Structure):
    """`CUipcMemHandle`: what another process opens an allocation by."""

    _fields_ = [("bytes", ctypes.c_ubyte * 64)]


_SIGNATURES = {
    "cuInit": [ctypes.c_uint],
    "cuDeviceGet": [_P, ctypes.c_int],
    "cuDeviceGetAttribute": [_P, ctypes.c_int, ctypes.c_int],
    "cuDevicePrimaryCtxSetFlags_v2": [ctypes.c_int, ctypes.c_uint],
    "cuDevicePrimaryCtxRetain": [_P, ctypes.c_int],
    "cuCtxSetCurrent": [_P],
    "cuCtxSetLimit": [ctypes.c_int, ctypes.c_size_t],
    "cuCtxSynchronize": [],
    "cuCtxResetPersistingL2Cache": [],
    "cuMemAlloc_v2": [_P, ctypes.c_size_t],
    "cuMemGetAddressRange_v2": [_P, _P, ctypes.c_uint64],
    "cuIpcGetMemHandle": [_P, ctypes.c_uint64],
    "cuIpcOpenMemHandle_v2": [_P, IpcHandle, ctypes.c_uint],
    "cuIpcCloseMemHandle": [ctypes.c_uint64],
    "cuMemsetD32Async": [ctypes.c_uint64, ctypes.c_uint, ctypes.c_size_t, _P],
    "cuMemHostRegister_v2": [_P, ctypes.c_size_t, ctypes.c_uint],
    "cuMemHostGetDevicePointer_v2": [_P, _P, ctypes.c_uint],
    "cuMemcpyDtoHAsync_v2": [_P, ctypes.c_uint64, ctypes.c_size_t, _P],
    "cuStreamCreate": [_P, ctypes.c_uint],
    "cuStreamSynchronize": [_P],
    "cuStreamQuery": [_P],
    "cuStreamWaitValue32_v2": [_P, ctypes.c_uint64, ctypes.c_uint, ctypes.c_uint],
    "cuStreamWriteValue32_v2": [_P, ctypes.c_uint64, ctypes.c_uint, ctypes.c_uint],
    "cuEventCreate": [_P, ctypes.c_uint],
    "cuEventRecord": [_P, _P],
    "cuEventSynchronize": [_P],
    "cuEventElapsedTime": [_P, _P, _P],
    "cuModuleLoadData": [_P, ctypes.c_char_p],
    "cuModuleGetFunction": [_P, _P, ctypes.c_char_p],
    "cuLaunchKernel": [_P, *[ctypes.c_uint] * 7, _P, _P, _P],
}


# Opening lets the GPU of this process read it.
LAZY_PEER_ACCESS = 1


class Bytes:
    """Memory of a GPU, as libraries take it without a copy."""

    def __init__(self, address, count):
        self.__cuda_array_interface__ = {
            "data": (address, False), "shape": (count,), "typestr": "|u1", "strides": None, "version": 2}


class Driver:
    """The driver's library, with a context current."""

    def __init__(self):
        try:
            self.driver = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise faults.Refused("unavailable", f"there is no CUDA driver: {error}") from None
        for name, arguments in _SIGNATURES.items():
            function = getattr(self.driver, name)
            function.argtypes = arguments
            function.restype = ctypes.c_int
            setattr(self, name, function)
        self.check(self.cuInit(0), "starting the driver")
        self.device = self.made(ctypes.c_int, self.cuDeviceGet, 0)
        # Waits spin: a thread that sleeps is woken late. Too late where a library was first.
        self.cuDevicePrimaryCtxSetFlags_v2(self.device, 1)
        context = self.made(_P, self.cuDevicePrimaryCtxRetain, self.device)
        self.check(self.cuCtxSetCurrent(context), "making a context")

    def check(self, result, during):
        """Raises the fault that a call's result means, unless it succeeded."""
        if result == 0:
            return
        status = "error"
        if result in STICKY:
            status = "crashed"
        elif result == OUT_OF_MEMORY:
            status = "oom"
        raise faults.Refused(status, f"{during}: CUDA error {result}")

    def made(self, kind, function, *arguments):
        """The value that a call stores at its first argument."""
        held = kind()
        self.check(function(ctypes.byref(held), *arguments), function.__name__)
        return held.value

    def opened(self, handle):
        """The address of an allocation of another process, by the digits of its handle."""
        handle, base = IpcHandle.from_buffer_copy(bytes.fromhex(handle)), ctypes.c_uint64()
        result = self.cuIpcOpenMemHandle_v2(ctypes.byref(base), handle, LAZY_PEER_ACCESS)
        if result:
            raise faults.Refused("unavailable", f"opening memory of another process: CUDA error {result}")
        return base.value

    def allocation(self, address):
        """The allocation that has an address: where it begins, and its handle."""
        base, size, handle = ctypes.c_uint64(), ctypes.c_size_t(), IpcHandle()
        result = self.cuMemGetAddressRange_v2(ctypes.byref(base), ctypes.byref(size), address)
        self.check(result, "finding an allocation")
        self.check(self.cuIpcGetMemHandle(ctypes.byref(handle), base), "sharing memory")
        return base.value, handle

    def attribute(self, number):
        return self.made(ctypes.c_int, self.cuDeviceGetAttribute, number, self.device)


class Event:
    """An event that takes the time."""

    def __init__(self, driver):
        self.driver = driver
        self.handle = driver.made(_P, driver.cuEventCreate, 0)

    def record(self):
        self.driver.check(self.driver.cuEventRecord(self.handle, STREAM), "recording an event")

    def wait(self):
        self.driver.check(self.driver.cuEventSynchronize(self.handle), "running the function")

    def since_ns(self, earlier):
        self.wait()
        elapsed = ctypes.c_float()
        result = self.driver.cuEventElapsedTime(
            ctypes.byref(elapsed), earlier.handle, self.handle
        )
        self.driver.check(result, "running the function")
        return elapsed.value * 1e6
