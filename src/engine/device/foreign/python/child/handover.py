"""Outputs on their way to whoever judges them: through a file of the host, or by leaving tensors of PyTorch
where they are on a GPU, for another process to open."""

import contextlib

from . import faults, sums, tensors
from .driver import Driver


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
            base, handle = driver.allocation(array.data_ptr())
        except faults.Refused:
            return None
        places[name] = {"handle": bytes(handle.bytes).hex(), "offset": array.data_ptr() - base,
                        "dtype": output["dtype"], "shape": output["shape"], "sums": sums.of(array)}
    program.left = held
    program.framework.synchronize()
    return places


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
    opened.append(driver.opened(place["handle"]))
    return framework.at(opened[-1] + place["offset"], place["dtype"], place["shape"])
