"""How far rounding may take an output from its answer: sums over noise, which is what `rounding` makes of the
answer less the answer. What follows from them does so where outputs are judged."""

import torch

# Axes have sums for each index, if they are no longer.
LONGEST_AXIS = 65536

# Elements whose products are held at once.
PIECE = 1 << 24


def sums(answer, noises, least):
    """For each evaluation the squares of its noise, over the whole tensor and for each index of each axis, and
    its noise times the answer; for each second one products with the one before. At the end the answer's
    squares. `noises` are an even number of tensors; `least` is the rms of the rounding of the least numbers of
    the format, which elements with noise have besides."""
    axes = [axis for axis, extent in enumerate(answer.shape)
            if 2 <= extent <= LONGEST_AXIS and answer.numel() >= 2 * extent]
    found, size = [], 0.0
    for one, two in zip(noises[::2], noises[1::2]):
        total, by_axis = sums_of_pair(answer, one, two, axes)
        size = float(total["aa"])
        for name, along in (("one", "a"), ("two", "b"), ("both", None)):
            for held in (total, *by_axis.values()):
                found += floored(held[name], answer.numel(), least * least if along else 0.0)
            found += [float(total[along])] if along else []
    return [*found, size]


def floored(held, elements, least):
    """Sums of squares over so many elements of all slices together, as numbers."""
    held = held.reshape(-1)
    return torch.where(held > 0.0, held + least * elements / held.numel(), held).tolist()


def mean_square(held, elements):
    """That of the whole tensor's noise, by the sums of its first evaluation."""
    return held[0] / max(1, elements)


def sums_of_pair(answer, one, two, axes):
    """The sums of a pair of evaluations: of squares of each, of products of both, of noise times answer, and
    of the answer's squares; over all elements, and some for each index of axes."""
    names = ("one", "two", "both")
    total = {name: torch.zeros((), dtype=torch.float64, device=answer.device) for name in (*names, "a", "b", "aa")}
    axes = {axis: {name: torch.zeros(answer.shape[axis], dtype=torch.float64, device=answer.device)
                   for name in names} for axis in axes}
    for axis, start, length in pieces(answer):
        a, d, e = (held.narrow(axis, start, length) if held.dim() else held for held in (answer, one, two))
        finite = torch.isfinite(a)
        a, d, e = (torch.where(finite, held.double(), 0.0).nan_to_num_(0.0, 0.0, 0.0) for held in (a, d, e))
        total["a"] += (a * d).sum()
        total["b"] += (a * e).sum()
        total["aa"] += (a * a).sum()
        for name, held in zip(names, (d * d, e * e, d * e)):
            total[name] += held.sum()
            for at, sums in axes.items():
                others = [other for other in range(held.dim()) if other != at]
                part = held.sum(others) if others else held
                if at == axis:
                    sums[name][start : start + length] += part
                else:
                    sums[name] += part
    return total, axes


def pieces(tensor):
    """Pieces along the longest axis: the axis, where each begins, and how long it is."""
    if tensor.dim() == 0:
        yield 0, 0, 1
        return
    axis = max(range(tensor.dim()), key=lambda held: tensor.shape[held])
    extent = tensor.shape[axis]
    step = max(1, PIECE * extent // max(1, tensor.numel()))
    for start in range(0, extent, step):
        yield axis, start, min(step, extent - start)


def rms(tensor):
    """The root of the mean square of finite elements."""
    total, count = 0.0, 0.0
    for axis, start, length in pieces(tensor):
        held = tensor.narrow(axis, start, length) if tensor.dim() else tensor
        finite = torch.isfinite(held)
        total += float(torch.where(finite, held, 0.0).double().square_().sum())
        count += float(finite.sum())
    return (total / max(1.0, count)) ** 0.5
