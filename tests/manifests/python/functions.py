"""PyTorch's functions, and one of the user that a tutorial would have."""

import torch


def softmax(x):
    held = torch.exp(x - x.max(dim=-1, keepdim=True).values)
    return held / held.sum(dim=-1, keepdim=True)


def softmax_backward(x, grad_out):
    y = torch.softmax(x, dim=-1)
    return y * (grad_out - (grad_out * y).sum(dim=-1, keepdim=True))


class Doubling:
    """Not called when a file's definitions alone are loaded."""

    def __init__(self):
        raise RuntimeError("this file was to be defined, and not executed")


table = {}
made = softmax(torch.ones(1 << 20, 8))
derived = made * 2
assert derived is not made
for step in range(3):
    table[step] = Doubling()
Doubling()

if __name__ == "__main__":
    Doubling()
