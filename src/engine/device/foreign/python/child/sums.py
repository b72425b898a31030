"""Sums over memory of a GPU that tell whether any bit of it has changed, as `src/device/cuda/sums.ptx` has them
for kernels of ours."""

# Elements whose sums are made at once.
PIECE = 1 << 24

# Odd numbers of 64 bits, of SplitMix64 (Steele, Lea and Flood, 2014).
MIXING = (-7046029254386353131, -4658895280553007687, -7723592293110705685)


def shifted(held, places):
    """Whole numbers shifted to the right with zeros coming in: with copies of the sign, a number and its complement
    would be mixed alike, as are 0.0 and poison."""
    return (held >> places) & ((1 << (64 - places)) - 1)


def of(array):
    """Two sums over the words of a tensor of PyTorch, each word mixed with its place: one bit that differs changes
    both."""
    import torch

    words = array.detach().contiguous().reshape(-1).view(torch.uint8)
    if words.numel() % 4 == 0 and words.data_ptr() % 4 == 0:
        words = words.view(torch.int32)
    totals = torch.zeros(2, dtype=torch.int64, device=array.device)
    for start in range(0, words.numel(), PIECE):
        held = words[start : start + PIECE].long()
        held += torch.arange(start, start + held.numel(), device=array.device).mul_(MIXING[0])
        for shift, factor in ((30, MIXING[1]), (27, MIXING[2])):
            held = (held ^ shifted(held, shift)).mul_(factor)
        totals[0] += held.sum()
        totals[1] += (held ^ shifted(held, 31)).mul_(MIXING[1]).sum()
    return totals.tolist()
