"""What rounding does to the results of a function of PyTorch: the function is evaluated in f64, and the
result of each operation is disturbed as rounding to another format would.

Operations that move or compare elements are exact. Others round each element once, by `RMS` unit
roundoffs in the mean, or a few times where a library computes a function by several operations. Sums are
in `rounding_sums`. What is composed of those is decomposed as PyTorch itself does. Operations that are
none of these are taken for elementwise, and are counted.
"""

import math
import random

import torch
from torch._decomp import decomposition_table
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from . import roundings as shared
from .rounding_sums import SUMS
from .roundings import ACCUMULATED, FORMATS, POWERS, RMS, is_power_of_two, number_error

EXACT = set("""
_assert_async _conj _index_put_impl _local_scalar_dense _reshape_alias _to_copy _unsafe_view abs alias all
amax amin any arange argmax argmin argsort as_strided bernoulli bitwise_and bitwise_not bitwise_or
bitwise_xor broadcast_in_dim bucketize cat ceil chunk clamp clamp_max clamp_min clone collapse_view
complex conj constant_pad_nd contiguous convert_element_type copy copysign cummax cummin detach
device_put diag_embed diagonal diagonal_copy embedding empty empty_like empty_permuted empty_strided eq
expand expand_copy exponential eye fill flip floor floor_divide fmax fmin frac full full_like gather ge
gt hardtanh heaviside im2col imag index index_copy index_put index_select is_pinned isfinite isin isinf
isnan item kthvalue le lift lift_fresh lift_fresh_copy linspace logical_and logical_not logical_or
logical_xor lt masked_fill masked_scatter masked_select max max_pool1d max_pool2d max_pool3d
max_pool2d_with_indices max_pool3d_with_indices maximum maximum_value median min minimum mode movedim
narrow_copy native_dropout ne neg new_empty new_empty_strided new_full new_ones new_zeros nextafter
nonzero normal one_hot ones ones_like permute pixel_shuffle pixel_unshuffle put rand rand_like randint
randint_like randn randn_like random randperm real reflection_pad1d reflection_pad2d reflection_pad3d
relu repeat repeat_interleave replication_pad1d replication_pad2d replication_pad3d resize resize_as
roll rot90 round scalar_tensor scatter searchsorted select select_backward select_copy select_scatter
set sgn sign signbit slice slice_backward slice_copy slice_scatter sort split split_copy
split_with_sizes squeeze stack swapaxes t take threshold threshold_backward to topk transpose tril
tril_indices triu triu_indices trunc unbind unfold uniform unsqueeze view view_as_complex view_as_real
view_of where zero zeros zeros_like
""".split())

# Roundings of one element.
ELEMENTWISE = {
    **shared.ELEMENTWISE,
    **dict.fromkeys("""_adaptive_avg_pool2d_backward _adaptive_avg_pool3d_backward addcdiv addcmul lerp
                    remainder""".split(), 1.0),
}

# Exact operations that store a number, which the format may not hold.
WITH_NUMBER = {"clamp", "clamp_max", "clamp_min", "constant_pad_nd", "fill", "full", "full_like", "hardtanh",
               "masked_fill", "new_full", "scalar_tensor", "threshold", "where"}

# The unit roundoff of tf32, in which tensor cores hold factors.
TF32 = 2.0**-11

# Terms of a block, in programs that sum long rows well.
BLOCK = 4096

# Elements of a piece on which noise is made, and of the tile that it comes from.
PIECES = {"cpu": 1 << 17, "cuda": 1 << 22}


