"""Programs that a careless recorder freezes: each is replayed as eager runs it, or refused."""

import contextlib
import functools

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import nimble

exact = functools.partial(torch.testing.assert_close, rtol=0, atol=0, equal_nan=True)
Refusals = (nimble.NimbleError,)


def fresh():
    return torch.randn(3, 4)


def same_as_eager(function, make=fresh, calls=3, **options):
    step = nimble.record(function, make(), **options)
    assert step.schedule.verify() == []
    inputs = [make() for _ in range(calls)]
    exact([step(x) for x in inputs], [function(x) for x in inputs])


# ---- programs that must work ----


def accumulate_into_tensor(x):
    total = torch.tensor(0.0)
    for row in x:
        total += row.sum()
    return total


def accumulate_into_python_number(x):
    total = 0
    for row in x:
        total = total + row.sum()
    return total


def fill_slices(x):
    y = torch.empty(4, 3)
    for i in range(4):
        y[i] = x[:, i] * i
    return y


def fill_some_slices(x):
    y = torch.zeros(5, 3)
    y[1:5] = x.t()
    y[2, ::2] += 1
    return y, y[0]


def write_base_read_view(x):
    y = x * 1
    view = y[1]
    y.add_(5)
    y = y * 2
    view.mul_(3)
    return view, y


def write_view_read_base(x):
    y = x * 1
    y.view(-1)[::2].zero_()
    y.t()[1].fill_(9)
    return y + 1


def reuse_after_write(x):
    a = x + 1
    b = a * 2
    a.mul_(0)
    return a, b, a + b


def constant_in_place(x):
    c = torch.tensor([1.0, 2.0, 3.0, 4.0])
    c *= 2
    c[0] = x[0, 0]
    return x * c


def out_argument(x):
    y = torch.empty(3, 4)
    torch.mul(x, 2, out=y)
    z = torch.empty(0)
    with pytest.warns(UserWarning) if False else contextlib.nullcontext():
        torch.add(y, x, out=z)
    torch.exp(y, out=y)
    values, indices = torch.empty(3), torch.empty(3, dtype=torch.long)
    torch.max(x, 1, out=(values, indices))
    return y, z, values, indices


def change_shape_of_intermediate(x):
    y = x + 1
    y.unsqueeze_(0).transpose_(0, 1)
    z = (x * 2).t_()
    w = torch.empty(2).resize_(3, 4).copy_(x)
    return y.squeeze_() * 2, z, w.resize_(2, 2), y.shape[0]


def set_and_detach(x):
    y, z = x + 1, torch.zeros(1)
    z.set_(y)
    z.mul_(2)
    w = torch.zeros(3, 4)
    w.data = y * 3
    return y.detach(), z.data + 1, w.detach_()


def branch_on_shape(x):
    return x.sum(0) if x.shape[0] > 2 and x.dim() == 2 else x


def swap_in_list(x):
    parts = list(x.unbind())
    parts[0], parts[1] = parts[1], parts[0]
    parts.append(parts.pop(0) * 2)
    return torch.stack(parts)


def foreach(x):
    parts = [row.clone() for row in x]
    torch._foreach_mul_(parts, 2.0)
    return torch._foreach_add(parts, [x[0], x[1], x[2]])


def constants_of_all_kinds(x):
    return (
        x + torch.tensor([1.0, 2.0, 3.0, 4.0]) + torch.arange(4) + torch.zeros(4) + torch.eye(4)[1],
        torch.full((2,), 3), torch.linspace(0, 1, 4) * x, x.new_tensor([5.0]), x.new_zeros(2),
        torch.as_tensor(7) * x, torch.scalar_tensor(2.0), torch.ones_like(x), torch.tril(torch.ones(3, 3)),
        torch.triu_indices(3, 3), torch.from_numpy(__import__("numpy").ones(4)) + x,
    )  # fmt: skip


def in_place_chain(x):
    return x.clone().add_(1).mul_(x).relu_().clamp_(0, 1).index_fill_(0, torch.tensor([1]), 3.0)


def scatter(x):
    index = torch.tensor([[0, 1, 2, 0]])
    y = torch.zeros(3, 4).scatter_(0, index, x)
    y.index_add_(0, torch.tensor([2, 0]), x[:2])
    y[torch.tensor([0, 2]), torch.tensor([1, 1])] = x[0, :2]
    return y.masked_fill_(y > 0.5, -1)


def autocast_inside(x):
    with torch.autocast("cpu", torch.bfloat16):
        y = x @ x.t()
        with torch.autocast("cpu", enabled=False):
            z = y.float() @ x
    return y, z


