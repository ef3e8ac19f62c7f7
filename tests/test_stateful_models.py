"""Models that keep state: a replayed one and an eager one stay alike, or it is refused."""


import pytest
import torch
import torch.nn.functional as F
from torch import nn

import nimble
from comparison import exact, kernels  # noqa: F401


def fresh():
    return torch.randn(3, 4)


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
        except nimble.NimbleError:
            pass
        else:
            for _ in range(3):
                x = fresh()
                try:
                    got = engine(x)
                except nimble.NimbleError:
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


def test_an_argument_list_that_the_model_changes_is_changed_or_refused():
    def collect(x, into):
        into.append(x * 2)
        return x + 1

    try:
        step = nimble.record(collect, fresh(), [])
    except nimble.NimbleError:
        return
    into, x = [], fresh()
    step(x, into)
    exact(into, [x * 2])


@pytest.mark.parametrize(
    "change",
    [lambda x: x.unsqueeze_(0), lambda x: x.t_(), lambda x: x.resize_(2, 2), lambda x: x.set_(x + 1)],
    ids=["unsqueeze_", "t_", "resize_", "set_"],
)
def test_an_input_whose_shape_the_model_changes_is_changed_or_refused(change):
    def function(x):
        change(x)
        return x * 2

    try:
        step = nimble.record(function, fresh())
    except nimble.NimbleError:
        return
    ours = fresh()
    theirs = ours.clone()
    exact(step(ours), function(theirs))
    exact(ours, theirs)
