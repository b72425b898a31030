"""The kernel of `parity.cu` by CuPy, on the legacy default stream."""

import os

import cupy

with open(os.path.join(os.path.dirname(__file__), "parity.cu")) as source:
    module = cupy.RawModule(code=source.read(), options=("--std=c++17",))
kernel = module.get_function("copy_floats")


def copy(y, x, blocks):
    kernel((blocks,), (256,), (y, x, cupy.int64(x.size // 4)))
