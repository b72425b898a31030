import torch


class ModelNew(torch.nn.Module):
    """Forgets the scale."""

    def __init__(self, features, scale):
        super().__init__()
        self.layer = torch.nn.Linear(features, 2 * features)

    def forward(self, rows):
        return torch.relu(self.layer(rows))
