"""Rounding of operations that sum, for the mode of `rounding`.

A sum of K terms in an order of chance has partial sums whose squares add up, in the mean, to
K (S^2 / 3 + Q / 6), where S is the sum and Q the sum of the terms' squares. Each of them is rounded. So
each operation here is evaluated twice, for S and for Q, which takes the same operation on squares.
"""

import math

import torch

from .roundings import Rules

# They take the mode, the operation and its arguments.
SUMS = Rules()


def summed(mode, s, q, terms, scale=1.0, weight=None, is_product=False):
    """The sums `s`, which nothing else refers to, of so many terms (a number, or one for each element),
    whose squares add up to `q` times `weight`: with noise, and times `scale`."""
    s, q = s.contiguous(), q.contiguous()
    terms = mode.added(terms)
    rest = [terms.contiguous()] if isinstance(terms, torch.Tensor) else []
    per_sum = (0.5 * mode.accumulated) ** 2
    stored = (0.5 * mode.u) ** 2 if mode.u != mode.accumulated else 0.0
    # Tensor cores drop what does not fit, eight terms a step: in one direction.
    short = 1.0 - mode.accumulated * float(terms) / 8.0 if is_product and mode.factor_u else 1.0
    for (piece, held, *count), normal, sign in mode.noise.pieces(s, q, *rest):
        held = held.double()
        held = held if weight is None else held * weight
        variance = piece * piece / 3.0 + held / 6.0
        if count:
            # A term alone is not a sum.
            variance *= (count[0] - 1.0).clamp_min_(0.0)
        elif terms > 1:
            variance.mul_(terms).add_(held)
        else:
            variance.zero_()
        variance.mul_(per_sum).addcmul_(piece, piece, value=stored)
        deviation = variance.sqrt_().mul_(normal).mul_(sign).nan_to_num_(0.0, 0.0, 0.0)
        piece.mul_(short).add_(deviation).mul_(scale)
    return s


def squares(x):
    """Squares of elements, and the number that they are to be multiplied by: in f32, which is exact
    enough for how large noise is, and takes half of the memory."""
    most = torch.linalg.vector_norm(x.detach(), math.inf) if x.numel() else x.new_zeros(())
    most = most.clamp(1e-30, 1e30)
    return x.float().div_(most.float()).square_(), most.double().square()


def axes(x, dim):
    """The axes of a reduction, and the number of terms of each sum."""
    if dim is None or isinstance(dim, (list, tuple)) and len(dim) == 0:
        dim = range(x.dim())
    held = [dim] if isinstance(dim, int) else list(dim)
    return held, math.prod(x.shape[axis] for axis in held) if x.dim() else 1


def reduced(mode, x, dim, keepdim, scale=None):
    """A sum over axes, times a number."""
    dim, terms = axes(x, dim)
    s = x.sum(dim, keepdim)
    if terms <= 1:
        return s if scale is None else s.mul_(scale)
    q, weight = squares(x)
    return summed(mode, s, q.sum(dim, keepdim), terms, 1.0 if scale is None else scale, weight)


@SUMS.of("sum")
def sum_(mode, func, x, dim=None, keepdim=False, **named):
    if not x.is_floating_point():
        return NotImplemented
    return reduced(mode, x, dim, keepdim)


@SUMS.of("mean")
def mean(mode, func, x, dim=None, keepdim=False, **named):
    _, terms = axes(x, dim)
    return mode.rounded(reduced(mode, x, dim, keepdim, 1.0 / max(terms, 1)))


@SUMS.of("linalg_vector_norm", "norm")
def norm(mode, func, x, order=2, dim=None, keepdim=False, **named):
    order = 2 if order is None else order
    if order in (math.inf, -math.inf, 0):
        return func(x, order, dim, keepdim, **named) if dim is not None else func(x, order, **named)
    if order not in (1, 2):
        return NotImplemented
    if order == 1:
        return reduced(mode, x.abs(), dim, keepdim)
    found = reduced(mode, mode.rounded(x * x), dim, keepdim)
    return mode.rounded(found.clamp_min_(0.0).sqrt_())


