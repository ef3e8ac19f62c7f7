"""The ten networks of the Nimble paper's inference experiments, with random weights.

    net = models.network("nasnet_a_mobile")
    model = net.build()
    y = model(torch.randn(1, 3, net.image_size, net.image_size))

NASNet-A, DARTS and AmoebaNet-A are defined here and need torch only; the others come from
torchvision, imported when one of them is built.
"""

from dataclasses import dataclass
from typing import Callable

import torch
from torch import nn

from .amoebanet import amoebanet
from .darts import darts
from .nasnet import nasnet_a_large, nasnet_a_mobile

__all__ = ["NETWORKS", "Network", "network"]


@dataclass(frozen=True)
class Network:
    """`build(seed=0)` gives the model in eval mode; it takes square images of `image_size`."""

    name: str
    build: Callable[..., nn.Module]
    image_size: int


def network(name: str) -> Network:
    """The network of that name; the names are the keys of NETWORKS."""
    if name not in NETWORKS:
        raise ValueError(f"unknown network {name!r}; choose one of {', '.join(NETWORKS)}")
    return NETWORKS[name]


def _calibrate(model, image_size):
    """Sets the running statistics of every batch norm from one image of noise.

    Without it batch norm does nothing at first, and in most of these networks the image fades away
    before the last layer: the output would be the same, or next to zero, for any input.
    """
    momentum = {m: m.momentum for m in model.modules() if isinstance(m, nn.BatchNorm2d)}
    for norm in momentum:
        norm.train().momentum = 1.0
    with torch.no_grad():
        model(torch.randn(1, 3, image_size, image_size))
    for norm, value in momentum.items():
        norm.eval().momentum = value


def _network(name, construct, image_size=224):
    def build(seed=0):
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)  # the CPU's only
            model = construct().eval()
            _calibrate(model, image_size)
        return model

    return Network(name, build, image_size)


def _torchvision(name, image_size=224, **kwargs):
    def construct():
        from torchvision import models

        return getattr(models, name)(weights=None, **kwargs)

    return _network(name, construct, image_size)


_INCEPTION = {"aux_logits": False, "transform_input": False, "init_weights": False}

NETWORKS = {
    net.name: net
    for net in [
        _torchvision("resnet50"),
        _torchvision("resnet101"),
        _torchvision("inception_v3", 299, **_INCEPTION),
        _torchvision("mobilenet_v2"),
        _torchvision("efficientnet_b0"),
        _torchvision("efficientnet_b5", 456),
        _network("nasnet_a_mobile", nasnet_a_mobile),
        _network("nasnet_a_large", nasnet_a_large, 331),
        _network("darts", darts),
        _network("amoebanet", amoebanet),
    ]
}
