"""What an op writes, and whether it draws random numbers, is in its schema: where that lies.

The recorder believes schemas, except for a table of its own. Here the calls that the ops of
PyTorch's op database are made of are watched.
"""

import pytest
import torch
from op_database import sweep
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

import nimble

# The recorder's table, as far as it is of the CPU.
HIDDEN_WRITES = {
    "aten::native_batch_norm": {"running_mean", "running_var"},  # if told that it is training
}


def as_bytes(storage):
    return torch.empty(0, dtype=torch.uint8).set_(storage)


class Watch(TorchDispatchMode):
    """Collects arguments that change but are not declared to, and undeclared random draws."""

    def __init__(self):
        super().__init__()
        self.hidden_writes = set()
        self.hidden_draws = set()

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        declared, before = set(), []
        for argument, value in [*zip(op._schema.arguments, args), *self.named(op, kwargs)]:
            written = argument.alias_info is not None and argument.alias_info.is_write
            for tensor in filter(torch.is_tensor, pytree.tree_leaves(value)):
                if sweep.has_storage(tensor):
                    storage = tensor.untyped_storage()
                    before.append((argument.name, storage, storage.clone()))
                    if written:
                        declared.add(storage._cdata)
        random_state = torch.get_rng_state()
        result = op(*args, **kwargs)
        for name, storage, copy in before:
            if storage._cdata not in declared and not torch.equal(as_bytes(storage), as_bytes(copy)):
                self.hidden_writes.add((op.name(), name))
        if not torch.equal(random_state, torch.get_rng_state()):
            if torch.Tag.nondeterministic_seeded not in op.tags:
                self.hidden_draws.add(op.name())
        return result

    @staticmethod
    def named(op, kwargs):
        return [(a, kwargs[a.name]) for a in op._schema.arguments if a.name in kwargs]


@pytest.mark.parametrize("name", sweep.all_variants())
def test_calls_write_and_draw_only_what_their_schema_or_the_table_says(name):
    op, call = sweep.find(name)
    watch = Watch()
    for first, rest, named in sweep.some(sweep.samples_of(op, seed=1), 8):
        first, rest, named = sweep.copied((first, rest, named))
        try:
            with watch:
                call(first, *rest, **named)
        except Exception:  # of PyTorch's own: the sample is not for the CPU, or not for in place
            continue
    listed = {(op, name) for op, names in HIDDEN_WRITES.items() for name in names}
    assert watch.hidden_writes <= listed
    assert watch.hidden_draws == set()


def test_every_op_that_takes_a_generator_is_declared_random():
    undeclared = []
    for full_name in torch._C._dispatch_get_all_op_names():
        namespace, _, name = full_name.partition("::")
        if namespace != "aten":
            continue
        name, _, overload = name.partition(".")
        op = getattr(getattr(torch.ops.aten, name), overload or "default")
        takes_generator = any("Generator" in str(a.type) for a in op._schema.arguments)
        if takes_generator and torch.Tag.nondeterministic_seeded not in op.tags:
            undeclared.append(full_name)
    assert undeclared == []


def normalize(x, mean, variance):
    return torch.ops.aten.native_batch_norm(x, None, None, mean, variance, True, 0.1, 1e-5)


def test_the_table_is_needed():
    watch = Watch()
    with watch:
        normalize(torch.rand(4, 3, 2), torch.zeros(3), torch.ones(3))
    assert watch.hidden_writes == {
        (op, name) for op, names in HIDDEN_WRITES.items() for name in names
    }


def test_hidden_writes_reach_the_callers_tensors_at_every_replay():
    xs = [torch.rand(4, 3, 2) for _ in range(4)]
    statistics = [torch.zeros(3), torch.ones(3)]
    expected = [torch.zeros(3), torch.ones(3)]
    recorded = nimble.record(normalize, xs[0], *statistics, streams=1)
    assert torch.equal(statistics[0], torch.zeros(3))
    for x in xs[1:]:
        results = recorded(x, *statistics)
        assert all(map(torch.equal, results, normalize(x, *expected)))
        assert all(map(torch.equal, statistics, expected))


def test_hidden_writes_reach_tensors_that_are_not_arguments():
    xs = [torch.rand(4, 3, 2) for _ in range(4)]
    statistics = [torch.zeros(3), torch.ones(3)]
    expected = [torch.zeros(3), torch.ones(3)]
    recorded = nimble.record(lambda x: normalize(x, *statistics), xs[0], streams=1)
    assert torch.equal(statistics[0], torch.zeros(3))
    for x in xs[1:]:
        results = recorded(x)
        assert all(map(torch.equal, results, normalize(x, *expected)))
        assert all(map(torch.equal, statistics, expected))


def test_a_reader_after_a_hidden_write_sees_it():
    def function(x, mean, variance):
        before = mean * 2
        normalize(x, mean, variance)
        return before, mean * 2

    arguments = torch.rand(4, 3, 2), torch.zeros(3), torch.ones(3)
    recorded = nimble.record(function, *arguments, streams=1)
    other = torch.rand(4, 3, 2), torch.rand(3), torch.ones(3)
    expected = function(*[t.clone() for t in other])
    assert all(map(torch.equal, recorded(*other), expected))
