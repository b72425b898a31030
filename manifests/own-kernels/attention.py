"""Attention by its formula, as a program that is not optimised has it."""

import math

import torch


def attention(q, k, v, causal=False):
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    if causal:
        sequence = q.shape[-2]
        seen = torch.ones(sequence, sequence, dtype=torch.bool, device=q.device).tril()
        scores = scores.masked_fill(~seen, float("-inf"))
    return torch.softmax(scores, dim=-1) @ v
