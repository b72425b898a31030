"""Arrays of the libraries that functions take: made from the given tensors, and read again.

A library's arrays are on the device that is measured. Elements whose bits are all set are poison:
they are not numbers that a function would leave.
"""

import contextlib
import ctypes
import importlib
import math
import warnings

import numpy

from . import faults, sums
from .driver import Bytes
from .tensors import DTYPES, OF_ARRAYS, Tensor

POISON = 0xFF


class Library:
    """What is alike for most libraries."""

    # Whether a call may return before its work is done, on streams that are not the timed one.
    is_asynchronous = False

    # Whether functions can write into arrays.
    can_write = True

    def accepted(self, dtype):
        """Names of types that an output of a type may have."""
        return [dtype]

    def setting(self, request, given):
        """What calls of a function need beside their arguments, for `enter`."""
        return None

    def enter(self, setting):
        """Makes it so, before an import and untimed before each call."""

    def watched(self):
        """The context manager of a first call, whose value has its `peak_bytes`, if known."""
        return contextlib.nullcontext()

    def release(self):
        """Gives the system memory back that is kept for later arrays."""

    def plain(self, array):
        """A result as its memory stands."""
        return array

    def refuse_elsewhere(self, array):
        """Refuses an array that is not on the device."""

    def given(self, tensor):
        """An input as an array, of which `is_same` will tell whether it still is the tensor."""
        return self.of(tensor)


class NumPy(Library):
    """Arrays of NumPy, which has no bf16: the bits of such a tensor are u16."""

    name = "numpy"

    def __init__(self, device):
        if device != "cpu":
            raise faults.Refused("unavailable", "NumPy's arrays are on the CPU")

    def of(self, tensor):
        return numpy.array(tensor.array)

    def shared(self, tensor):
        """An array on a tensor's memory, which others write."""
        return tensor.array

    def in_one_piece(self, array):
        return array if array.flags.c_contiguous else numpy.ascontiguousarray(array)

    def place(self, array):
        """Address and number of bytes of an array."""
        return array.__array_interface__["data"][0], array.nbytes

    def poisoned(self, dtype, shape):
        array = numpy.empty(shape, DTYPES[dtype][1])
        self.poison(array)
        return array

    def poison(self, array):
        array.reshape(-1).view(numpy.uint8).fill(POISON)

    def fill(self, array, value):
        array.fill(value)

    def copy(self, source, target):
        target[...] = source.reshape(target.shape)

    def rolled(self, array, step):
        """A new array of its elements, each so many places further on."""
        return numpy.roll(array, step)

    def rewrite(self, array):
        """Overwrites an array with its own bits, as if it were just made."""
        array[...] = self.rolled(array, 0)

    def holds(self, held):
        return isinstance(held, (numpy.ndarray, numpy.generic))

    def dtype(self, array):
        return OF_ARRAYS.get(array.dtype, str(array.dtype))

    def accepted(self, dtype):
        return ["u16"] if dtype == "bf16" else [dtype]

    def bits(self, array, dtype):
        """The elements in memory of the host; a copy."""
        return Tensor(dtype, numpy.array(array))

    def is_same(self, array, tensor):
        """Whether an array still holds the elements that it was made of."""
        return same_bits(self.bits(array, tensor.dtype).array, tensor.array)

    def synchronize(self):
        pass

    def peak_bytes(self):
        return None

    def reset_peak(self):
        pass

    def forward(self):
        """The context manager of a call that needs no gradients, or None."""
        return None


