"""Files of tensors: eight bytes with the length of a JSON head, the head, then the elements.

This is the layout of safetensors. Inputs are mapped, not read: a library copies them once, to where
it wants them.
"""

import mmap
import os
import struct

# Functions that a function of the user may replace in their modules are held here.
from json import dumps, loads

import numpy
from numpy import ascontiguousarray, frombuffer

HEAD = struct.Struct("<Q")

# Type by the name that manifests have: name in files, and the NumPy type that holds its bits.
DTYPES = {
    "f64": ("F64", numpy.float64),
    "f32": ("F32", numpy.float32),
    "f16": ("F16", numpy.float16),
    "bf16": ("BF16", numpy.uint16),
    "i64": ("I64", numpy.int64),
    "i32": ("I32", numpy.int32),
    "i16": ("I16", numpy.int16),
    "i8": ("I8", numpy.int8),
    "u64": ("U64", numpy.uint64),
    "u32": ("U32", numpy.uint32),
    "u16": ("U16", numpy.uint16),
    "u8": ("U8", numpy.uint8),
    "bool": ("BOOL", numpy.bool_),
}

# Name by the NumPy type of the elements themselves, which bf16 has none of.
OF_ARRAYS = {numpy.dtype(bits): name for name, (_, bits) in DTYPES.items() if name != "bf16"}

OF_FILES = {file: name for name, (file, _) in DTYPES.items()}


class Tensor:
    """A tensor in memory of the host: its type by the manifest's name, and an array of its bits."""

    def __init__(self, dtype, array):
        self.dtype = dtype
        self.array = array


def read(path):
    """The tensors of a file by name, as views of it that can't be written."""
    with open(path, "rb") as file:
        held = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    (length,) = HEAD.unpack_from(held)
    begin = HEAD.size + length
    head = loads(held[HEAD.size : begin])
    tensors = {}
    for name, entry in head.items():
        if name == "__metadata__":
            continue
        dtype = OF_FILES[entry["dtype"]]
        first, end = entry["data_offsets"]
        bits = numpy.dtype(DTYPES[dtype][1])
        array = frombuffer(held, bits, (end - first) // bits.itemsize, begin + first)
        tensors[name] = Tensor(dtype, array.reshape(entry["shape"]))
    return tensors


def write(path, tensors):
    """Writes tensors over the file that is there."""
    head, offset = {}, 0
    for name, tensor in tensors.items():
        size = tensor.array.nbytes
        head[name] = {
            "dtype": DTYPES[tensor.dtype][0],
            "shape": list(tensor.array.shape),
            "data_offsets": [offset, offset + size],
        }
        offset += size
    text = dumps(head).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "r+b") as file:
        os.ftruncate(file.fileno(), HEAD.size + len(text) + offset)
        file.write(HEAD.pack(len(text)) + text)
        for tensor in tensors.values():
            file.write(memoryview(ascontiguousarray(tensor.array)).cast("B"))
