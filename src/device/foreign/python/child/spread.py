"""How far rounding may take an output from its answer, as numbers that lines are drawn by: statistics of
noise, which is what `rounding` makes of the answer less the answer."""

import torch

# Axes have a mean square for each index, if they are no longer.
LONGEST_AXIS = 65536

# Elements whose products are held at once.
PIECE = 1 << 24


def statistics(answer, noises, least):
    """[probes, nu, ms, scale] of the whole tensor, then ms and nu of each index of each axis. `noises` are
    an even number of tensors; `least` is the rms of the rounding of the least numbers of the format."""
    axes = [axis for axis, extent in enumerate(answer.shape)
            if 2 <= extent <= LONGEST_AXIS and answer.numel() >= 2 * extent]
    whole, by_axis = Moments(()), {axis: Moments((answer.shape[axis],)) for axis in axes}
    scales, size = [], 0.0
    for one, two in zip(noises[::2], noises[1::2]):
        *both, size = add_pair(answer, one, two, whole, by_axis)
        scales += both
    scale = sum((held / size) ** 2 for held in scales) / len(scales) if size > 0.0 else 0.0
    ms, nu = whole.ms_and_nu(answer.numel(), least)
    held = [float(len(noises)), *nu, *ms, scale**0.5]
    for axis in axes:
        for numbers in by_axis[axis].ms_and_nu(answer.numel() // answer.shape[axis], least):
            held += numbers
    return held


class Moments:
    """Sums of products of the noise of pairs of evaluations, for each slice."""

    def __init__(self, shape):
        self.shape = shape
        self.squares = torch.zeros(shape, dtype=torch.float64)
        self.cosines = []
        self.probes = 0

    def add(self, one, two, both):
        """The sums of a pair: of squares of each, and of products of both."""
        one, two, both = (held.cpu().reshape(self.shape) for held in (one, two, both))
        self.squares += one + two
        self.probes += 2
        cosine = both.square().div_(one * two)
        # Noise of one evaluation that is nothing tells nothing of the angle.
        self.cosines.append(cosine.nan_to_num_(1.0, 1.0, 1.0).clamp_max_(1.0))

    def ms_and_nu(self, elements, least):
        """The mean square and the degrees of freedom of each slice of so many elements. One slice has few
        pairs: its freedom is at most that of the mean of all."""
        ms = (self.squares / max(1, self.probes * elements)).reshape(-1)
        is_noisy = ms > 0.0
        pairs = max(1, len(self.cosines))
        cosines = sum(held.reshape(-1) for held in self.cosines) / pairs
        mean = float(cosines[is_noisy].mean()) if is_noisy.any() else 1.0
        nu = 1.0 / (cosines.clamp_min(mean) + 1.0 / (48.0 * pairs))
        ms = torch.where(is_noisy, ms + least * least, ms)
        return ms.tolist(), nu.clamp_min(1.0).tolist()


def add_pair(answer, one, two, whole, by_axis):
    """Adds the sums of a pair of evaluations; returns the sums of noise times answer, and of
    the answer's squares."""
    names = ("one", "two", "both")
    total = {name: torch.zeros((), dtype=torch.float64, device=answer.device) for name in (*names, "a", "b", "aa")}
    axes = {axis: {name: torch.zeros(answer.shape[axis], dtype=torch.float64, device=answer.device)
                   for name in names} for axis in by_axis}
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
    whole.add(*(total[name] for name in names))
    for axis, sums in axes.items():
        by_axis[axis].add(*(sums[name] for name in names))
    return [float(total["a"]), float(total["b"]), float(total["aa"])]


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