WORKS = [
    accumulate_into_tensor, accumulate_into_python_number, fill_slices, fill_some_slices,
    write_base_read_view, write_view_read_base, reuse_after_write, constant_in_place, out_argument,
    change_shape_of_intermediate, set_and_detach, branch_on_shape, swap_in_list, foreach,
    constants_of_all_kinds, in_place_chain, scatter, autocast_inside,
]  # fmt: skip


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
@pytest.mark.parametrize("streams", [1, 3])
@pytest.mark.parametrize("function", WORKS, ids=lambda f: f.__name__)
def test_replayed_as_eager_runs_it(function, streams):
    same_as_eager(function, streams=streams)


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
@pytest.mark.parametrize("function", WORKS, ids=lambda f: f.__name__)
def test_replayed_under_deterministic_algorithms(function):
    torch.use_deterministic_algorithms(True)
    try:
        same_as_eager(function, calls=2)
    finally:
        torch.use_deterministic_algorithms(False)


# ---- stateful models: two copies, one replayed and one eager, stay alike or it is refused ----


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("state", torch.zeros(3, 4))
        self.w = nn.Parameter(torch.ones(4, 4))
        self.cached = None
        self.old = torch.ones(3, 4)
        self.count = 0
        self.history = []


def update_in_place(m, x):
    m.state.mul_(0.5).add_(x)
    return m.state * 2


def detach_and_update(m, x):
    m.state.detach_()
    m.state.copy_(m.state * 0.5 + x)
    return m.state.clone()


def ring_buffer(m, x):
    m.state[:-1] = m.state[1:].clone()
    m.state[-1] = x[0]
    return m.state.sum(0)


def rebind_buffer(m, x):
    m.state = m.state * 0.5 + x
    return m.state * 2


def rebind_plain(m, x):
    m.old = m.old + x
    return m.old * 2


def rebind_data(m, x):
    m.w.data = m.w.data * 0.9
    return x @ m.w


def count_calls(m, x):
    m.count += 1
    return x * m.count


def keep_for_later(m, x):
    if m.cached is None:
        m.cached = torch.ones(4) * 3
    return x * m.cached


def keep_last(m, x):
    last = m.cached
    m.cached = x * 2
    return x if last is None else last + x


def append_history(m, x):
    m.history.append(x * 2)
    return sum(m.history)


def transpose_state(m, x):
    m.state.t_()
    return x.sum() + m.state


def resize_state(m, x):
    m.state.resize_(m.state.numel() // 4 + 1, 4)
    return x.sum()


def set_gradient(m, x):
    m.w.grad = (x.t() @ x).clone()
    return x


STATEFUL = [
    update_in_place, detach_and_update, ring_buffer, rebind_buffer, rebind_plain, rebind_data,
    count_calls, keep_for_later, keep_last, append_history, transpose_state, resize_state,
    set_gradient,
]  # fmt: skip


def facts(m):
    return [m.state, m.w.data, m.old, m.cached, *m.history, m.w.grad]


@pytest.mark.parametrize("function", STATEFUL, ids=lambda f: f.__name__)
def test_state_of_the_model_is_followed_or_refused(function):
    class Ours(Model):
        def forward(self, x):
            return function(self, x)

    ours, theirs = Ours(), Ours()
    with torch.no_grad():
        try:
            engine = nimble.Nimble(ours).prepare(fresh())
        except Refusals:
            pass
        else:
            for _ in range(3):
                x = fresh()
                try:
                    got = engine(x)
                except Refusals:
                    break
                exact(got, theirs(x))
            else:
                exact(facts(ours), facts(theirs))
                return
    exact(facts(ours), facts(Ours()))  # refused: then prepare left no trace


def test_kv_cache_written_at_a_tensor_position_equals_eager():
    cache = torch.zeros(2, 8, 4)

    def attend(x, position):
        cache.index_copy_(1, position, x)
        seen = torch.arange(8) <= position
        return F.scaled_dot_product_attention(x, cache, cache, attn_mask=seen)

    step = nimble.record(attend, torch.randn(2, 1, 4), torch.tensor([0]))
    inputs = [(torch.randn(2, 1, 4), torch.tensor([i])) for i in range(4)]
    got, kept = [step(*i) for i in inputs], cache.clone()
    cache.zero_()
    exact(got, [attend(*i) for i in inputs])
    exact(kept, cache)


def test_kv_cache_written_at_a_python_position_is_recorded_per_position():
    cache = torch.zeros(2, 8, 4)

    def attend(x, position):
        cache[:, position : position + 1] = x
        return cache[:, : position + 1].sum(1)

    inputs = [(torch.randn(2, 1, 4), i) for i in range(4)]
    step, compiled = nimble.record(attend, *inputs[0]), nimble.compile(attend)
    with pytest.raises(nimble.NimbleError, match="1"):
        step(*inputs[1])
    got = [compiled(*i) for i in inputs]
    cache.zero_()
    exact(got, [attend(*i) for i in inputs])
