"""Nimble(model).prepare(x, training=True): both passes are replayed, loss and optimizer are the user's."""

import gc
import weakref

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import nimble

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning"),
    pytest.mark.usefixtures("one_thread"),
]
EXACT = {"streams": 1, "kernels": "torch"}


@pytest.fixture(autouse=True)
def fresh_dynamo():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


class Net(nn.Module):
    def __init__(self, dropout=0.0):
        super().__init__()
        self.first = nn.Conv2d(3, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.dropout = nn.Dropout(dropout)
        self.last = nn.Linear(4 * 36, 3)

    def forward(self, x):
        x = torch.relu(self.norm(self.first(x))).flatten(1)
        return self.last(self.dropout(x))


def twins(make=Net):
    torch.manual_seed(0)
    ours, theirs = make().train(), make().train()
    theirs.load_state_dict(ours.state_dict())
    return ours, theirs


def images(count, **options):
    torch.manual_seed(1)
    return [torch.randn(2, 3, 8, 8, **options) for _ in range(count)]


def prepared(model, **options):
    return nimble.Nimble(model, **{**EXACT, **options}).prepare(images(1)[0], training=True)


def same_gradients(ours, theirs):
    for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert (p.grad is None) == (q.grad is None)
        if p.grad is not None:
            torch.testing.assert_close(p.grad, q.grad)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_forward_passes_may_be_outstanding_and_go_back_in_any_order(order):
    ours, theirs = twins(lambda: Net(0.3))
    for call, model in ((prepared(ours), ours), (theirs, theirs)):
        torch.manual_seed(3)
        losses = [call(x).square().mean() for x in images(3)]
        for i in order:
            losses[i].backward()
    same_gradients(ours, theirs)
    torch.testing.assert_close(dict(ours.state_dict()), dict(theirs.state_dict()))
    assert ours.norm.num_batches_tracked == 3


def test_a_forward_pass_that_never_goes_back_is_forgotten():
    ours, theirs = twins()
    call = prepared(ours)
    for x in images(20):
        call(x)
        theirs(x)
    x = images(21)[-1]
    call(x).square().mean().backward()
    theirs(x).square().mean().backward()
    same_gradients(ours, theirs)


def test_a_graph_is_used_once():
    ours, _ = twins()
    loss = prepared(ours)(images(1)[0]).square().mean()
    with pytest.raises(RuntimeError, match="retain_graph=False"):
        loss.backward(retain_graph=True)


def test_gradients_of_inputs():
    ours, theirs = twins()
    x, y = images(1, requires_grad=True), images(1, requires_grad=True)
    torch._dynamo.reset()
    call = nimble.Nimble(ours, **EXACT).prepare(images(1, requires_grad=True)[0], training=True)
    call(x[0]).square().mean().backward()
    theirs(y[0]).square().mean().backward()
    torch.testing.assert_close(x[0].grad, y[0].grad)
    same_gradients(ours, theirs)


def test_an_input_that_was_not_prepared_to_have_a_gradient_gets_one():
    ours, theirs = twins()
    call = prepared(ours)
    x, y = images(1, requires_grad=True)[0], images(1, requires_grad=True)[0]
    call(x).square().mean().backward()
    theirs(y).square().mean().backward()
    torch.testing.assert_close(x.grad, y.grad)


@pytest.mark.parametrize("when", ["before", "after"])
def test_frozen_parameters_have_no_gradients(when):
    ours, theirs = twins()
    freeze = lambda model: model.first.requires_grad_(False)
    if when == "before":
        freeze(ours)
    call = prepared(ours)
    freeze(ours), freeze(theirs)
    for step in (call, theirs):
        step(images(1)[0]).square().mean().backward()
    same_gradients(ours, theirs)
    assert ours.first.weight.grad is None


def test_tied_weights():
    def make():
        model = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 6))
        model[2].weight = model[0].weight
        return model

    ours, theirs = twins(make)
    x = torch.randn(5, 6)
    call = nimble.Nimble(ours, **EXACT).prepare(x, training=True)
    for step in (call, theirs):
        step(x).square().mean().backward()
    same_gradients(ours, theirs)


