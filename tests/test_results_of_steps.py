"""The gradients of a step share one block of memory, and are as good as tensors of their own."""

import torch
from torch import nn

import nimble


def make_step(**options):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return model, nimble.TrainStep(model, nn.functional.cross_entropy, optimizer, **options)


def batches(count):
    generator = torch.Generator().manual_seed(1)
    for _ in range(count):
        yield torch.randn(16, 8, generator=generator), torch.randint(0, 4, (16,), generator=generator)


def test_held_gradients_stay_as_they_are():
    model, step = make_step()
    held = []
    for x, y in batches(8):
        step(x, y)
        grads = [p.grad for p in model.parameters()]
        held.append([(grad, grad.clone()) for grad in grads])
    for step_of_held in held:
        for grad, copy in step_of_held:
            assert torch.equal(grad, copy)
    storages = {grad.untyped_storage().data_ptr() for grads in held for grad, _ in grads}
    assert len(storages) == 8 * len(list(model.parameters()))


def test_gradients_have_storages_of_their_own():
    model, step = make_step()
    for x, y in batches(4):
        step(x, y)
    for parameter in model.parameters():
        grad = parameter.grad
        assert grad.untyped_storage().nbytes() == grad.numel() * 4
        before = [p.grad.clone() for p in model.parameters()]
        grad.resize_(10_000)  # moves out of the block
        grad.zero_()
        others = [i for i, p in enumerate(model.parameters()) if p is not parameter]
        now = [p.grad for p in model.parameters()]
        assert all(torch.equal(now[i], before[i]) for i in others)
        grad.resize_(parameter.shape)


def test_gradients_outlive_the_step():
    model, step = make_step()
    for x, y in batches(4):
        step(x, y)
    copies = [p.grad.clone() for p in model.parameters()]
    del step
    assert all(torch.equal(p.grad, copy) for p, copy in zip(model.parameters(), copies))


def test_gradients_lie_where_activations_were():
    torch.manual_seed(0)
    layers = [layer for _ in range(6) for layer in (nn.Linear(256, 256), nn.ReLU())]
    model = nn.Sequential(*layers, nn.Linear(256, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step = nimble.TrainStep(model, nn.functional.cross_entropy, optimizer, streams=1)
    x, y = torch.randn(256, 256), torch.randint(0, 4, (256,))
    for _ in range(3):
        step(x, y)
    gradients = sum(p.grad.nbytes for p in model.parameters())
    activations = 12 * x.nbytes  # kept for the backward pass, as in eager
    assert step.schedule.peak_bytes < gradients + activations