def moments(mode, x, dim, correction, keepdim):
    """Variance and mean, by differences from the mean."""
    dim, terms = axes(x, dim)
    middle = mode.rounded(reduced(mode, x, dim, True, 1.0 / max(terms, 1)))
    square = mode.rounded(x - middle)
    square = mode.rounded(square.square_())
    rest = max(terms - correction, 0)
    spread = reduced(mode, square, dim, keepdim, 1.0 / rest if rest else math.nan)
    return mode.rounded(spread), middle if keepdim else middle.reshape(spread.shape)


def correction_of(unbiased, named):
    held = named.get("correction", named.get("unbiased", unbiased))
    return 1 if held is None else int(held)


@SUMS.of("var")
def var(mode, func, x, dim=None, unbiased=None, keepdim=False, **named):
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    return moments(mode, x, dim, correction_of(unbiased, named), keepdim)[0]


@SUMS.of("var_mean")
def var_mean(mode, func, x, dim=None, unbiased=None, keepdim=False, **named):
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    return moments(mode, x, dim, correction_of(unbiased, named), keepdim)


@SUMS.of("cumsum")
def cumsum(mode, func, x, dim, **named):
    if not x.is_floating_point():
        return NotImplemented
    s = x.cumsum(dim)
    variance = (s * s).cumsum(dim).contiguous()
    s = s.contiguous()
    for (piece, held), normal, sign in mode.noise.pieces(s, variance):
        deviation = held.sqrt_().mul_(normal).mul_(sign * 0.5 * mode.u)
        piece.add_(deviation.nan_to_num_(0.0, 0.0, 0.0))
    return s


@SUMS.of("cumprod")
def cumprod(mode, func, x, dim, **named):
    factors = torch.arange(x.shape[dim], device=x.device, dtype=x.dtype)
    shape = [1] * x.dim()
    if x.dim():
        shape[dim] = -1
    found = x.cumprod(dim)
    noise = mode.rounded(torch.ones_like(found)).sub_(1.0).mul_(factors.sqrt_().view(shape))
    return found.mul_(noise.add_(1.0))


@SUMS.of("prod")
def prod(mode, func, x, *args, **named):
    found = func(x, *args, **named)
    return mode.rounded(found, math.sqrt(x.numel() / max(1, found.numel())))


def factor(mode, x):
    """A factor as a tensor core reads it: rounded once, by one amount wherever it is read."""
    if x is None or not mode.factor_u:
        return x
    return x + (mode.rounded(x.clone()) - x) * (mode.factor_u / mode.u)


def product(mode, multiply, a, b, added=None, beta=1.0, alpha=1.0):
    """A product, and what is added to it."""
    a, b = factor(mode, a), factor(mode, b)
    terms = a.shape[-1]
    s = multiply(a, b)
    (qa, wa), (qb, wb) = squares(a), squares(b)
    q = multiply(qa, qb)
    weight = wa * wb
    del qa, qb
    if alpha != 1:
        s, weight = s.mul_(alpha), weight * alpha**2
    if added is None:
        return summed(mode, s, q, terms, 1.0, weight, is_product=True)
    added = (added * beta).expand_as(s)
    s = s.add_(added)
    q = q.double().mul_(weight).addcmul_(added, added)
    return summed(mode, s, q, terms + 1, is_product=True)


@SUMS.of("mm", "bmm", "mv", "dot", "vdot")
def multiplied(mode, func, a, b, **named):
    if not a.is_floating_point():
        return NotImplemented
    kinds = {2: torch.mm, 3: torch.bmm, 1: torch.dot}
    multiply = torch.mv if a.dim() == 2 and b.dim() == 1 else kinds[a.dim()]
    return product(mode, multiply, a, b)


@SUMS.of("addmm", "baddbmm", "addmv")
def added(mode, func, c, a, b, beta=1, alpha=1):
    multiply = torch.bmm if a.dim() == 3 else torch.mv if b.dim() == 1 else torch.mm
    return product(mode, multiply, a, b, c, beta, alpha)


