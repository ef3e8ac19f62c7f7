"""What is trained: networks on CIFAR-10's shapes, BERT-base, an MLP, an LSTM, or a job of the user's.

NAME@BATCH, with any size of batch; NAME alone stands for the sizes that are usual.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

from nimble.bench import kinds

#: Times the speed of PyTorch on a V100: the Nimble paper's figures for training on CIFAR-10.
PAPER_SPEEDUP = {
    "mobilenet_v2@32": 3.61,
    "mobilenet_v2@64": 3.10,
    "mobilenet_v2@128": 2.28,
    "efficientnet_b0@32": 3.32,
    "efficientnet_b0@64": 2.72,
    "efficientnet_b0@128": 1.88,
    "resnet50@32": 1.90,
    "resnet50@64": 1.54,
    "resnet50@128": 1.33,
}

#: These networks amplify rounding at initialisation: with a rate of 1e-2 a change of 2^-22 in the
#: inputs moves the fourth loss by 5 %, about as much as not to train at all does. With this rate
#: rounding moves it by 0.2 % at most, and not to train by 0.1 to 1 %. It costs no time.
_CNN_RATE = 1e-6


@dataclass
class Job:
    """A model in training mode, and how it is trained. Its optimizer has made its state."""

    model: nn.Module
    loss_fn: Callable | None  # None: the model returns the loss
    optimizer: torch.optim.Optimizer

    def loss(self, *batch):
        if self.loss_fn is None:
            return self.model(*batch)
        return self.loss_fn(self.model(*batch[:-1]), batch[-1])

    def step(self, *batch):
        self.optimizer.zero_grad()
        loss = self.loss(*batch)
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def tensors(self):
        """All that a step changes: parameters, buffers, state of the optimizer."""
        states = [v for state in self.optimizer.state.values() for v in state.values()]
        return [
            *self.model.parameters(),
            *self.model.buffers(),
            *(v for v in states if isinstance(v, torch.Tensor)),
        ]


def load(name):
    """A job and a batch; the same in every process that loads it.

    The first step is done, in eager mode: it makes the optimizer's state, and so does other work
    than all later ones.
    """
    job, batch = build(name)
    torch.manual_seed(0)
    job.step(*batch)
    return job, batch


def build(name):
    """As `load`, without the first step."""
    torch.manual_seed(0)
    if ":" in name:
        model, loss_fn, optimizer, batch = kinds.of_user(name)
    else:
        kind, _, size = name.partition("@")
        model, loss_fn, optimizer, batch = _KINDS[kind][0](int(size))
    return Job(model.train(), loss_fn, optimizer), tuple(batch)


def expand(name):
    if ":" in name or name in NAMES:
        return (name,)
    kind, _, size = name.partition("@")
    if kind not in _KINDS or (size and not (size.isdigit() and int(size))):
        known = ", ".join(_KINDS)
        raise ValueError(f"{name!r} is neither module:function nor one of {known} with @BATCH")
    return (name,) if size else tuple(f"{kind}@{size}" for size in _KINDS[kind][1])


def _network_on_cifar(network):
    def make(size):
        from torchvision import models

        model = getattr(models, network)(weights=None, num_classes=10)
        optimizer = torch.optim.SGD(
            model.parameters(), lr=_CNN_RATE, momentum=0.9, weight_decay=5e-4
        )
        batch = torch.randn(size, 3, 32, 32), torch.randint(10, (size,))
        return model, F.cross_entropy, optimizer, batch

    return make


def _loss_of_logits(output, target):
    return F.cross_entropy(output.logits, target)


def _bert_base(size):
    from transformers import BertConfig, BertForSequenceClassification

    config = BertConfig()
    model = BertForSequenceClassification(config)
    batch = torch.randint(config.vocab_size, (size, 128)), torch.randint(2, (size,))
    return model, _loss_of_logits, torch.optim.AdamW(model.parameters(), lr=2e-5), batch


def _mlp(size):
    layers = [nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8)]
    batch = torch.randn(size, 64), torch.randint(8, (size,))
    return *_with_adam(nn.Sequential(*layers)), batch


class LastStep(nn.Module):
    """An LSTM, and a linear layer on its last time step."""

    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(32, 64)
        self.last = nn.Linear(64, 8)

    def forward(self, x):
        return self.last(self.lstm(x)[0][-1])


def _lstm(size):
    batch = torch.randn(16, size, 32), torch.randint(8, (size,))
    return *_with_adam(LastStep()), batch


def _with_adam(model):
    return model, F.cross_entropy, torch.optim.Adam(model.parameters(), lr=1e-3)


_KINDS = {  # and the sizes of batches that are usual
    "mobilenet_v2": (_network_on_cifar("mobilenet_v2"), (32, 64, 128)),
    "efficientnet_b0": (_network_on_cifar("efficientnet_b0"), (32, 64, 128)),
    "resnet50": (_network_on_cifar("resnet50"), (32, 64, 128)),
    "bert_base": (_bert_base, (8,)),
    "mlp": (_mlp, (1, 32)),
    "lstm": (_lstm, (1, 32)),
}

NAMES = tuple(f"{kind}@{size}" for kind, (_, sizes) in _KINDS.items() for size in sizes)
