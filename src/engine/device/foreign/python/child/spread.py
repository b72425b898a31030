"""How far rounding may take an output from its answer, and how far a result is: sums over noise, which is what
`rounding` makes of the answer less the answer, and over errors. What follows from them does so where outputs
are judged."""

import torch

# Axes have sums for each index, if they are no longer.
LONGEST_AXIS = 65536

# Elements whose products are held at once.
PIECE = 1 << 24


class SliceSums:
    """Sums of a number that each element of a tensor has, in f64: over all of them, and for each index of each
    axis that is neither too long nor has an element alone for each index."""

    def __init__(self, tensor, device=None):
        def zeros(shape):
            return torch.zeros(shape, dtype=torch.float64, device=device or tensor.device)

        self.elements = tensor.numel()
        self.whole = zeros(())
        self.axes = {axis: zeros(extent) for axis, extent in enumerate(tensor.shape)
                     if 2 <= extent <= LONGEST_AXIS and tensor.numel() >= 2 * extent}

    def add(self, held, piece):
        """Adds the numbers of a piece of the tensor."""
        along, start, length = piece
        self.whole += held.sum()
        for axis, sums in self.axes.items():
            others = [other for other in range(held.dim()) if other != axis]
            part = held.sum(others) if others else held
            if axis == along:
                sums[start : start + length] += part
            else:
                sums += part

    def numbers(self, least=0.0):
        """All sums, as numbers: where one is not zero, with the square of `least` for each of its elements."""
        found = []
        for held in (self.whole.reshape(-1), *self.axes.values()):
            more = least * least * self.elements / held.numel()
            found += torch.where(held > 0.0, held + more, held).tolist()
        return found


def sums(answer, noises, dtype, least):
    """For each evaluation the squares of its noise, over the whole tensor and for each index of each axis, and
    its noise times the answer; for each second one products with the one before. At the end the answer's
    squares. `noises` are an even number of tensors; what `dtype` can't hold has no noise; `least` is the rms of
    the rounding of its least numbers, which elements with noise have besides."""
    found, size = [], 0.0
    for pair in zip(noises[::2], noises[1::2]):
        one, two, both = (SliceSums(answer) for _ in range(3))
        along, size = [0.0, 0.0], 0.0
        for piece in pieces(answer):
            a, d, e = (part(held, piece).double() for held in (answer, *pair))
            finite = torch.isfinite(a.to(dtype))
            a, d, e = (torch.where(finite, held, 0.0).nan_to_num_(0.0, 0.0, 0.0) for held in (a, d, e))
            along = [along[0] + float((a * d).sum()), along[1] + float((a * e).sum())]
            size += float((a * a).sum())
            for held, product in ((one, d * d), (two, e * e), (both, d * e)):
                held.add(product, piece)
        found += [*one.numbers(least), along[0], *two.numbers(least), along[1], *both.numbers()]
    return [*found, size]


def error_sums(answer, output):
    """How many elements are wrong because they are not finite or should not be; the error times the answer; the
    squares of errors and those of the answer, over the whole tensor and for each index of each axis. What the
    output's type can't hold is infinite there, and has no other error. Pieces go to a GPU if either tensor is on
    one, which is far faster."""
    device = answer.device if answer.is_cuda else output.device
    errors, sizes = SliceSums(answer, device), SliceSums(answer, device)
    wrong = along = 0.0
    for piece in pieces(answer):
        a, out = (part(held, piece).to(device) for held in (answer, output))
        rounded = a.to(out.dtype)
        finite = torch.isfinite(rounded)
        alike = torch.where(finite, torch.isfinite(out), (out == rounded) | (out.isnan() & rounded.isnan()))
        wrong += float((~alike).sum())
        error = torch.where(finite, out.double() - a, 0.0)
        a = torch.where(finite, a, 0.0)
        along += float((error * a).sum())
        errors.add(error * error, piece)
        sizes.add(a * a, piece)
    return [wrong, along, *errors.numbers(), *sizes.numbers()]


def overflows(answer, output):
    """Whether an output is not finite where its type can hold the answer."""
    def is_lost(piece):
        can_be = torch.isfinite(part(answer, piece).to(output.dtype))
        return bool((can_be & ~torch.isfinite(part(output, piece))).any())

    return any(map(is_lost, pieces(answer)))


def mean_square(held, elements):
    """That of the whole tensor's noise, by the sums of its first evaluation."""
    return held[0] / max(1, elements)


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


def part(tensor, piece):
    """A piece of a tensor."""
    return tensor.narrow(*piece) if tensor.dim() else tensor


def rms_by_slice(tensor):
    """The root mean squares of finite elements: of all, and for each index of each axis that has sums."""
    sums = SliceSums(tensor)
    for piece in pieces(tensor):
        held = part(tensor, piece)
        sums.add(torch.where(torch.isfinite(held), held, 0.0).double().square_(), piece)
    held = [sums.whole.reshape(-1), *sums.axes.values()]
    return [root for one in held for root in (one * (one.numel() / max(1, tensor.numel()))).sqrt().tolist()]


def rms(tensor):
    """The root of the mean square of finite elements."""
    total, count = 0.0, 0.0
    for piece in pieces(tensor):
        held = part(tensor, piece)
        finite = torch.isfinite(held)
        total += float(torch.where(finite, held, 0.0).double().square_().sum())
        count += float(finite.sum())
    return (total / max(1.0, count)) ** 0.5
