"""AmoebaNet-A: Real, Aggarwal, Huang and Le, "Regularized Evolution for Image Classifier
Architecture Search", AAAI 2019 (arXiv:1802.01548).

The cells are put together as in NASNet. The states that each cell concatenates are those of the
authors' TPU code, which gives the paper's sizes; with only the states that
nothing within the cell uses, the network would have 15% fewer parameters.
"""

from .nasnet import CellSpec, NASNet

NORMAL = CellSpec(
    ops=[
        ("avg_pool", 0), ("max_pool", 0),
        ("sep_3x3", 1), ("none", 1),
        ("none", 0), ("avg_pool", 1),
        ("sep_3x3", 0), ("sep_5x5", 2),
        ("avg_pool", 5), ("sep_3x3", 0),
    ],
    concat=[1, 3, 4, 6],
)  # fmt: skip

REDUCTION = CellSpec(
    ops=[
        ("sep_3x3", 1), ("avg_pool", 0),
        ("max_pool", 0), ("sep_7x7", 2),
        ("max_pool", 1), ("max_pool", 0),
        ("sep_3x3", 4), ("1x7_7x1", 0),
        ("avg_pool", 1), ("sep_7x7", 0),
    ],
    concat=[2, 3, 4, 5, 6],
)  # fmt: skip


def amoebanet():
    """AmoebaNet-A (N = 4, F = 50) for 224x224 images: 5.1M parameters, 555M multiply-adds."""
    return NASNet(NORMAL, REDUCTION, num_cells=4, channels=50)