@SUMS.of("convolution", "_convolution")
def convolution(mode, func, x, w, b, stride, padding, dilation, transposed, output_padding, groups, *rest):
    x, w = factor(mode, x), factor(mode, w)
    held = (stride, padding, dilation, transposed, output_padding, groups)
    s = torch.convolution(x, w, b, *held)
    (qx, wx), (qw, ww) = squares(x), squares(w)
    q = torch.convolution(qx, qw, None, *held).clamp_min_(0.0)
    del qx, qw
    terms = x.shape[1] // groups * math.prod(w.shape[2:])
    if transposed:
        terms = max(1, x.shape[1] // groups * math.prod(w.shape[2:]) // math.prod(stride))
    return summed(mode, s, q, terms, 1.0, wx * ww, is_product=True)


@SUMS.of("convolution_backward")
def convolution_backward(mode, func, g, x, w, biases, stride, padding, dilation, transposed, output_padding,
                         groups, mask):
    g, x, w = factor(mode, g), factor(mode, x), factor(mode, w)
    held = (biases, stride, padding, dilation, transposed, output_padding, groups, mask)
    found = func(g, x, w, *held)
    (qg, wg), (qx, wx), (qw, ww) = squares(g), squares(x), squares(w)
    q = func(qg, qx, qw, *held)
    taps = math.prod(w.shape[2:])
    positions = math.prod((x if transposed else g).shape[2:])
    # Each of them is a product of other two.
    terms = (max(1, g.shape[1] // groups * taps // (1 if transposed else math.prod(stride))),
             x.shape[0] * positions, g.shape[0] * math.prod(g.shape[2:]))
    weights = (wg * ww, wg * wx, wg)
    return tuple(None if one is None else summed(mode, one, two.clamp_min_(0.0), count, 1.0, weight, True)
                 for one, two, count, weight in zip(found, q, terms, weights))


@SUMS.of("avg_pool1d", "avg_pool2d", "avg_pool3d")
def pooled(mode, func, x, size, *args, **named):
    window = math.prod(size) if len(size) > 1 else size[0] ** (1 if func.overloadpacket.__name__ == "avg_pool1d"
                                                               else int(func.overloadpacket.__name__[-2]))
    q, weight = squares(x)
    s = func(x, size, *args, **named).mul_(window)
    q = func(q, size, *args, **named).mul_(window)
    return mode.rounded(summed(mode, s, q, window, 1.0 / window, weight))


@SUMS.of("_adaptive_avg_pool2d", "_adaptive_avg_pool3d", "adaptive_avg_pool1d")
def pooled_to_size(mode, func, x, size):
    q, weight = squares(x)
    s, q = func(x, size), func(q, size)
    window = max(1, round(x.numel() / max(1, s.numel())))
    return mode.rounded(summed(mode, s.mul_(window), q.mul_(window), window, 1.0 / window, weight))


@SUMS.of("avg_pool2d_backward", "avg_pool3d_backward")
def pooled_backward(mode, func, g, x, size, *args, **named):
    window = math.prod(size) if len(size) > 1 else size[0] ** int(func.overloadpacket.__name__[-11])
    q, weight = squares(g)
    s = func(g, x, size, *args, **named)
    q = func(q.double(), x, size, *args, **named).div_(window)
    count = func(torch.ones_like(g), x, size, *args, **named).mul_(window)
    return mode.rounded(summed(mode, s, q, count, 1.0, weight))


def accumulating(*places):
    """Operations that add elements up where they are sent, by the places of arguments that are added."""

    def apply(mode, func, *args, **named):
        def with_each(change):
            held = [change(one) if at in places and isinstance(one, torch.Tensor) else one
                    for at, one in enumerate(args)]
            return func(*held, **named)

        s = with_each(lambda x: x.clone())
        if not s.is_floating_point():
            return s
        return summed(mode, s, with_each(lambda x: x * x), with_each(torch.ones_like))

    return apply


for _name, _places in {"scatter_add": (0, 3), "index_add": (0, 3), "embedding_dense_backward": (0,),
                       "max_pool2d_with_indices_backward": (0,), "max_pool3d_with_indices_backward": (0,),
                       "col2im": (0,)}.items():
    SUMS[_name] = accumulating(*_places)


@SUMS.of("index_put", "_unsafe_index_put")
def index_put(mode, func, x, indices, values, accumulate=False):
    if not accumulate or not x.is_floating_point():
        return func(x, indices, values, accumulate)
    return accumulating(0, 2)(mode, func, x, indices, values.expand_as(x[tuple(
        slice(None) if one is None else one for one in indices)]).contiguous(), True)
