import torch


class Model(torch.nn.Module):
    def forward(self, x, s):
        return x * s


def get_inputs():
    return [torch.rand(8), 3.5]


def get_init_inputs():
    return []
