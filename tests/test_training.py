"""Steps of training against eager with the same seed: bit for bit with the framework's kernels on one
stream, up to rounding otherwise.
"""

import copy
import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import nimble

pytestmark = pytest.mark.usefixtures("one_thread")
EXACT = {"streams": 1, "kernels": "torch"}
SGD, ADAM, ADAMW = torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW
RMSPROP, ADAGRAD = torch.optim.RMSprop, torch.optim.Adagrad
OPTIMIZERS = {
    "sgd": (SGD, {"lr": 0.1}),
    "sgd, integer": (SGD, {"lr": 1}),
    "momentum": (SGD, {"lr": 0.1, "momentum": 0.9, "dampening": 0.1, "weight_decay": 1e-2}),
    "nesterov": (SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
    "maximize": (SGD, {"lr": 0.01, "momentum": 0.5, "maximize": True}),
    "adam": (ADAM, {"lr": 1e-2}),
    "adam, decay": (ADAM, {"lr": 1e-2, "weight_decay": 1e-2, "betas": (0.8, 0.99)}),
    "adamw": (ADAMW, {"lr": 1e-2}),
    "amsgrad": (ADAMW, {"lr": 1e-2, "amsgrad": True}),
    "adam, maximize": (ADAM, {"lr": 1e-2, "maximize": True}),
    "rmsprop": (RMSPROP, {"lr": 1e-2}),
    "centered": (RMSPROP, {"lr": 1e-2, "centered": True, "momentum": 0.9, "weight_decay": 0.1}),
    "adagrad": (ADAGRAD, {"lr": 1e-2}),
    "adagrad, decay": (ADAGRAD, {"lr": 1e-2, "lr_decay": 0.1, "weight_decay": 0.1}),
}
FORMS = {"plain": {"foreach": False}, "foreach": {"foreach": True}, "fused": {"fused": True}}


class Net(nn.Module):
    def __init__(self, dropout=0.0, norm=False):
        super().__init__()
        self.first = nn.Linear(6, 8)
        self.norm = nn.BatchNorm1d(8) if norm else nn.Identity()
        self.dropout = nn.Dropout(dropout)
        self.last = nn.Linear(8, 3)

    def forward(self, x):
        return self.last(self.dropout(torch.relu(self.norm(self.first(x)))))


def twins(kind=SGD, model=Net, **options):
    """The same model and optimizer twice: one to replay, one for eager."""
    made = []
    for _ in range(2):
        torch.manual_seed(0)
        net = model()
        made.append((net, kind(net.parameters(), **{"lr": 0.1, **options})))
    return made


def batches(count, size=5):
    generator = torch.Generator().manual_seed(1)
    for _ in range(count):
        yield (
            torch.randn(size, 6, generator=generator),
            torch.randint(0, 3, (size,), generator=generator),
        )


def eager(model, optimizer, loss_fn=F.cross_entropy):
    def step(x, y):
        optimizer.zero_grad()
        loss = loss_fn(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return step


def same(a, b):
    torch.testing.assert_close(a, b, rtol=0, atol=0, equal_nan=True)


def same_state(a, b):
    """Parameters, buffers, gradients and the state of the optimizer, all to the last bit."""
    (model, optimizer), (other, other_optimizer) = a, b
    same(model.state_dict(), other.state_dict())
    for p, q in zip(model.parameters(), other.parameters()):
        assert (p.grad is None) == (q.grad is None)
        assert p.requires_grad == q.requires_grad and p.is_leaf
        if p.grad is not None:
            same(p.grad, q.grad)
            assert not p.grad.requires_grad and p.grad.is_leaf
    mine, theirs = optimizer.state_dict(), other_optimizer.state_dict()
    assert mine["param_groups"] == theirs["param_groups"]
    same(mine["state"], theirs["state"])


def train(step, reference, a, b, count=6, between=lambda i, optimizer: None, seed=None):
    for i, (x, y) in enumerate(batches(count)):
        losses = []
        for run in (step, reference):
            if seed is not None:
                torch.manual_seed(seed + i)
            losses.append(run(x, y))
        same(losses[0], losses[1].detach())
        same_state(a, b)
        for _, optimizer in (a, b):
            between(i, optimizer)


def halve_rates(i, optimizer):
    for group in optimizer.param_groups:
        group["lr"] *= 0.5


def uses_replay(step):
    return bool(step._parts[True].programs)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_step_equals_eager_while_the_learning_rate_changes(name, form):
    kind, options = OPTIMIZERS[name]
    try:
        a, b = twins(kind, **options, **FORMS[form])
    except (RuntimeError, TypeError) as error:
        assert form == "fused"
        pytest.skip(f"PyTorch does not have it: {error}")
    try:
        eager(*twins(kind, **options, **FORMS[form])[0])(*next(batches(1)))
    except RuntimeError as error:
        assert form == "fused"
        pytest.skip(f"PyTorch itself fails: {error}")
    step = nimble.TrainStep(a[0], F.cross_entropy, a[1], **EXACT)
    train(step, eager(*b), a, b, between=halve_rates)
    assert uses_replay(step)


@pytest.mark.parametrize(
    "name, value",
    [("betas", (0.7, 0.9)), ("eps", 1e-3), ("weight_decay", 0.3), ("weight_decay", 0.0)],
)
def test_a_change_of_any_hyperparameter_shows_in_the_next_step(name, value):
    a, b = twins(ADAMW, lr=1e-2)

    def change(i, optimizer):
        if i == 3:
            optimizer.param_groups[0][name] = value

    step = nimble.TrainStep(a[0], F.cross_entropy, a[1], **EXACT)
    train(step, eager(*b), a, b, count=7, between=change)


def test_cosine_schedule_over_100_steps_gives_eagers_trajectory():
    a, b = twins(SGD, lr=0.1, momentum=0.9)
    schedulers = {
        id(o): torch.optim.lr_scheduler.CosineAnnealingLR(o, 100) for _, o in (a, b)
    }
    step = nimble.TrainStep(a[0], F.cross_entropy, a[1], **EXACT)
    between = lambda i, optimizer: schedulers[id(optimizer)].step()
    train(step, eager(*b), a, b, count=100, between=between)


def test_one_cycle_schedule_also_moves_momentum():
    a, b = twins(ADAM)
    schedulers = {
        id(o): torch.optim.lr_scheduler.OneCycleLR(o, max_lr=0.1, total_steps=20)
        for _, o in (a, b)
    }
    step = nimble.TrainStep(a[0], F.cross_entropy, a[1], **EXACT)
    between = lambda i, optimizer: schedulers[id(optimizer)].step()
    train(step, eager(*b), a, b, count=18, between=between)


def recorded_steps():
    def zero_first(model, optimizer, x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    def fill_with_zeros(model, optimizer, x, y):
        optimizer.zero_grad(set_to_none=False)
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    def zero_last(model, optimizer, x, y):
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    def never_zero(model, optimizer, x, y):
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    def two_backward_passes(model, optimizer, x, y):
        model.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        model(x).square().mean().backward()
        optimizer.step()
        return loss

    def gradients_by_hand(model, optimizer, x, y):
        loss = F.cross_entropy(model(x), y)
        parameters = list(model.parameters())
        for p, g in zip(parameters, torch.autograd.grad(loss, parameters)):
            p.grad = g * 2
        optimizer.step()
        return loss

    def clipped(model, optimizer, x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y) * 10
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        return loss

    def clipped_by_value(model, optimizer, x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y) * 10
        loss.backward()
        nn.utils.clip_grad_value_(model.parameters(), 0.05)
        optimizer.step()
        return loss

    def only_backward(model, optimizer, x, y):
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        return loss

    return [v for v in locals().values()]


@pytest.mark.parametrize("kind", [SGD, ADAM], ids=["sgd", "adam"])
@pytest.mark.parametrize("function", recorded_steps(), ids=lambda f: f.__name__)
def test_a_recorded_step_equals_eager(function, kind):
    a, b = twins(kind, **({"momentum": 0.9} if kind is SGD else {}))
    example = next(batches(1))
    before = copy.deepcopy((a[0].state_dict(), a[1].state_dict()))
    step = nimble.record(lambda x, y: function(*a, x, y), *example, **EXACT)
    same(before[0], a[0].state_dict())
    assert before[1] == a[1].state_dict() and len(a[1].state) == 0
    assert all(p.grad is None for p in a[0].parameters())
    train(step, lambda x, y: function(*b, x, y), a, b, between=halve_rates)
    assert step.schedule.tasks > 10


def test_record_leaves_a_trained_model_as_it_was():
    a, b = twins(ADAM, lambda: Net(0.5, norm=True))
    for pair in (a, b):
        for x, y in batches(2):
            torch.manual_seed(1)
            eager(*pair)(x, y)
    grads = [p.grad for p in a[0].parameters()]
    states = [dict(s) for s in a[1].state.values()]
    rng = torch.get_rng_state()
    nimble.record(eager(*a), *next(batches(1)), **EXACT)
    assert torch.equal(rng, torch.get_rng_state())
    same_state(a, b)
    assert all(p.grad is g for p, g in zip(a[0].parameters(), grads))
    for now, then in zip(a[1].state.values(), states):
        assert all(now[k] is then[k] for k in then)


def test_gradients_stay_valid_after_the_next_step():
    a, _ = twins()
    step = nimble.TrainStep(a[0], F.cross_entropy, a[1], **EXACT)
    held = []
    for x, y in batches(4):
        step(x, y)
        grad = a[0].first.weight.grad
        held.append((grad, grad.clone()))
    assert len({grad.data_ptr() for grad, _ in held}) == 4
    for grad, value in held:
        same(grad, value)


def test_gradients_that_were_cleared_or_replaced_between_steps_are_seen():
    a, b = twins()

    def function(model, optimizer):
        def step(x, y):
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            return loss

        return step

    def between(i, optimizer):
        if i % 3 == 0:
            optimizer.zero_grad()
        if i % 3 == 1:
            for p in optimizer.param_groups[0]["params"]:
                p.grad = torch.full_like(p, 0.01)

    step = nimble.record(function(*a), *next(batches(1)), **EXACT)
    train(step, function(*b), a, b, count=9, between=between)


@pytest.mark.parametrize("count", [2, 3])
def test_accumulation_over_micro_batches_equals_eager(count):
    a, b = twins(ADAM)
    step = nimble.TrainStep(
        a[0], F.cross_entropy, a[1], accumulate=count, max_grad_norm=0.5, **EXACT
    )
    calls = 0

    def reference(x, y):
        nonlocal calls
        model, optimizer = b
        if calls % count == 0:
            optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        (loss / count).backward()
        calls += 1
        if calls % count == 0:
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
        return loss

    train(step, reference, a, b, count=4 * count)


def test_clipping_equals_eager_also_when_gradients_are_not_finite():
    a, b = twins()

    def reference(x, y):
        b[1].zero_grad()
        loss = F.cross_entropy(b[0](x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(b[0].parameters(), 0.01)
        b[1].step()
        return loss

    step = nimble.TrainStep(a[0], F.cross_entropy, a[1], max_grad_norm=0.01, **EXACT)
    train(step, reference, a, b)
    x, y = next(batches(1))
    x[0] = math.inf
    step(x, y), reference(x, y)
    same_state(a, b)


def test_dropout_and_batch_norm_statistics_equal_eager():
    a, b = twins(ADAM, lambda: Net(0.3, norm=True))
    step = nimble.TrainStep(a[0], F.cross_entropy, a[1], **EXACT)
    train(step, eager(*b), a, b, seed=7)
    assert a[0].norm.num_batches_tracked == 6


def test_frozen_parameters_parameter_groups_and_tied_weights():
    pairs = []
    for _ in range(2):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 6), nn.Linear(6, 3))
        model[2].weight = model[0].weight
        model[2].bias.requires_grad_(False)
        groups = [
            {"params": [model[0].weight], "lr": 0.1},
            {"params": [model[0].bias, model[2].bias], "weight_decay": 0.1},
            {"params": model[3].parameters(), "lr": 0.01, "amsgrad": True},
        ]
        pairs.append((model, ADAMW(groups, lr=1e-3)))
    a, b = pairs
    step = nimble.TrainStep(a[0], F.cross_entropy, a[1], **EXACT)
    train(step, eager(*b), a, b, between=halve_rates)


def test_a_layer_frozen_or_a_mode_changed_later_is_seen():
    a, b = twins(SGD, lambda: Net(0.3, norm=True), momentum=0.9)

    def between(i, optimizer):
        model = a[0] if optimizer is a[1] else b[0]
        if i == 2:
            model.first.requires_grad_(False)
        if i == 4:
            model.norm.eval()

    step = nimble.TrainStep(a[0], F.cross_entropy, a[1], **EXACT)
    train(step, eager(*b), a, b, count=7, between=between, seed=3)


def test_a_group_of_parameters_added_later_is_seen():
    pairs = []
    for _ in range(2):
        torch.manual_seed(0)
        model = Net()
        pairs.append((model, SGD(model.last.parameters(), lr=0.1)))
    a, b = pairs

    def between(i, optimizer):
        if i == 2:
            model = a[0] if optimizer is a[1] else b[0]
            optimizer.add_param_group({"params": list(model.first.parameters()), "lr": 0.01})
            model.zero_grad()

    step = nimble.TrainStep(a[0], F.cross_entropy, a[1], **EXACT)

    def reference(x, y):
        b[1].zero_grad()
        loss = F.cross_entropy(b[0](x), y)
        loss.backward()
        b[1].step()
        return loss

    train(step, reference, a, b, count=5, between=between)


class Checkpointed(Net):
    def forward(self, x):
        x = checkpoint(lambda t: torch.relu(self.first(t)).sin(), x, use_reentrant=False)
        return checkpoint(lambda t: self.last(self.dropout(t)), x, use_reentrant=False)


def test_checkpointed_segments_equal_eager():
    a, b = twins(ADAM, Checkpointed)
    step = nimble.TrainStep(a[0], F.cross_entropy, a[1], **EXACT)
    train(step, eager(*b), a, b)
    assert uses_replay(step)


@pytest.mark.parametrize("kernels", ["torch", "auto"])
@pytest.mark.parametrize("use_reentrant", [False, True])
def test_a_checkpointed_segment_draws_the_same_numbers_twice(use_reentrant, kernels):
    """And the generator then is where it was, for the dropout behind it."""

    class Segments(Net):
        def forward(self, x):
            x = torch.relu(self.first(x)).sin()
            segment = lambda t: self.dropout(t).tanh()
            x = checkpoint(segment, x, use_reentrant=use_reentrant)
            x = checkpoint(segment, self.dropout(x), use_reentrant=use_reentrant)
            return self.last(self.dropout(x))

    a, b = twins(ADAM, lambda: Segments(0.3))
    step = nimble.TrainStep(a[0], F.cross_entropy, a[1], streams=1, kernels=kernels)
    reference = eager(*b)
    for i, (x, y) in enumerate(batches(6)):
        ends = []
        for run in (step, reference):
            torch.manual_seed(i)
            ends.append((run(x, y).detach(), torch.get_rng_state()))
        if kernels == "torch":
            same(ends[0], ends[1])
            same_state(a, b)
        else:
            torch.testing.assert_close(ends[0], ends[1], rtol=1e-4, atol=1e-5)
    assert uses_replay(step)


def test_numbers_drawn_again_from_a_state_of_the_generator():
    def function(x):
        state = torch.get_rng_state()
        first = torch.rand_like(x)
        torch.set_rng_state(state)
        with torch.random.fork_rng(devices=[]):
            inside = torch.rand_like(x)
        return first, inside, torch.rand_like(x), state

    recorded = nimble.record(function, torch.zeros(4), **EXACT)
    for seed in range(3):
        torch.manual_seed(seed)
        got, after = recorded(torch.zeros(4)), torch.get_rng_state()
        torch.manual_seed(seed)
        same(got, function(torch.zeros(4)))
        assert torch.equal(after, torch.get_rng_state())
        assert torch.equal(got[0], got[2])


def test_bfloat16_autocast_equals_eager():
    a, b = twins(ADAM)

    def reference(x, y):
        b[1].zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = F.cross_entropy(b[0](x), y)
        loss.backward()
        b[1].step()
        return loss

    step = nimble.TrainStep(
        a[0], F.cross_entropy, a[1], autocast=torch.bfloat16, **EXACT
    )
    train(step, reference, a, b)


def scaler():
    """That grows and backs off within a few steps."""
    return torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=2)


def with_overflow(batch, i):
    """The third batch makes gradients infinite."""
    x, y = batch
    return (x * math.inf if i == 2 else x), y


def test_a_loss_scale_outside_of_the_step_is_read_at_every_replay():
    a, b = twins(ADAM)
    scalers = scaler(), scaler()

    def scaled(model, optimizer, scaler):
        def step(x, y):
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            return loss

        return step

    for each in scalers:
        each.scale(torch.zeros(1))  # makes the tensor that it keeps its scale in
    step = nimble.record(scaled(*a, scalers[0]), *next(batches(1)), **EXACT)
    reference = scaled(*b, scalers[1])
    for i, batch in enumerate(batches(7)):
        x, y = with_overflow(batch, i)
        same(step(x, y), reference(x, y).detach())
        for (_, optimizer), each in zip((a, b), scalers):
            each.step(optimizer)
            each.update()
        same_state(a, b)
        assert scalers[0].get_scale() == scalers[1].get_scale()
    assert scalers[0].get_scale() > 2.0**10


def step_with_scaler(model, optimizer, scaler):
    def step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return loss

    return step


def test_a_loss_scale_inside_of_a_step_needs_an_optimizer_that_reads_no_value_back():
    a, b = twins(ADAM)
    with pytest.raises(nimble.Refused, match="item|_local_scalar_dense"):
        nimble.record(step_with_scaler(*a, scaler()), *next(batches(1)), **EXACT)
    same_state(a, b)


def test_a_loss_scale_inside_of_a_step_with_a_fused_optimizer_equals_eager():
    a, b = twins(ADAM, fused=True)
    scalers = scaler(), scaler()
    for each in scalers:
        each.scale(torch.zeros(1))
    step = nimble.record(step_with_scaler(*a, scalers[0]), *next(batches(1)), **EXACT)
    reference = step_with_scaler(*b, scalers[1])
    for i, batch in enumerate(batches(7)):
        x, y = with_overflow(batch, i)
        same(step(x, y), reference(x, y).detach())
        same_state(a, b)
        assert scalers[0].get_scale() == scalers[1].get_scale()


def test_a_checkpoint_saved_in_the_middle_equals_eagers_and_loading_one_is_seen():
    a, b = twins(ADAM, lambda: Net(norm=True))
    saved = {}

    def between(i, optimizer):
        model = a[0] if optimizer is a[1] else b[0]
        if i == 2:
            saved[id(optimizer)] = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
        if i == 5:
            model_state, optimizer_state = saved[id(optimizer)]
            model.load_state_dict(model_state)
            optimizer.load_state_dict(copy.deepcopy(optimizer_state))

    step = nimble.TrainStep(a[0], F.cross_entropy, a[1], **EXACT)
    train(step, eager(*b), a, b, count=9, between=between)


def test_a_batch_of_another_size_is_recorded_too():
    a, b = twins(SGD, momentum=0.9)
    step, reference = nimble.TrainStep(a[0], F.cross_entropy, a[1], **EXACT), eager(*b)
    for size in (5, 5, 3, 5, 3):
        x, y = next(batches(1, size))
        same(step(x, y), reference(x, y).detach())
        same_state(a, b)
    assert len(step._parts[True].programs) == 2


def test_two_optimizers_in_one_step():
    pairs = twins(ADAM), twins(SGD, momentum=0.9)

    def function(first, second):
        def step(x, y):
            for _, optimizer in (first, second):
                optimizer.zero_grad()
            loss = F.cross_entropy(first[0](x), y) + second[0](x).square().mean()
            loss.backward()
            first[1].step()
            second[1].step()
            return loss

        return step

    (a, b), (c, d) = pairs
    step = nimble.record(function(a, c), *next(batches(1)), **EXACT)
    reference = function(b, d)
    for x, y in batches(5):
        same(step(x, y), reference(x, y).detach())
        same_state(a, b)
        same_state(c, d)
        for _, optimizer in (a, b, c, d):
            halve_rates(0, optimizer)


@pytest.mark.parametrize(
    "activation",
    [nn.ReLU, nn.ReLU6, nn.SiLU, nn.Hardswish, nn.ELU, nn.LeakyReLU, nn.Mish, nn.Hardsigmoid],
)
def test_activations_in_place_keep_what_the_backward_pass_needs(activation):
    make = lambda: nn.Sequential(nn.Linear(6, 9), activation(inplace=True), nn.Linear(9, 3))
    a, b = twins(SGD, make, momentum=0.9)
    step = nimble.TrainStep(a[0], F.cross_entropy, a[1], **EXACT)
    train(step, eager(*b), a, b)
    assert uses_replay(step)


def test_a_leaf_that_the_program_makes_itself():
    def function(x):
        w = torch.ones(3, requires_grad=True)
        (x * w.sin()).sum().backward()
        return w.grad

    recorded = nimble.record(function, torch.zeros(3), **EXACT)
    x = torch.randn(3)
    same(recorded(x), function(x))


def test_a_gradient_that_is_only_computed():
    model = Net()
    function = lambda x: torch.autograd.grad(model(x).square().sum(), list(model.parameters()))
    recorded = nimble.record(function, torch.randn(5, 6), **EXACT)
    x = torch.randn(5, 6)
    same(recorded(x), function(x))
    assert all(p.grad is None for p in model.parameters())


class Rooted(torch.optim.SGD):
    """Hides what it does with its learning rate from operators."""

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                p.sub_(p.grad, alpha=math.sqrt(group["lr"]))


class Counting(torch.optim.SGD):
    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            group["lr"] = group["lr"] * 0.9
            for p in group["params"]:
                p.sub_(p.grad, alpha=group["lr"])


class Listing(torch.optim.SGD):
    @torch.no_grad()
    def step(self):
        for p in self.param_groups[0]["params"]:
            self.state[p].setdefault("seen", []).append(p.grad)


@pytest.mark.parametrize(
    "kind, why",
    [(Rooted, "depends on a hyperparameter"), (Counting, "'lr'"), (Listing, "keeps a list")],
)
def test_an_optimizer_that_cannot_be_followed_is_refused(kind, why):
    a, b = twins(kind)
    with pytest.raises(nimble.Refused, match=why):
        nimble.record(eager(*a), *next(batches(1)), **EXACT)
    same_state(a, b)


def test_a_learning_rate_read_outside_of_the_optimizer_is_refused():
    a, b = twins()

    def step(x, y):
        loss = eager(*a)(x, y)
        return loss * a[1].param_groups[0]["lr"]

    with pytest.raises(nimble.Refused, match="depends on a hyperparameter"):
        nimble.record(step, *next(batches(1)), **EXACT)
    same_state(a, b)


def test_a_scheduler_inside_of_the_step_is_refused():
    a, _ = twins()
    scheduler = torch.optim.lr_scheduler.StepLR(a[1], 1)

    def step(x, y):
        loss = eager(*a)(x, y)
        scheduler.step()
        return loss

    with pytest.raises(nimble.Refused, match="scheduler outside"):
        nimble.record(step, *next(batches(1)), **EXACT)
    assert a[1].param_groups[0]["lr"] == 0.1


def test_reading_the_loss_inside_of_the_step_is_refused():
    a, b = twins()

    def step(x, y):
        return eager(*a)(x, y) * 0 + eager(*a)(x, y).item()

    with pytest.raises(nimble.Refused, match="item|_local_scalar_dense"):
        nimble.record(step, *next(batches(1)), **EXACT)
    same_state(a, b)


@pytest.mark.parametrize("options", [{"streams": 3, "kernels": "torch", "threads": 2}, {}], ids=str)
def test_other_ways_to_run_stay_close_to_eager(options):
    a, b = twins(SGD, lambda: Net(norm=True), momentum=0.9)
    step = nimble.TrainStep(a[0], F.cross_entropy, a[1], **options)
    reference = eager(*b)
    for x, y in batches(20):
        torch.testing.assert_close(step(x, y), reference(x, y).detach(), rtol=1e-3, atol=1e-5)
    for p, q in zip(a[0].state_dict().values(), b[0].state_dict().values()):
        torch.testing.assert_close(p, q, rtol=1e-3, atol=1e-4)
    assert uses_replay(step) and step.schedule.verify() == []


def test_looking_at_a_step_does_not_train(tmp_path):
    a, b = twins(ADAM)
    step = nimble.TrainStep(a[0], F.cross_entropy, a[1], **EXACT)
    for x, y in batches(2):
        step(x, y), eager(*b)(x, y)
    step.schedule.save_timeline(tmp_path / "t.json")
    assert "addcdiv" in step.explain()
    same_state(a, b)