class Noise:
    """Normal numbers, at random places of one tile and with random signs: making each anew would take
    longer than all else."""

    tiles = {}

    def __init__(self, seed):
        self.random = random.Random(seed)

    def sign(self):
        return self.random.choice((-1.0, 1.0))

    def tile(self, device):
        if device not in self.tiles:
            generator = torch.Generator(device=device)
            generator.manual_seed(1)
            count = 8 * PIECES[device.type]
            self.tiles[device] = torch.randn(count, generator=generator, dtype=torch.float64, device=device)
        return self.tiles[device]

    def pieces(self, first, *others):
        """Pieces of tensors that lie alike in memory, with noise that is of the first one's type."""
        tile, size = self.tile(first.device), PIECES[first.device.type]
        flat = [in_memory(held) for held in (first, *others)]
        for start in range(0, first.numel(), size):
            held = [one[start : start + size] for one in flat]
            count = held[0].numel()
            begin = self.random.randrange(tile.numel() - count + 1)
            yield held, tile[begin : begin + count], self.sign()


def is_real(held):
    return isinstance(held, torch.Tensor) and held.is_floating_point()


def in_memory(tensor):
    """A dense tensor's elements in the order of memory."""
    return tensor.as_strided((tensor.numel(),), (1,), tensor.storage_offset())


def is_dense(tensor):
    """Whether its elements lie side by side, in any order of axes."""
    if tensor.is_contiguous():
        return True
    expected = 1
    for stride, extent in sorted(zip(tensor.stride(), tensor.shape)):
        if extent != 1 and stride != expected:
            return False
        expected *= extent
    return True


class Widened(TorchDispatchMode):
    """Evaluates with f64 where a function asks for f32, so that what it computes is the answer. `draws` says
    whether random numbers were drawn on the way."""

    def __init__(self, dtype):
        super().__init__()
        # A function whose format is less exact means f32 by f32 as well.
        self.narrow = (torch.float32,) if FORMATS[dtype][0] >= ACCUMULATED else ()
        self.draws = False

    @classmethod
    def _should_skip_dynamo(cls):
        # Nothing here is compiled, and importing what compiles takes seconds.
        return False

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.draws |= torch.Tag.nondeterministic_seeded in func.tags
        return func(*args, **self.widened(kwargs))

    def widened(self, kwargs):
        kwargs = kwargs or {}
        if kwargs.get("dtype") in self.narrow:
            kwargs = {**kwargs, "dtype": torch.float64}
        return kwargs


