"""The parts that the cell-based networks (NASNet-A, AmoebaNet-A, DARTS) are made of.

A cell takes the outputs of the two cells before it, adds up pairs of operations on its states, and
concatenates some of the states. The branches share nothing but their inputs: every branch has a
ReLU of its own, never in place, so a scheduler is free to run them at the same time.
"""

import torch
import torch.nn.functional as F
from torch import nn


class SameConv2d(nn.Conv2d):
    """A convolution without bias, padded as TensorFlow's "SAME": ceil(size / stride) outputs.

    Where the padding is odd, the extra row and column come after the image.
    """

    def __init__(self, in_channels, out_channels, kernel_size, stride=1, groups=1):
        super().__init__(in_channels, out_channels, kernel_size, stride, groups=groups, bias=False)

    def forward(self, x):
        h, w = (
            max(kernel - (size % stride or stride), 0)
            for size, kernel, stride in zip(x.shape[2:], self.kernel_size, self.stride)
        )
        padding = (h // 2, w // 2)
        if h % 2 or w % 2:
            x = F.pad(x, (w // 2, w - w // 2, h // 2, h - h // 2))
            padding = 0
        return F.conv2d(x, self.weight, None, self.stride, padding, 1, self.groups)


class SamePool2d(nn.Module):
    """A 3x3 average or max pool, padded as TensorFlow's "SAME"; padding is never counted.

    With a stride of 2 and an even size only the end is padded, which is what ceil_mode does.
    """

    def __init__(self, kind, stride):
        super().__init__()
        self.kind, self.stride = kind, stride

    def extra_repr(self):
        return f"{self.kind}, stride={self.stride}"

    def forward(self, x):
        padding = [1 if self.stride == 1 or size % 2 else 0 for size in x.shape[2:]]
        if self.kind == "max":
            return F.max_pool2d(x, 3, self.stride, padding, ceil_mode=True)
        return F.avg_pool2d(x, 3, self.stride, padding, ceil_mode=True, count_include_pad=False)


class FactorizedReduction(nn.Module):
    """Halves the image: two 1x1 convolutions, the second on the image shifted by one pixel."""

    def __init__(self, in_channels, out_channels, eps):
        super().__init__()
        half = out_channels // 2
        self.relu = nn.ReLU()
        self.path1 = nn.Sequential(
            nn.AvgPool2d(1, stride=2), nn.Conv2d(in_channels, half, 1, bias=False)
        )
        self.path2 = nn.Sequential(
            nn.ZeroPad2d((-1, 1, -1, 1)),
            nn.AvgPool2d(1, stride=2),
            nn.Conv2d(in_channels, out_channels - half, 1, bias=False),
        )
        self.bn = nn.BatchNorm2d(out_channels, eps=eps)

    def forward(self, x):
        x = self.relu(x)
        return self.bn(torch.cat([self.path1(x), self.path2(x)], 1))


class Cell(nn.Module):
    """One cell.

    `adjust` are the two modules that bring the inputs to the cell's size, giving states 0 and 1.
    Operations 2i and 2i + 1 are applied to the states `inputs[2i]` and `inputs[2i + 1]`, and their
    sum is state 2 + i. The output is the concatenation of the states listed in `concat`.
    """

    def __init__(self, adjust, ops, inputs, concat):
        super().__init__()
        self.adjust = nn.ModuleList(adjust)
        self.ops = nn.ModuleList(ops)
        self.inputs, self.concat = tuple(inputs), tuple(concat)

    def forward(self, x0, x1):
        states = [self.adjust[0](x0), self.adjust[1](x1)]
        for i in range(0, len(self.ops), 2):
            left = self.ops[i](states[self.inputs[i]])
            right = self.ops[i + 1](states[self.inputs[i + 1]])
            states.append(left + right)
        return torch.cat([states[i] for i in self.concat], 1)


def relu_conv_bn(in_channels, out_channels, kernel_size, stride=1, eps=1e-3):
    return nn.Sequential(
        nn.ReLU(),
        SameConv2d(in_channels, out_channels, kernel_size, stride),
        nn.BatchNorm2d(out_channels, eps=eps),
    )


def separable(in_channels, out_channels, kernel_size, stride, eps=1e-3):
    """A separable convolution applied twice; only the first has the stride."""
    return nn.Sequential(
        nn.ReLU(),
        SameConv2d(in_channels, in_channels, kernel_size, stride, groups=in_channels),
        SameConv2d(in_channels, out_channels, 1),
        nn.BatchNorm2d(out_channels, eps=eps),
        nn.ReLU(),
        SameConv2d(out_channels, out_channels, kernel_size, groups=out_channels),
        SameConv2d(out_channels, out_channels, 1),
        nn.BatchNorm2d(out_channels, eps=eps),
    )