def test_checkpointed_segments_with_dropout():
    class Checkpointed(Net):
        def forward(self, x):
            segment = lambda x: self.dropout(self.norm(self.first(x)).relu())
            return self.last(checkpoint(segment, x, use_reentrant=False).flatten(1))

    # Not batch norm: torch.compile updates its statistics once, eager in both runs of a segment.
    def make():
        net = Checkpointed(0.4)
        net.norm = nn.Identity()
        return net

    ours, theirs = twins(make)
    call = prepared(ours)
    for seed, x in enumerate(images(3)):
        for step, model in ((call, ours), (theirs, theirs)):
            model.zero_grad()
            torch.manual_seed(seed)
            step(x).square().mean().backward()
        same_gradients(ours, theirs)


def test_training_under_autocast():
    ours, theirs = twins()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        call = prepared(ours)
    for step in (call, theirs):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = step(images(1)[0]).square().mean()
        loss.backward()
    for p, q in zip(ours.parameters(), theirs.parameters()):
        torch.testing.assert_close(p.grad, q.grad, rtol=2e-2, atol=1e-2)


def test_the_users_optimizer_scheduler_and_clipping():
    ours, theirs = twins(lambda: Net(0.3))
    for call, model in ((prepared(ours), ours), (theirs, theirs)):
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 6)
        for i, x in enumerate(images(6)):
            torch.manual_seed(i)
            optimizer.zero_grad()
            call(x).square().mean().backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            optimizer.step()
            scheduler.step()
    for p, q in zip(ours.parameters(), theirs.parameters()):
        torch.testing.assert_close(p, q, rtol=1e-4, atol=1e-5)


def test_the_schedule_and_what_is_explained_are_of_both_passes():
    ours, _ = twins()
    call = prepared(ours)
    passes = call.schedule
    assert passes.forward.degree >= 1 and passes.backward.degree >= 2
    assert passes.backward.peak_bytes > 0
    assert passes.verify() == []
    forward, backward = call.explain().split("backward pass\n")
    assert forward.startswith("forward pass\n")
    assert "convolution_backward" in backward and "convolution_backward" not in forward
    assert all(p.grad is None for p in ours.parameters())


def test_a_model_without_parameters_has_no_backward_pass_until_an_input_asks_for_one():
    call = nimble.Nimble(nn.Tanh(), **EXACT).prepare(torch.randn(3), training=True)
    x = torch.randn(3, requires_grad=True)
    call(x).sum().backward()
    torch.testing.assert_close(x.grad, 1 - torch.tanh(x.detach()).square())
    assert call.schedule.verify() == []


def test_as_many_models_as_one_likes_can_be_prepared_and_are_freed():
    """Dynamo compiles the code of one class eight times, and keeps every backend for ever."""
    programs = []
    for _ in range(10):
        model, x = nn.Sequential(nn.Linear(4, 3), nn.ReLU()), torch.randn(2, 4)
        engine = nimble.Nimble(model, kernels="torch", streams=1).prepare(x, training=True)
        torch.testing.assert_close(engine(x), model(x))
        engine(x).sum().backward()
        programs += [weakref.ref(p) for p in engine._training.programs.values()]
    assert len(programs) == 20
    outstanding = engine(x).sum()
    del engine
    gc.collect()
    assert [p() for p in programs] == [None] * 20
    model.zero_grad()
    outstanding.backward()
    got = model[0].weight.grad.clone()
    model.zero_grad()
    model(x).sum().backward()
    torch.testing.assert_close(got, model[0].weight.grad)


def test_a_prepared_model_takes_many_shapes_in_training():
    model = nn.Linear(4, 3)
    engine = nimble.Nimble(model, kernels="torch", streams=1).prepare(
        torch.randn(1, 4), training=True
    )
    for batch in range(1, 12):
        x = torch.randn(batch, 4)
        torch.testing.assert_close(engine(x), model(x))
