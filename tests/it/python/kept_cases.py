"""Answers that stay where they are computed, with a CPU in the place of a GPU. The folder of the child's modules is
the argument."""

import sys
import types

package = types.ModuleType("sweeper_child")
package.__path__ = [sys.argv[1]]
sys.modules["sweeper_child"] = package

import numpy
import torch
from sweeper_child import arrays, cuda, reference
from sweeper_child.tensors import Tensor

torch.cuda.mem_get_info = lambda: (1 << 40, 1 << 40)
torch.cuda.memory_reserved = lambda: 0
torch.cuda.empty_cache = lambda: None
reference.SMALL_ELEMENTS = 0

SOURCE = """
import torch
def centred(x):
    return (x - x.mean(1, keepdim=True)).sum(1)
"""
SHAPE = [40, 500]
# There is no CPU to fall back to: an answer of the GPU's that is not trusted is an error.
FRAMEWORKS = {"cuda": arrays.Torch("cpu")}


def answer(slot, with_spread):
    request = {
        "arrays": "torch", "judged": "f32", "with_spread": with_spread, "what": "the reference", "path": [],
        "entry": "centred", "mutates": [], "args": [{"tensor": "x"}], "kwargs": [], "returns": ["y"],
        "source": {"files": [{"path": "it.py", "text": SOURCE, "module": "it"}], "load": "all"},
        "outputs": [{"name": "y", "dtype": "f64", "shape": SHAPE[:1], "passed": False}],
        "keep": {"problem": "it", "slot": slot},
    }
    x = numpy.random.default_rng(len(slot)).random(SHAPE, numpy.float32)
    return reference.answer(request, FRAMEWORKS, {"x": Tensor("f32", x)})


with torch.no_grad():
    # The right values are zero, and what f32 makes of them is far from that, but not from its noise.
    published = answer("published", True)
    assert "noise sums of y" in published
    audited = answer("audit", False)
    assert "noise sums of y" not in audited and "own error of y" in audited
    reference.forget(FRAMEWORKS)
    assert not reference.KEPT and not reference.SIZES

expanded = torch.zeros(4, 1, 5).expand(4, 6, 5)
assert FRAMEWORKS["cuda"].reach_bytes(expanded) == 4 * 20
assert FRAMEWORKS["cuda"].reach_bytes(expanded.transpose(0, 2)) == 4 * 20
assert FRAMEWORKS["cuda"].reach_bytes(torch.zeros(3, 0)) == 0
one, dtype = numpy.arange(1, 100, dtype=numpy.float32), numpy.dtype(numpy.float32)
bits = one.view(numpy.uint8)
assert cuda.is_alike((one * numpy.float32(1 + 1e-6)).view(numpy.uint8), bits, dtype)
assert not cuda.is_alike(numpy.roll(one, 1).view(numpy.uint8), bits, dtype)
assert not cuda.is_alike(None, bits, dtype)