class Torch(Library):
    """Tensors of PyTorch."""

    name = "torch"

    def __init__(self, device):
        self.torch = needed("torch")
        self.device = "cuda" if device == "cuda" else "cpu"
        # Where models are made.
        self.makes_on = self.device
        if device == "cuda" and not self.torch.cuda.is_available():
            raise faults.Refused("unavailable", "PyTorch sees no GPU")
        of_bits = {"f64": "float64", "f32": "float32", "f16": "float16", "bf16": "bfloat16",
                   "i64": "int64", "i32": "int32", "i16": "int16", "i8": "int8", "u8": "uint8",
                   "u16": "uint16", "u32": "uint32", "u64": "uint64", "bool": "bool"}
        self.dtypes = {name: getattr(self.torch, held) for name, held in of_bits.items()}
        self.names = {held: name for name, held in self.dtypes.items()}
        # As f32 is meant: products in tf32 are another computation.
        self.torch.backends.cuda.matmul.allow_tf32 = False
        self.torch.backends.cudnn.allow_tf32 = False

    def of(self, tensor):
        if self.device == "cpu":
            host = self.torch.from_numpy(numpy.array(tensor.array))
        else:
            host = self.view(tensor.array)
        if tensor.dtype == "bf16":
            host = host.view(self.torch.bfloat16)
        return host.to(self.device)

    def shared(self, tensor):
        """A tensor on memory of the host, which others write."""
        host = self.torch.from_numpy(tensor.array)
        return host.view(self.torch.bfloat16) if tensor.dtype == "bf16" else host

    def at(self, address, dtype, shape):
        """A tensor on memory of the GPU."""
        dtype, count = self.dtypes[dtype], math.prod(shape)
        if not count:
            return self.torch.empty(shape, dtype=dtype, device=self.device)
        bits = self.torch.as_tensor(Bytes(address, count * dtype.itemsize), device=self.device)
        return bits.view(dtype).reshape(shape)

    def in_one_piece(self, array):
        return array if array.is_contiguous() else array.detach().contiguous()

    def place(self, array):
        return array.data_ptr(), array.nbytes

    def view(self, array):
        """A tensor on memory of the host that is only read."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return self.torch.from_numpy(array)

    def given(self, tensor):
        array = self.of(tensor)
        if self.device == "cuda":
            tensor.sums = sums.of(array)
        return array

    def is_same(self, array, tensor):
        if self.device == "cuda":
            # The host has the given values, and sending them takes longer than adding up both.
            return sums.of(array) == tensor.sums
        bits = array.detach().reshape(-1).view(self.torch.uint8)
        return self.torch.equal(bits, self.view(tensor.array.reshape(-1).view(numpy.uint8)))

    def poisoned(self, dtype, shape):
        array = self.torch.empty(shape, dtype=self.dtypes[dtype], device=self.device)
        self.poison(array)
        return array

    def poison(self, array):
        if array.numel():
            array.detach().reshape(-1).view(self.torch.uint8).fill_(POISON)

    def fill(self, array, value):
        array.fill_(value)

    def copy(self, source, target):
        target.detach().copy_(source.detach().reshape(target.shape))

    def rolled(self, array, step):
        return self.torch.roll(array.detach(), step)

    def rewrite(self, array):
        # By `data`, which leaves the version of a tensor as it is: a function may look at it.
        array.data.copy_(self.rolled(array, 0))

    def holds(self, held):
        return isinstance(held, self.torch.Tensor)

    def dtype(self, array):
        return self.names.get(array.dtype, str(array.dtype))

    def plain(self, array):
        # A class of the user may work when its tensors are looked at.
        if type(array) is self.torch.Tensor:
            return array
        with self.torch._C.DisableTorchFunctionSubclass():
            return array.as_subclass(self.torch.Tensor)

    def refuse_elsewhere(self, array):
        if array.device.type != self.device:
            raise faults.Refused("wrong", f"a result is on {array.device}, and not on {self.device}")

    def bits(self, array, dtype):
        self.refuse_elsewhere(array)
        host = array.detach().contiguous().cpu()
        if dtype == "bf16":
            host = host.view(self.torch.uint16)
        host = host.numpy()
        return Tensor(dtype, numpy.array(host) if self.device == "cpu" else host)

    def address(self, array):
        return array.data_ptr()

    def reach_bytes(self, array):
        strides = [stride * array.element_size() for stride in array.stride()]
        return reach_bytes(array.shape, strides, array.element_size())

    def synchronize(self):
        if self.device == "cuda":
            self.torch.cuda.synchronize()

    def release(self):
        if self.device == "cuda":
            self.torch.cuda.empty_cache()

    def peak_bytes(self):
        if self.device != "cuda":
            return None
        cuda = self.torch.cuda
        return cuda.max_memory_allocated(), cuda.max_memory_reserved()

    def reset_peak(self):
        if self.device == "cuda":
            self.torch.cuda.reset_peak_memory_stats()

    def forward(self):
        return self.torch.no_grad()


class CuPy(NumPy):
    """Arrays of CuPy, on the legacy default stream. From version 14 on it has bf16, if the package
    `ml_dtypes` is there; without, bits of such a tensor are u16 as NumPy's."""

    name = "cupy"

    def __init__(self, device):
        if device != "cuda":
            raise faults.Refused("unavailable", "CuPy's arrays are on a GPU")
        self.cupy = needed("cupy")
        self.bfloat16 = None
        if int(self.cupy.__version__.split(".")[0]) >= 14:
            with contextlib.suppress(ImportError):
                self.bfloat16 = numpy.dtype(importlib.import_module("ml_dtypes").bfloat16)

    def of(self, tensor):
        return self.cupy.asarray(tensor.array).view(self.held(tensor.dtype))

    def at(self, address, dtype, shape):
        count = math.prod(shape) * numpy.dtype(self.held(dtype)).itemsize
        if not count:
            return self.cupy.empty(tuple(shape), self.held(dtype))
        return self.cupy.asarray(Bytes(address, count)).view(self.held(dtype)).reshape(shape)

    def in_one_piece(self, array):
        return self.cupy.ascontiguousarray(array)

    def place(self, array):
        return array.data.ptr, array.nbytes

    def held(self, dtype):
        """The type of arrays that hold elements of a type."""
        has_own = dtype == "bf16" and self.bfloat16 is not None
        return self.bfloat16 if has_own else DTYPES[dtype][1]

    def poisoned(self, dtype, shape):
        array = self.cupy.empty(tuple(shape), self.held(dtype))
        self.poison(array)
        return array

    def poison(self, array):
        if array.size:
            super().poison(array)

    def copy(self, source, target):
        self.whole(target)[...] = self.whole(source).reshape(target.shape)

    def whole(self, array):
        """The array, or its bits where it is of bf16: few functions of CuPy have that type."""
        return array.view(numpy.uint16) if self.dtype(array) == "bf16" else array

    def rolled(self, array, step):
        return self.cupy.roll(self.whole(array), step).view(array.dtype)

    def rewrite(self, array):
        self.copy(self.rolled(array, 0), array)

    def holds(self, held):
        return isinstance(held, self.cupy.ndarray)

    def dtype(self, array):
        is_bf16 = self.bfloat16 is not None and array.dtype == self.bfloat16
        return "bf16" if is_bf16 else super().dtype(array)

    def accepted(self, dtype):
        return [*super().accepted(dtype), dtype]

    def address(self, array):
        return array.data.ptr

    def reach_bytes(self, array):
        return reach_bytes(array.shape, array.strides, array.itemsize)

    def bits(self, array, dtype):
        return Tensor(dtype, self.cupy.asnumpy(self.whole(array)))

    def synchronize(self):
        self.cupy.cuda.Stream.null.synchronize()

    def release(self):
        self.cupy.get_default_memory_pool().free_all_blocks()

    def watched(self):
        """Notes the most that the pool gave away: it keeps no peak itself."""
        pool = self.cupy.get_default_memory_pool()

        class Watch(self.cupy.cuda.MemoryHook):
            name = "sweeper"
            peak_bytes = 0

            def malloc_postprocess(self, **held):
                self.peak_bytes = max(self.peak_bytes, pool.used_bytes())

        return Watch()

    def peak_bytes(self):
        pool = self.cupy.get_default_memory_pool()
        return pool.used_bytes(), pool.total_bytes()


