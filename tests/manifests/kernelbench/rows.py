import torch
import torch.nn as nn


class Model(nn.Module):
    """Rows through a layer, rectified and scaled."""

    def __init__(self, features, scale):
        super().__init__()
        self.layer = nn.Linear(features, 2 * features)
        self.scale = scale

    def forward(self, rows):
        return self.scale * torch.relu(self.layer(rows))


batch, features = 4 * 8, 64
scale = 0.5


def get_inputs():
    return [torch.rand(batch, features)]


def get_init_inputs():
    return [features, scale]
