"""torch.compile(model, backend="nimble")."""

import pytest
import torch
from torch import nn

import nimble

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


@pytest.fixture(autouse=True)
def fresh_dynamo():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(1)).eval()


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_equals_eager(mode):
    net = model()
    compiled = torch.compile(net, backend="nimble")
    for _ in range(3):
        x = torch.randn(2, 3, 8, 8)
        with mode():
            torch.testing.assert_close(compiled(x), net(x))


def test_the_backend_is_listed():
    assert "nimble" in torch._dynamo.list_backends()


def test_parameters_changed_or_replaced_are_followed():
    net, x = model(), torch.randn(2, 3, 8, 8)
    compiled = torch.compile(net, backend="nimble")
    with torch.no_grad():
        compiled(x)
        net[0].weight.mul_(2)
        torch.testing.assert_close(compiled(x), net(x))
        net[0].weight = nn.Parameter(torch.randn_like(net[0].weight))
        torch.testing.assert_close(compiled(x), net(x))
        net[1].running_mean.add_(1)
        torch.testing.assert_close(compiled(x), net(x))


@pytest.mark.parametrize("dynamic", [None, True, False])
def test_other_batch_sizes_equal_eager(dynamic):
    net = model()
    compiled = torch.compile(net, backend="nimble", dynamic=dynamic)
    with torch.no_grad():
        for batch in (1, 2, 3, 5, 2, 7):
            x = torch.randn(batch, 3, 8, 8)
            torch.testing.assert_close(compiled(x), net(x))


def test_train_mode_updates_statistics_and_draws_as_eager():
    def make():
        return nn.Sequential(model(), nn.Dropout(0.5)).train()

    ours, theirs = make(), make()
    compiled = torch.compile(ours, backend="nimble")
    x = torch.randn(4, 3, 8, 8)
    with torch.no_grad():
        for seed in range(3):
            torch.manual_seed(seed)
            got = compiled(x)
            torch.manual_seed(seed)
            torch.testing.assert_close(got, theirs(x))
    torch.testing.assert_close(dict(ours.state_dict()), dict(theirs.state_dict()))


def test_a_written_input_is_the_callers():
    function = lambda x, y: (x.add_(1), x * y)
    compiled = torch.compile(function, backend="nimble")
    for _ in range(2):
        ours, y = torch.ones(3), torch.randn(3)
        theirs = ours.clone()
        torch.testing.assert_close(compiled(ours, y)[1], function(theirs, y)[1])
        torch.testing.assert_close(ours, theirs)


def test_graph_breaks_leave_eager_code_between_replays():
    def function(x):
        y = x * 2
        return y + 1 if y.sum().item() > 0 else y - 1

    compiled = torch.compile(function, backend="nimble")
    for sign in (1, -1, 1):
        x = sign * torch.rand(3)
        torch.testing.assert_close(compiled(x), function(x))


def test_options_reach_the_planner():
    function = lambda x: (x.sin(), x.cos(), x.exp())
    compiled = torch.compile(function, backend="nimble", options={"streams": 2})
    x = torch.randn(100)
    torch.testing.assert_close(compiled(x), function(x))
    with pytest.raises(Exception, match="streams must be"):
        torch.compile(function, backend="nimble", options={"streams": "many"})(x)


def twins():
    return [nn.Sequential(model(), nn.Dropout(0.3), nn.Linear(144, 3)).train() for _ in range(2)]


def train(call, net, steps=4):
    """What a few steps of training leave."""
    torch.manual_seed(1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)  # Adam would amplify rounding
    x = torch.randn(5, 3, 8, 8, requires_grad=True)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = call(x * 2).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses, net.state_dict(), x.grad


@pytest.mark.parametrize("how", ["torch.compile", "prepare"])
def test_training_equals_eager(how):
    ours, theirs = twins()
    theirs.load_state_dict(ours.state_dict())
    if how == "prepare":
        before = {k: v.clone() for k, v in ours.state_dict().items()}
        x, rng = torch.randn(5, 3, 8, 8), torch.get_rng_state()
        call = nimble.Nimble(ours, kernels="torch").prepare(x, training=True)
        torch.testing.assert_close(before, dict(ours.state_dict()), rtol=0, atol=0)
        assert torch.equal(rng, torch.get_rng_state())
        assert all(p.grad is None for p in ours.parameters())
    else:
        call = torch.compile(ours, backend="nimble", options={"kernels": "torch"})
    torch.testing.assert_close(train(call, ours), train(theirs, theirs))