# Types of which JAX has none unless it is told to.
WIDE = {"f64", "i64", "u64"}


class Jax(Library):
    """Arrays of JAX, which are never overwritten. Its streams are its own: its time is the host's,
    until the results are there."""

    name = "jax"
    is_asynchronous = True
    can_write = False

    def __init__(self, device):
        self.jax = needed("jax")
        kinds = {"cpu": "cpu", "cuda": "gpu"}
        try:
            self.device = self.jax.devices(kinds[device])[0]
        except RuntimeError as error:
            raise faults.Refused("unavailable", f"JAX has no such device: {error}") from None
        config = self.jax.config
        # Compiled once for all steps.
        self.roll = self.jax.jit(self.jax.numpy.roll)
        # As a variable says, which is part of the run's identity.
        self.is_wide = config.jax_enable_x64
        if config.jax_default_matmul_precision is None:
            # As f32 is meant: JAX would multiply in tf32 on a GPU.
            config.update("jax_default_matmul_precision", "highest")

    def setting(self, request, given):
        """Whether types of 64 bits are on. Where a problem has none they are off, as for everybody
        else, unless the user's own text switches them: with them `zeros(n)` is of f64."""
        held = {self.dtype(array) for array in given.values()}
        held |= {output["dtype"] for output in request["outputs"]}
        texts = [file["text"] for file in request["source"].get("files", [])]
        return bool(held & WIDE) or self.is_wide or any("jax_enable_x64" in text for text in texts)

    def enter(self, setting):
        if self.jax.config.jax_enable_x64 != setting:
            self.jax.config.update("jax_enable_x64", setting)

    def of(self, tensor):
        if tensor.dtype in WIDE:
            self.enter(True)
        host = tensor.array
        if tensor.dtype == "bf16":
            host = host.view(self.jax.numpy.bfloat16)
        held = self.jax.device_put(host, self.device)
        if self.device.platform == "cpu":
            # JAX may have taken memory as it is, of the one file that all programs read.
            held = held.copy()
        return self.wait(held)

    def poisoned(self, dtype, shape):
        """Bytes, which are only given back to the allocator."""
        size = int(numpy.prod(shape)) * numpy.dtype(DTYPES[dtype][1]).itemsize
        return self.wait(self.jax.numpy.full(size, POISON, "uint8", device=self.device))

    def rolled(self, array, step):
        return self.wait(self.roll(array, step))

    def rewrite(self, array):
        # Other arrays are new each time, which matters to caches of a CPU. The bits stay the same.
        if self.device.platform == "cpu" and array.size:
            held = numpy.array(numpy.asarray(array))
            ctypes.memmove(array.unsafe_buffer_pointer(), held.ctypes.data, held.nbytes)

    def holds(self, held):
        return isinstance(held, self.jax.Array)

    def dtype(self, array):
        if array.dtype == self.jax.numpy.bfloat16:
            return "bf16"
        return OF_ARRAYS.get(array.dtype, str(array.dtype))

    def bits(self, array, dtype):
        places = array.devices()
        if places != {self.device}:
            names = " ".join(sorted(str(place) for place in places))
            raise faults.Refused("wrong", f"a result is on {names}, and not on {self.device}")
        host = numpy.asarray(array)
        return Tensor(dtype, numpy.array(host.view(numpy.uint16) if dtype == "bf16" else host))

    def is_same(self, array, tensor):
        """One that a call was allowed to take the memory of (`donate_argnums`) is no more."""
        if array.is_deleted():
            return False
        return same_bits(self.bits(array, tensor.dtype).array, tensor.array)

    def wait(self, held):
        return self.jax.block_until_ready(held)

    def synchronize(self):
        pass

    def peak_bytes(self):
        # The most since its process began: JAX can't be told to count anew.
        held = self.device.memory_stats() or {}
        return (held.get("peak_bytes_in_use", 0),) * 2 if held else None

    def reset_peak(self):
        pass

    def forward(self):
        return None


