import torch
from torch import nn


class Model(nn.Module):
    """The place of the largest number of each window, for classes of chance."""

    def __init__(self, kernel):
        super().__init__()
        self.pool = nn.MaxPool1d(kernel, stride=2)
        self.drop = nn.Dropout(0.5)

    def forward(self, x, classes):
        return self.drop(self.pool(x)), classes % 2 == 0


length = 99
count = 7
kernel = 3


def get_inputs():
    return [torch.randn(count, length) * 2, torch.randint(0, 10, (count,))]


def get_init_inputs():
    return [kernel]
