import torch


class ModelNew(torch.nn.Module):
    """Has the weights of `Model` by their names, whatever it begins with."""

    def __init__(self, features, scale):
        super().__init__()
        torch.rand(3)
        self.layer = torch.nn.Linear(features, 2 * features)
        self.scale = scale

    def forward(self, rows):
        held = torch.addmm(self.layer.bias, rows, self.layer.weight.t())
        return held.clamp_(min=0).mul_(self.scale)
