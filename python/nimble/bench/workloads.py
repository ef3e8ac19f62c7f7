"""What is run for inference: the paper's networks, BERT-base, an MLP, or a function of the user's."""

from dataclasses import dataclass

import torch
from torch import nn

from nimble import models
from nimble.bench import kinds

#: Times the speed of PyTorch on a V100, batch 1: the Nimble paper's inference figure.
PAPER_SPEEDUP = {
    "nasnet_a_mobile": 22.34,
    "mobilenet_v2": 9.99,
    "efficientnet_b0": 9.03,
    "nasnet_a_large": 5.49,
    "inception_v3": 5.16,
    "resnet101": 4.59,
    "resnet50": 4.32,
    "efficientnet_b5": 3.82,
}


@dataclass(frozen=True)
class Workload:
    """A model in eval mode, and the tensors it is called with."""

    name: str
    model: nn.Module
    inputs: tuple


def load(name):
    """The workload of that name; the same weights and inputs in every process that loads it."""
    torch.manual_seed(0)
    if name in models.NETWORKS:
        net = models.network(name)
        return Workload(name, net.build(), (torch.randn(1, 3, net.image_size, net.image_size),))
    if name in _OTHERS:
        return Workload(name, *_OTHERS[name]())
    model, inputs = kinds.of_user(name)
    return Workload(name, model, inputs if isinstance(inputs, tuple) else (inputs,))


class LastHiddenState(nn.Module):
    """A transformers model as a function from token ids to its last hidden state."""

    def __init__(self, transformer):
        super().__init__()
        self.transformer = transformer

    def forward(self, ids):
        return self.transformer(ids).last_hidden_state


def _bert_base():
    from transformers import BertConfig, BertModel

    config = BertConfig()
    model = LastHiddenState(BertModel(config)).eval()
    return model, (torch.randint(config.vocab_size, (1, 128)),)


def _mlp():
    layers = [nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8)]
    return nn.Sequential(*layers).eval(), (torch.randn(1, 64),)


_OTHERS = {"bert_base": _bert_base, "mlp": _mlp}

#: Every workload that has a name.
NAMES = (*models.NETWORKS, *_OTHERS)
