"""Functions of the user that make inputs: a call of one, and its result as tensors of the problem."""

import inspect

import numpy

from . import faults, sources
from .tensors import OF_ARRAYS, Tensor


def generate(request):
    """The tensors that a function makes for values of parameters and a seed. They have to be the
    problem's in names, types and shapes."""
    module = sources.load(request["source"], request["path"])
    function = sources.entry(module, request["entry"], request["what"])
    named = {name: held["value"] for name, held in request["kwargs"]}
    specs = request["inputs"]
    if not inspect.signature(function).parameters:
        made = with_constants(request, named)
    else:
        if request["dtype"] is not None:
            named["dtype"] = request["dtype"]
        made = function(**named, seed=request["seed"])
    held = by_name(made, [spec["name"] for spec in specs])
    return {spec["name"]: tensor(held[spec["name"]], spec) for spec in specs}


def with_constants(request, constants):
    """The tensors of a function of PyTorch without arguments, as problems of KernelBench have one: parameters
    are constants of its file, and the generator of random numbers has the seed. Its real numbers may be of
    another type than the problem's."""
    import torch

    function = sources.entry(sources.load(request["source"], request["path"], constants), request["entry"],
                             request["what"])
    torch.manual_seed(request["seed"])
    types = {"f64": torch.float64, "f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
    wanted = [types.get(spec["dtype"]) for spec in request["inputs"]]
    made = function()
    made = list(made) if isinstance(made, (tuple, list)) else [made]
    return [held.to(dtype) if dtype and isinstance(held, torch.Tensor) and held.is_floating_point() else held
            for held, dtype in zip(made, wanted)] + made[len(wanted) :]


def by_name(held, names):
    """Its result as a dictionary: it may be one, or have the inputs in their order."""
    if isinstance(held, dict):
        missing = [name for name in names if name not in held]
        if missing:
            raise refused(f"it returns no `{missing[0]}`")
        unknown = [name for name in held if name not in names]
        if unknown:
            raise refused(f"it returns `{unknown[0]}`, which is not an input: {' '.join(names)}")
        return held
    if not isinstance(held, (tuple, list)):
        held = [held]
    if len(held) != len(names):
        raise refused(f"it returns {len(held)} values, and there are {len(names)} inputs: {' '.join(names)}")
    return dict(zip(names, held))


def tensor(held, spec):
    """An array of NumPy, or a tensor of PyTorch on any device, as an input."""
    name, dtype, shape = spec["name"], spec["dtype"], spec["shape"]
    if hasattr(held, "detach"):
        held = held.detach().cpu().contiguous()
        if str(held.dtype) == "torch.bfloat16":
            import torch

            held, found = held.view(torch.uint16).numpy(), "bf16"
        else:
            held = held.numpy()
            found = name_of(held.dtype)
    elif isinstance(held, (numpy.ndarray, numpy.generic)):
        held = numpy.asarray(held)
        found = name_of(held.dtype)
        if found == "bf16":
            held = held.view(numpy.uint16)
        elif dtype == "bf16" and found == "f32":
            # NumPy alone has no type for it.
            held, found = rounded(held), "bf16"
    else:
        raise refused(f"`{name}` is a {type(held).__name__}, and no array of NumPy or PyTorch")
    if found != dtype:
        raise refused(f"`{name}` is of type {found}, and the manifest says {dtype}")
    if list(held.shape) != shape:
        raise refused(f"`{name}` has shape {list(held.shape)}, and the manifest says {shape}")
    return Tensor(dtype, held)


def name_of(dtype):
    """The name that manifests have for a type of NumPy."""
    if dtype.name == "bfloat16":
        return "bf16"
    return OF_ARRAYS.get(dtype, str(dtype))


def rounded(array):
    """The bits of f32 as bf16, rounded to even."""
    bits = numpy.ascontiguousarray(array).view(numpy.uint32).reshape(array.shape)
    even = (bits >> 16) & 1
    held = ((bits.astype(numpy.uint64) + 0x7FFF + even) >> 16).astype(numpy.uint16)
    return numpy.where(numpy.isnan(array), numpy.uint16(0x7FC0), held)


def refused(reason):
    return faults.Refused("error", reason)
