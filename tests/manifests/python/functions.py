"""PyTorch's functions, and one of the user that a tutorial would have."""

import torch


def softmax(x):
    held = torch.exp(x - x.max(dim=-1, keepdim=True).values)
    return held / held.sum(dim=-1, keepdim=True)


def softmax_backward(x, grad_out):
    y = torch.softmax(x, dim=-1)
    return y * (grad_out - (grad_out * y).sum(dim=-1, keepdim=True))


def marks(x):
    """Leaves its argument otherwise than it was given it."""
    return torch.softmax(x.requires_grad_(True), dim=-1).detach()


def unmarked(x):
    if x.requires_grad:
        raise RuntimeError("another function has changed this tensor")
    return torch.softmax(x, dim=-1)


def product(x, *factors):
    for factor in factors:
        x = x @ factor
    return x


def chain(cum_scores, transition, duration_bias):
    """A semi-Markov CRF whose segments are all of length 1, over whole sequences."""
    alpha = torch.zeros_like(cum_scores[:, 0])
    for t in range(cum_scores.shape[1] - 1):
        score = cum_scores[:, t + 1] - cum_scores[:, t] + duration_bias[1]
        alpha = torch.logsumexp(alpha[:, :, None] + transition, dim=1) + score
    return torch.logsumexp(alpha, dim=1)


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
