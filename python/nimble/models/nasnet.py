"""NASNet-A: Zoph, Vasudevan, Shlens and Le, "Learning Transferable Architectures for Scalable
Image Recognition", CVPR 2018 (arXiv:1707.07012).

The details that the paper leaves out (stem, skip adjustments, padding) are those of the authors'
TensorFlow-Slim code. Dropout, drop path and the auxiliary head serve training only and are left
out.
"""

from collections import namedtuple

import torch.nn.functional as F
from torch import nn

from .cells import Cell, FactorizedReduction, SamePool2d, relu_conv_bn, separable

# (operation, state) pairs, two for each new state, and the states to concatenate. State 0 is the
# output of the previous cell, state 1 that of the cell before it.
CellSpec = namedtuple("CellSpec", "ops concat")

NORMAL = CellSpec(
    ops=[
        ("sep_5x5", 0), ("sep_3x3", 1),
        ("sep_5x5", 1), ("sep_3x3", 1),
        ("avg_pool", 0), ("none", 1),
        ("avg_pool", 1), ("avg_pool", 1),
        ("sep_3x3", 0), ("none", 0),
    ],
    concat=[1, 2, 3, 4, 5, 6],
)  # fmt: skip

REDUCTION = CellSpec(
    ops=[
        ("sep_5x5", 0), ("sep_7x7", 1),
        ("max_pool", 0), ("sep_7x7", 1),
        ("avg_pool", 0), ("sep_5x5", 1),
        ("avg_pool", 2), ("none", 3),
        ("sep_3x3", 2), ("max_pool", 0),
    ],
    concat=[3, 4, 5, 6],
)  # fmt: skip

EPS = 1e-3


def _bottleneck_1x7_7x1(in_channels, channels, stride):
    mid = channels // 4
    return nn.Sequential(
        *relu_conv_bn(in_channels, mid, 1),
        *relu_conv_bn(mid, mid, (1, 7), (1, stride)),
        *relu_conv_bn(mid, mid, (7, 1), (stride, 1)),
        *relu_conv_bn(mid, channels, 1),
    )


def _operation(name, in_channels, channels, stride):
    if name.startswith("sep_"):
        return separable(in_channels, channels, int(name[-1]), stride)
    if name == "1x7_7x1":
        return _bottleneck_1x7_7x1(in_channels, channels, stride)
    if name == "none":
        same = stride == 1 and in_channels == channels
        return nn.Identity() if same else relu_conv_bn(in_channels, channels, 1, stride)
    pool = SamePool2d(name[:3], stride)
    if in_channels == channels:
        return pool
    conv = nn.Conv2d(in_channels, channels, 1, bias=False)
    return nn.Sequential(pool, conv, nn.BatchNorm2d(channels, eps=EPS))


def _adjust(channels, cur, prev):
    """Brings `prev` to the image size of `cur` and the given number of channels."""
    if prev is cur:  # the first cell has no other input, and takes it as it is
        return nn.Identity()
    if prev[1] != cur[1]:
        return FactorizedReduction(prev[0], channels, EPS)
    return nn.Identity() if prev[0] == channels else relu_conv_bn(prev[0], channels, 1)


def _cell(spec, channels, stride, cur, prev):
    """A cell, and the (channels, stride of the image) of its output, given those of its inputs."""
    adjust = [relu_conv_bn(cur[0], channels, 1), _adjust(channels, cur, prev)]
    in_channels = [channels] * (2 + len(spec.ops) // 2)
    if prev is cur:
        in_channels[1] = prev[0]
    ops = [
        _operation(name, in_channels[state], channels, stride if state < 2 else 1)
        for name, state in spec.ops
    ]
    inputs = [state for _, state in spec.ops]
    return Cell(adjust, ops, inputs, spec.concat), (channels * len(spec.concat), cur[1] * stride)


class NASNet(nn.Module):
    """A stem of one convolution and two reduction cells, then three stages of `num_cells` normal
    cells with `channels`, 2 `channels` and 4 `channels` filters, a reduction cell between stages.

    The first normal cell after a reduction cell takes as its second input the input of that
    reduction cell; with `skip_reduction_input`, the one before that (as NASNet-A large does).
    """

    def __init__(
        self,
        normal,
        reduction,
        num_cells,
        channels,
        stem_channels=32,
        skip_reduction_input=False,
        num_classes=1000,
    ):
        super().__init__()
        self.conv0 = nn.Sequential(
            nn.Conv2d(3, stem_channels, 3, stride=2, bias=False),
            nn.BatchNorm2d(stem_channels, eps=EPS),
        )
        self.cells = nn.ModuleList()
        self.back = []  # for each cell, how many outputs back its second input is
        outputs = [(stem_channels, 2)]

        def add(spec, filters, stride, back=2):
            cell, output = _cell(spec, filters, stride, outputs[-1], outputs[-back])
            self.cells.append(cell)
            self.back.append(back)
            outputs.append(output)

        add(reduction, channels // 4, 2, back=1)
        add(reduction, channels // 2, 2)
        for stage in range(3):
            filters = channels * 2**stage
            if stage > 0:
                add(reduction, filters, 2)
            for i in range(num_cells):
                skip = skip_reduction_input and stage > 0 and i == 0
                add(normal, filters, 1, back=3 if skip else 2)
        self.classifier = nn.Linear(outputs[-1][0], num_classes)

    def forward(self, x):
        outputs = [self.conv0(x)]
        for cell, back in zip(self.cells, self.back):
            output = cell(outputs[-1], outputs[-back])
            outputs = [*outputs[-2:], output]
        x = F.adaptive_avg_pool2d(F.relu(outputs[-1]), 1)
        return self.classifier(x.flatten(1))


def nasnet_a_mobile():
    """NASNet-A (4 @ 1056) for 224x224 images: 5.3M parameters, 564M multiply-adds."""
    return NASNet(NORMAL, REDUCTION, num_cells=4, channels=44)


def nasnet_a_large():
    """NASNet-A (6 @ 4032) for 331x331 images: 88.9M parameters, 23.8B multiply-adds."""
    return NASNet(
        NORMAL, REDUCTION, num_cells=6, channels=168, stem_channels=96, skip_reduction_input=True
    )
