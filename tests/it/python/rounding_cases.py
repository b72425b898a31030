"""Honest programs in f32 and bf16 against what the child's model of rounding says of them: prints, for each
function, the error over the predicted one, and names of operations without a model. The folder of the child's
modules is the argument."""

import sys
import types

package = types.ModuleType("sweeper_child")
package.__path__ = [sys.argv[1]]
sys.modules["sweeper_child"] = package

import torch
import torch.nn.functional as F
from sweeper_child import reference, rounding, spread

torch.manual_seed(3)
torch.set_num_threads(2)
x, y = torch.randn(64, 512), torch.randn(512, 48)
image, taps = torch.randn(2, 8, 20, 20), torch.randn(6, 8, 3, 3)
lstm = torch.nn.LSTM(16, 12)


def gradient(function):
    def call(x):
        with torch.enable_grad():
            leaf = x.detach().requires_grad_(True)
            return torch.autograd.grad(function(leaf).square().sum(), leaf)[0]

    return call


def in_place(x):
    held = x.clone()
    held.mul_(3.7).add_(0.1)
    held[:, 1:] += held[:, :-1]
    return held.t().contiguous()


CASES = {
    "scaled": (lambda x: x * 3.14, x),
    "softmax": (lambda x: F.softmax(x, 1), x),
    "layer_norm": (lambda x: F.layer_norm(x, (512,)), x),
    "gelu": (F.gelu, x),
    "sum": (lambda x: x.abs().sum(1), x),
    "product": (lambda x: x @ y.to(x.dtype), x),
    "variance": (lambda x: x.var(1), x),
    "norm": (lambda x: x / x.norm(dim=1, keepdim=True), x),
    "in_place": (in_place, x),
    "convolution": (lambda x: F.conv2d(x, taps.to(x.dtype), padding=1), image),
    "transposed": (lambda x: F.conv_transpose2d(x, taps.to(x.dtype).transpose(0, 1), stride=2), image),
    "pooling": (lambda x: F.avg_pool2d(x, 3), image),
    "group_norm": (lambda x: F.group_norm(x, 4), image),
    "attention": (lambda x: F.scaled_dot_product_attention(x, x + 1, x), x.view(4, 8, 16, 64)),
    "loss": (lambda x: F.cross_entropy(x, torch.arange(64)), x),
    "gradient of a convolution": (gradient(lambda x: F.conv2d(x, taps.to(x.dtype))), image),
    "gradient of group norm": (gradient(lambda x: F.group_norm(x, 4) * torch.arange(20, dtype=x.dtype)), image),
    "gradient of pooling": (gradient(lambda x: F.avg_pool2d(x, 3, stride=2)), image),
    "gradient of mish": (gradient(F.mish), x),
    "into a tensor": (lambda x: torch.add(x, 0.3, out=torch.empty_like(x)), x),
    "lstm": (lambda x: lstm.to(x.dtype)(x)[0], torch.randn(9, 4, 16)),
}
# Not each has kernels in bf16 on a CPU that round each result.
IN_BF16 = ["scaled", "softmax", "product", "layer_norm", "gelu", "sum"]


def measured(function, x, dtype, name):
    """The error of an honest program over the predicted one."""
    x = x.to(dtype)
    found = function(x)
    wide = x.double()
    with reference.plain(), rounding.Widened(name):
        answer = function(wide)
    unknown, noises = {}, []
    for seed in range(2 if answer.numel() > 1 else 8):
        with reference.plain(), rounding.Rounded(name, seed + 1, unknown):
            noises.append(function(wide) - answer)
    u, least = rounding.FORMATS[name]
    squares = [spread.sums(answer, [noise, noise], dtype, rounding.RMS * u * least)[0] for noise in noises]
    mean_square = sum(squares) / len(squares) / answer.numel()
    return spread.rms(found.double() - answer) / mean_square**0.5, unknown


with torch.no_grad():
    for name, (function, x) in CASES.items():
        print("f32", name, *measured(function, x, torch.float32, "f32"), sep="\t")
    for name in IN_BF16:
        function, x = CASES[name]
        print("bf16", name, *measured(function, x, torch.bfloat16, "bf16"), sep="\t")