class Rounded(Widened):
    """Evaluates with noise as rounding to a format makes it. `factor` is the unit roundoff to which
    factors of products are rounded, as in tf32. Sums are of blocks of so many terms, and those of blocks
    again; of all terms one after another where `block` is 0."""

    def __init__(self, dtype, seed, unknown, factor=0.0, block=0):
        super().__init__(dtype)
        self.u, self.least = FORMATS[dtype]
        self.accumulated = min(self.u, ACCUMULATED)
        self.factor_u = factor
        self.noise = Noise(seed)
        # How often each operation was met that has no model.
        self.unknown = unknown
        self.block = block
        # Whether blocks would have made a difference.
        self.has_long_sums = False

    def added(self, terms):
        """How many additions, one after another, sum so many terms, a number or one for each element."""
        if isinstance(terms, torch.Tensor):
            return terms
        self.has_long_sums |= terms > BLOCK
        chain = terms
        if self.block:
            chain = 0
            while terms > self.block:
                chain += self.block
                terms = -(-terms // self.block)
            chain += terms
        return chain

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = self.widened(kwargs)
        packet = func.overloadpacket
        name = packet.__name__
        if name.endswith("_") and name[:-1] not in EXACT and not name.startswith("_"):
            whole = getattr(getattr(torch.ops, func.namespace), name[:-1], None)
            if whole is not None and func._overloadname in whole.overloads():
                found = self.__torch_dispatch__(getattr(whole, func._overloadname), types, args, kwargs)
                return args[0].copy_(found)
        target = kwargs.get("out")
        if isinstance(target, torch.Tensor):
            rest = {name: held for name, held in kwargs.items() if name != "out"}
            return target.copy_(self.whole(packet, args, rest))
        if name in SUMS:
            found = SUMS[name](self, func, *args, **kwargs)
            if found is not NotImplemented:
                return found
        base = name.rstrip("_")
        if base in EXACT:
            if base in WITH_NUMBER:
                args = self.numbers(args)
            found = func(*args, **kwargs)
            return self.made(found) if base == "lift_fresh" else found
        if base in ELEMENTWISE:
            return self.element(func, base, args, kwargs)
        found = self.decomposed(func, args, kwargs)
        if found is NotImplemented:
            found = func(*args, **kwargs)
            if any(is_real(held) for held in tree_leaves(found)):
                self.unknown[name] = self.unknown.get(name, 0) + 1
                found = tree_map(self.rounded, found)
        return found

    def whole(self, packet, args, kwargs):
        """The result of an operation that may have several versions."""
        with self:
            return packet(*args, **kwargs)

    def decomposed(self, func, args, kwargs):
        with self:
            if func in decomposition_table:
                return decomposition_table[func](*args, **kwargs)
            if isinstance(func, torch._ops.OpOverload) and func._can_decompose():
                return func.decompose(*args, **kwargs)
        return NotImplemented

    def element(self, func, name, args, kwargs):
        """An operation on elements, whose result is rounded."""
        roundings = ELEMENTWISE[name]
        numbers = [held for held in args if type(held) in (int, float)]
        if name in ("mul", "div", "true_divide") and numbers and is_power_of_two(numbers[0]):
            return func(*args, **kwargs)
        if name == "pow" and numbers and type(args[1]) in (int, float):
            roundings = POWERS.get(args[1], 3.0)
        elif name in ("div", "true_divide"):
            args = self.numbers(args, is_divided=True)
        else:
            args = self.numbers(args)
        out = func(*args, **kwargs)
        if not is_real(out):
            return out
        if name in ("exp", "sigmoid"):
            return self.exponential(out, args[0], roundings, name)
        return self.rounded(out, roundings)

    def exponential(self, out, argument, roundings, name):
        """An honest exponential rounds its argument in another base."""
        argument = argument.expand_as(out)
        if out.stride() != argument.stride() or not is_dense(out):
            out, argument = out.contiguous(), argument.contiguous()
        for (piece, given), normal, sign in self.noise.pieces(out, argument):
            slope = given if name == "exp" else given * (1.0 - piece)
            size = slope.nan_to_num(0.0, 0.0, 0.0).square_().add_(roundings**2).sqrt_()
            piece.mul_(size.mul_(normal).mul_(sign * RMS * self.u).add_(1.0))
        return out

    def rounded(self, out, roundings=1.0):
        """A tensor's elements, which nothing else refers to, each with the noise of its rounding."""
        if not is_real(out) or roundings == 0.0:
            return out
        if not is_dense(out):
            out = out.contiguous()
        for (piece,), normal, sign in self.noise.pieces(out):
            factor = sign * RMS * self.u * roundings
            if self.least < 1e-30:
                piece.mul_(normal.mul(factor).add_(1.0))
                continue
            # Numbers of f16 are often less than normal ones.
            size = piece.abs().clamp_min_(self.least).mul_(piece != 0)
            piece.add_(size.mul_(normal).mul_(factor).nan_to_num_(0.0, 0.0, 0.0))
        return out

    def numbers(self, args, is_divided=False):
        """Arguments whose numbers are off as f32 holds them, all in one direction: everywhere alike."""
        def one(held):
            error = number_error(held, is_divided) if type(held) is float else 0.0
            return held * (1.0 + self.noise.sign() * error) if error else held

        return tuple(one(held) for held in args)

    def made(self, tensor):
        """A tensor of numbers in the text of a function, which its own program holds in f32."""
        if tensor.dtype != torch.float64:
            return tensor
        error = tensor.float().double().sub_(tensor).nan_to_num_(0.0, 0.0, 0.0)
        return tensor + error.mul_(self.noise.sign())
