"""Training of recurrent networks. Their kernels keep more for a backward pass if grad mode is on."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import nimble
from test_training import EXACT, eager, same, same_state, twins, uses_replay

pytestmark = pytest.mark.usefixtures("one_thread")
KINDS = {"lstm": nn.LSTM, "gru": nn.GRU, "rnn": nn.RNN}
FORMS = {
    "one layer": {},
    "bidirectional": {"bidirectional": True},
    "without bias": {"bias": False},
    "two layers": {"num_layers": 2},
    "dropout, bidirectional": {"num_layers": 2, "dropout": 0.5, "bidirectional": True},
}


class Classifier(nn.Module):
    def __init__(self, kind, **options):
        super().__init__()
        self.layers = kind(6, 8, batch_first=True, **options)
        self.last = nn.Linear(16 if options.get("bidirectional") else 8, 3)

    def forward(self, x):
        return self.last(self.layers(x)[0][:, -1])


def sequences(count, size):
    generator = torch.Generator().manual_seed(1)
    for _ in range(count):
        yield (
            torch.randn(size, 5, 6, generator=generator),
            torch.randint(0, 3, (size,), generator=generator),
        )


@pytest.mark.parametrize("size", [1, 32])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_step_equals_eager(kind, form, size):
    a, b = twins(model=lambda: Classifier(KINDS[kind], **FORMS[form]))
    step = nimble.TrainStep(a[0], F.cross_entropy, a[1], **EXACT)
    for i, (x, y) in enumerate(sequences(10, size)):
        torch.manual_seed(i)
        loss = step(x, y)
        torch.manual_seed(i)
        same(loss, eager(*b)(x, y).detach())
        same_state(a, b)
    assert uses_replay(step)


@pytest.mark.parametrize("kind", KINDS)
def test_steps_with_our_kernels_follow_eager(kind):
    a, b = twins(model=lambda: Classifier(KINDS[kind], bidirectional=True))
    step = nimble.TrainStep(a[0], F.cross_entropy, a[1])
    for x, y in sequences(10, 32):
        torch.testing.assert_close(step(x, y), eager(*b)(x, y).detach(), rtol=1e-4, atol=1e-5)
    for ours, theirs in zip(a[0].parameters(), b[0].parameters()):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)
    assert uses_replay(step)


def test_a_step_with_and_without_grad_mode():
    """One call keeps what a backward pass needs, the other does not."""
    torch.manual_seed(0)
    model = Classifier(nn.LSTM)
    parameters = list(model.parameters())

    def function(x):
        with torch.no_grad():
            target = model(x + 1)
        return target, *torch.autograd.grad(F.mse_loss(model(x), target), parameters)

    engine = nimble.record(function, torch.randn(4, 5, 6), **EXACT)
    x = torch.randn(4, 5, 6)
    same(engine(x), function(x))
