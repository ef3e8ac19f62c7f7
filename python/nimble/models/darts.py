"""DARTS: Liu, Simonyan and Yang, "DARTS: Differentiable Architecture Search", ICLR 2019
(arXiv:1806.09055): the network for ImageNet built from the second-order cell, DARTS_V2.

Drop path and the auxiliary head serve training only and are left out.
"""

import torch
import torch.nn.functional as F
from torch import nn

from .cells import Cell

# (operation, state) pairs, two for each new state. State 0 is the output of the cell before the
# previous one, state 1 that of the previous cell.
NORMAL = [
    ("sep_conv_3x3", 0), ("sep_conv_3x3", 1),
    ("sep_conv_3x3", 0), ("sep_conv_3x3", 1),
    ("sep_conv_3x3", 1), ("skip_connect", 0),
    ("skip_connect", 0), ("dil_conv_3x3", 2),
]  # fmt: skip

REDUCTION = [
    ("max_pool_3x3", 0), ("max_pool_3x3", 1),
    ("skip_connect", 2), ("max_pool_3x3", 1),
    ("max_pool_3x3", 0), ("skip_connect", 2),
    ("skip_connect", 2), ("max_pool_3x3", 1),
]  # fmt: skip

CONCAT = [2, 3, 4, 5]


class FactorizedReduce(nn.Module):
    """Halves the image: two strided 1x1 convolutions, the second on the image less one pixel."""

    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.relu = nn.ReLU()
        self.conv1 = nn.Conv2d(in_channels, out_channels // 2, 1, stride=2, bias=False)
        self.conv2 = nn.Conv2d(in_channels, out_channels // 2, 1, stride=2, bias=False)
        self.bn = nn.BatchNorm2d(out_channels)

    def forward(self, x):
        x = self.relu(x)
        return self.bn(torch.cat([self.conv1(x), self.conv2(x[:, :, 1:, 1:])], 1))


def _relu_conv_bn(in_channels, out_channels):
    return nn.Sequential(
        nn.ReLU(),
        nn.Conv2d(in_channels, out_channels, 1, bias=False),
        nn.BatchNorm2d(out_channels),
    )


def _separable(channels, stride=1, dilation=1):
    return nn.Sequential(
        nn.ReLU(),
        nn.Conv2d(
            channels, channels, 3, stride, dilation, dilation, groups=channels, bias=False
        ),
        nn.Conv2d(channels, channels, 1, bias=False),
        nn.BatchNorm2d(channels),
    )


def _operation(name, channels, stride):
    if name == "sep_conv_3x3":
        return nn.Sequential(*_separable(channels, stride), *_separable(channels))
    if name == "dil_conv_3x3":
        return _separable(channels, stride, dilation=2)
    if name == "max_pool_3x3":
        return nn.MaxPool2d(3, stride, padding=1)
    if name == "skip_connect":
        return nn.Identity() if stride == 1 else FactorizedReduce(channels, channels)
    raise ValueError(f"unknown operation {name!r}")


class DARTS(nn.Module):
    """A stem of three convolutions and `num_cells` cells; those at one and two thirds of the depth
    halve the image and double the channels."""

    def __init__(self, channels=48, num_cells=14, num_classes=1000):
        super().__init__()
        self.stem0 = nn.Sequential(
            nn.Conv2d(3, channels // 2, 3, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(channels // 2),
            nn.ReLU(),
            nn.Conv2d(channels // 2, channels, 3, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(channels),
        )
        self.stem1 = nn.Sequential(
            nn.ReLU(),
            nn.Conv2d(channels, channels, 3, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(channels),
        )
        self.cells = nn.ModuleList()
        before, last = channels, channels  # of the two inputs of the next cell
        halved = True  # by whatever made the last of them
        for i in range(num_cells):
            halve = i in (num_cells // 3, 2 * num_cells // 3)
            channels *= 2 if halve else 1
            adjust0 = FactorizedReduce if halved else _relu_conv_bn
            adjust = [adjust0(before, channels), _relu_conv_bn(last, channels)]
            edges = REDUCTION if halve else NORMAL
            ops = [_operation(op, channels, 2 if halve and s < 2 else 1) for op, s in edges]
            self.cells.append(Cell(adjust, ops, [s for _, s in edges], CONCAT))
            before, last, halved = last, len(CONCAT) * channels, halve
        self.classifier = nn.Linear(last, num_classes)

    def forward(self, x):
        x0 = self.stem0(x)
        x1 = self.stem1(x0)
        for cell in self.cells:
            x0, x1 = x1, cell(x0, x1)
        return self.classifier(F.adaptive_avg_pool2d(x1, 1).flatten(1))


def darts():
    """DARTS (C = 48, 14 cells) for 224x224 images: 4.7M parameters, 574M multiply-adds."""
    return DARTS()
