"""The compilation guide's workloads in PyTorch, as people write them.

Each is a function of the tensors of its workload. A training step is written twice: with
gradients of autograd, which torch.compile does not follow inside a function, and with those of
torch.func, which it does.
"""

import math

import torch
from torch.nn import functional


def matmul_chain(x, *factors):
    for factor in factors:
        x = x @ factor
    return x


def attention_block(x, wq, wk, wv, wo):
    q, k, v = x @ wq.T, x @ wk.T, x @ wv.T
    scores = q @ k.T / math.sqrt(x.shape[-1])
    return torch.softmax(scores, dim=-1) @ v @ wo.T


def mixed(a, b, w, gamma, beta):
    h = torch.relu(a + b) * b
    p = torch.softmax(h @ w, dim=-1)
    return functional.layer_norm(a + p, (a.shape[-1],), gamma, beta, 1e-5)


def mlp(x, w1, b1, w2, b2, w3, b3, target, rate):
    """A training step; gradients by autograd."""
    given = (w1, b1, w2, b2, w3, b3)
    with torch.enable_grad():
        parameters = [held.detach().requires_grad_(True) for held in given]
        loss = loss_of(parameters, x, target)
        gradients = torch.autograd.grad(loss, parameters)
    return loss.detach(), *step(given, gradients, rate)


def mlp_by_func(x, w1, b1, w2, b2, w3, b3, target, rate):
    """A training step; gradients by torch.func."""
    given = (w1, b1, w2, b2, w3, b3)
    gradients, loss = torch.func.grad_and_value(loss_of)(given, x, target)
    return loss, *step(given, gradients, rate)


def loss_of(parameters, x, target):
    w1, b1, w2, b2, w3, b3 = parameters
    h = torch.relu(functional.linear(x, w1, b1))
    h = torch.relu(functional.linear(h, w2, b2))
    return functional.mse_loss(functional.linear(h, w3, b3), target)


def step(parameters, gradients, rate):
    """Gradient descent."""
    pairs = zip(parameters, gradients)
    return [torch.sub(parameter, gradient, alpha=rate) for parameter, gradient in pairs]