FRAMEWORKS = {held.name: held for held in (NumPy, Torch, CuPy, Jax)}


def reach_bytes(shape, strides, itemsize):
    """The bytes of memory from an array's first element to its last one, by strides in bytes: an expanded array
    has fewer than its elements would take."""
    if 0 in shape:
        return 0
    return itemsize + sum((extent - 1) * max(0, stride) for extent, stride in zip(shape, strides))


def same_bits(one, other):
    """Whether two arrays of the host are equal bit by bit; NaN is equal to itself."""
    one, other = (numpy.ascontiguousarray(held).reshape(-1) for held in (one, other))
    return numpy.array_equal(one.view(numpy.uint8), other.view(numpy.uint8))


def needed(name):
    """A library that functions of the user take arrays of."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise faults.import_error(error, f"`arrays = \"{name}\"`") from error


def are_one_shape(given, wanted):
    """Whether a shape is another with neighbouring axes taken together, or cut apart."""

    def cuts(shape):
        places, product = set(), 1
        for extent in shape:
            product *= extent
            places.add(product)
        return places | {1}

    given, wanted = list(given), list(wanted)
    if given == wanted:
        return True
    size = numpy.prod(given, dtype=object) if given else 1
    if size != (numpy.prod(wanted, dtype=object) if wanted else 1) or size == 0:
        return False
    return cuts(given) <= cuts(wanted) or cuts(wanted) <= cuts(given)
