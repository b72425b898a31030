"""Outputs on their way to whoever judges them: through a file of the host, or by leaving tensors of PyTorch
where they are on a GPU, for another process to open."""

import contextlib
import ctypes

from . import faults, sums, tensors
from .driver import Driver, IpcHandle

# Opening lets the GPU of this process read it.
LAZY_PEER_ACCESS = 1


def hand_over(program, clock, request):
    """The outputs of a program in the file of the request, or where they lie."""
    places = None
    if request["may_stay"] and program.framework.name == "torch":
        places = left(program, clock.driver)
    if places is None:
        tensors.write(request["results"], program.read())
        return {}
    return {"on_gpu": places}


def left(program, driver):
    """Where the outputs of a program lie until its next call, which others can read then; None where they
    can't."""
    held, places = {}, {}
    for name, array in program.arrays().items():
        program.refuse_others(name, array)
        program.framework.refuse_elsewhere(array)
        held[name] = array.detach().contiguous()
        if not held[name].numel():
            return None
    for name, array in held.items():
        output = program.outputs[name]
        try:
            base, handle = shared(driver, array.data_ptr())
        except faults.Refused:
            return None
        places[name] = {"handle": bytes(handle.bytes).hex(), "offset": array.data_ptr() - base,
                        "dtype": output["dtype"], "shape": output["shape"], "sums": sums.of(array)}
    program.left = held
    program.framework.synchronize()
    return places


def shared(driver, address):
    """The allocation that has an address: where it begins, and its handle."""
    base, size, handle = ctypes.c_uint64(), ctypes.c_size_t(), IpcHandle()
    result = driver.cuMemGetAddressRange_v2(ctypes.byref(base), ctypes.byref(size), address)
    driver.check(result, "finding an allocation")
    driver.check(driver.cuIpcGetMemHandle(ctypes.byref(handle), base), "sharing memory")
    return base.value, handle


def fingerprint(program):
    """The sums over the outputs of a program, if they are tensors of PyTorch on a GPU."""
    if program.framework.name != "torch":
        return None
    held = {name: sums.of(array.detach()) for name, array in program.arrays().items()}
    return repr(sorted(held.items()))


@contextlib.contextmanager
def taken(request, frameworks):
    """The outputs of a request as tensors of PyTorch, by name: of its file, or where another process left them."""
    if "on_gpu" not in request:
        yield {name: frameworks["cpu"].of(held) for name, held in tensors.read(request["file"]).items()}
        return
    driver, opened = Driver(), []
    try:
        yield {name: seen(driver, place, frameworks["cuda"], opened) for name, place in request["on_gpu"].items()}
    finally:
        frameworks["cuda"].synchronize()
        for address in opened:
            driver.cuIpcCloseMemHandle(address)


def seen(driver, place, framework, opened):
    """A tensor in memory of another process."""
    handle, base = IpcHandle.from_buffer_copy(bytes.fromhex(place["handle"])), ctypes.c_uint64()
    result = driver.cuIpcOpenMemHandle_v2(ctypes.byref(base), handle, LAZY_PEER_ACCESS)
    if result:
        raise faults.Refused("unavailable", f"opening memory of another process: CUDA error {result}")
    opened.append(base.value)
    dtype = framework.dtypes[place["dtype"]]
    count = dtype.itemsize
    for extent in place["shape"]:
        count *= extent
    bits = framework.torch.as_tensor(Bytes(base.value + place["offset"], count), device="cuda")
    return bits.view(dtype).reshape(place["shape"])


class Bytes:
    """Memory of a GPU, as PyTorch takes it without a copy."""

    def __init__(self, address, count):
        self.__cuda_array_interface__ = {
            "data": (address, False), "shape": (count,), "typestr": "|u1", "strides": None, "version": 2}
