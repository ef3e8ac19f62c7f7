"""Programs that a careless recorder freezes: each is replayed as eager runs it."""


import numpy
import pytest
import torch

import nimble
from comparison import exact, kernels  # noqa: F401


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
        torch.triu_indices(3, 3), torch.from_numpy(numpy.ones(4)) + x,
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


@pytest.mark.parametrize("streams", [1, 3])
def test_tensors_on_the_same_foreign_memory_are_kept_in_order(streams):
    array = numpy.zeros(1000, dtype=numpy.float32)
    first, second = torch.from_numpy(array), torch.from_numpy(array[10:])

    def function(x):
        first.copy_(x.exp())
        y = second * 2
        second.add_(1)
        return first + 0, y

    same_as_eager(function, lambda: torch.randn(1000), calls=20, streams=streams)


def dlpack(x):
    y = x * 2
    z = torch.from_dlpack(torch.utils.dlpack.to_dlpack(y))
    y.add_(1)
    return z + 1


def compiled_inside(x):
    return ready_made(x) + 1


ready_made = torch.compile(lambda x: x.sin() * 2 + 1, backend="eager")


@pytest.mark.parametrize("function", [dlpack, compiled_inside], ids=lambda f: f.__name__)
def test_foreign_views_and_compiled_parts_are_followed_or_refused(function):
    function(fresh())
    try:
        same_as_eager(function)
    except nimble.NimbleError:
        pass
