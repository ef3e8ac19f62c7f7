"""Records ops of PyTorch's op database on one set of values and replays them on another.

Run as a program it is the process of `Sweeper`: a crash of an op ends it, not the test.
"""

import copy
import faulthandler
import json
import os
import random
import subprocess
import sys
from dataclasses import asdict, dataclass

import numpy
import torch
from torch.testing._internal import common_methods_invocations
from torch.testing._internal.common_methods_invocations import op_db

import nimble
from nimble import tree

DTYPES = (torch.float32, torch.complex64, torch.int64, torch.float8_e4m3fn)
# Their results are whatever was in memory.
UNINITIALIZED = {
    "empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided",
}  # fmt: skip
SECONDS = 300  # for one sample: something hangs
FLAT = torch.contiguous_format
TIMES_EAGERS_ERROR = 8
IN_PLACE = ", in place"
GRADIENT = ", gradient"

# The database seeds the generator before every random op. We do that, outside of the program.
common_methods_invocations.wrapper_set_seed = lambda op, *args, **kwargs: op(*args, **kwargs)


@dataclass
class Outcome:
    """What became of one sample: "equal", "refused", "wrong", or "skipped" (eager itself fails)."""

    sample: int
    kind: str
    why: str = ""


def all_variants():
    """The name of every op of the database, and of its in-place variant where there is one."""
    names = []
    for op in op_db:
        names.append(op.full_name)
        if op.inplace_variant is not None:
            names.append(op.full_name + IN_PLACE)
    return names


def gradient_variants():
    """The name of every op that has gradients, forward and backward in one program."""
    return [op.full_name + GRADIENT for op in op_db if op.supports_autograd]


def find(name):
    """The database's entry for a name, and the function that is meant."""
    plain = name.removesuffix(IN_PLACE).removesuffix(GRADIENT)
    op = next(op for op in op_db if op.full_name == plain)
    if name.endswith(GRADIENT):
        return op, with_gradients(op.op)
    return op, op.inplace_variant if name.endswith(IN_PLACE) else op.op


def with_gradients(call):
    """The op, and the gradients of all its arguments for a gradient that depends on its results."""

    def function(first, *rest, **named):
        tensors, shape = tree.flatten((first, rest, named))
        tensors = [t.detach().requires_grad_() if differentiable(t) else t for t in tensors]
        first, rest, named = tree.unflatten(shape, tensors)
        outputs, _ = tree.flatten(call(first, *rest, **named))
        wanted = [t for t in tensors if t.requires_grad]
        given = [o for o in outputs if o.requires_grad]
        grads = torch.autograd.grad(given, wanted, [o.detach() + 1 for o in given], allow_unused=True)
        return [o.detach() for o in outputs], grads

    return function


def differentiable(tensor):
    return has_storage(tensor) and (tensor.is_floating_point() or tensor.is_complex())


def samples_of(op, seed):
    """All samples for the CPU, as (first argument, other arguments, named arguments)."""
    dtypes = op.supported_dtypes("cpu")
    if not dtypes:
        return []
    dtype = next((d for d in DTYPES if d in dtypes), next(iter(dtypes)))
    torch.manual_seed(seed)
    numpy.random.seed(seed)
    random.seed(seed)
    samples = list(op.sample_inputs("cpu", dtype, set_seed=False))
    return [(s.input, s.args, s.kwargs) for s in samples]


def some(samples, most):
    """At most so many of them, from all over; always the same."""
    if most is None or len(samples) <= most:
        return samples
    return [samples[i] for i in sorted(random.Random(0).sample(range(len(samples)), most))]


def sweep(name, most, after=-1):
    """Yields, for each sample after the given one, its number and then its outcome."""
    op, call = find(name)
    first, second = (samples_of(op, seed) for seed in (1, 2))
    for index in some(range(len(first)), most):
        if index > after:
            yield index
            other = second[index] if index < len(second) else first[index]
            yield Outcome(index, *try_sample(op, call, first[index], other))


def try_sample(op, call, sample, other):
    """First with the framework's kernels, bit for bit, then with ours, up to rounding."""
    outcome = try_kernels(op, call, sample, other, "torch", how_they_differ)
    if outcome[0] != "equal":
        return outcome
    kind, why = try_kernels(op, call, sample, other, "auto", how_they_differ_much)
    return kind, f"our kernels: {why}" if why else ""


def try_kernels(op, call, sample, other, kernels, how_they_differ):
    def function(first, rest, named):
        return call(first, *rest, **named)

    other = with_values_of(sample, other)
    try:
        expected = run(function, sample)
    except Exception as error:
        return "skipped", text_of(error)
    try:
        copies = copied(sample)
        recorded = nimble.record(function, *copies, streams=1, kernels=kernels)
    except nimble.NimbleError as error:
        return "refused", text_of(error)
    except Exception as error:
        return "wrong", f"record: {text_of(error)}"
    if difference := how_inputs_differ(copies, sample):
        return "wrong", f"record changed its inputs: {difference}"
    compare = how_layouts_differ if op.name in UNINITIALIZED else how_they_differ
    try:
        expected_of_other = run(function, other)
    except Exception as error:
        try:
            run(recorded, other)
        except Exception:
            return "equal", ""
        return "wrong", f"eager raises, the replay does not: {text_of(error)}"
    try:
        replayed_other = run(recorded, other)
        replayed = run(recorded, sample)
    except Exception as error:
        return "wrong", f"replay: {text_of(error)}"
    for values, found, right, given in (
        ("other", replayed_other, expected_of_other, other),
        ("recorded", replayed, expected, sample),
    ):
        if difference := compare(found, right, lambda: run(function, in_double(given))):
            return "wrong", f"{values} values: {difference}"
    return "equal", ""


def in_double(structure):
    tensors, shape = tree.flatten(copied(structure))
    return tree.unflatten(shape, [t.double() if t.dtype == torch.float32 else t for t in tensors])


def run(function, arguments):
    """Runs on a copy of the arguments; returns the copy and the result."""
    arguments = copied(arguments)
    torch.manual_seed(3)
    return arguments, function(*arguments)


def copied(structure):
    """The same with other tensors, which share memory with each other as those do."""
    tensors, shape = tree.flatten(structure)
    memory = {}
    return tree.unflatten(shape, [copy_of(t, memory) for t in tensors])


def copy_of(tensor, memory):
    if not has_storage(tensor):
        return tensor.clone()
    if tensor.is_conj():  # deepcopy would resolve these bits
        return copy_of(tensor.conj(), memory).conj()
    if tensor.is_neg():
        return torch._neg_view(copy_of(torch._neg_view(tensor), memory))
    return copy.deepcopy(tensor, memory)


def has_storage(tensor):
    return tensor.layout == torch.strided


def with_values_of(sample, other):
    """`sample` with the values of `other` or, where those do not fit or are the same, others."""
    mine, shape = tree.flatten(sample)
    others, _ = tree.flatten(other)
    fit = [layout(t) for t in mine] == [layout(t) for t in others]
    if not fit or all(map(same_values, mine, others)):
        others = [disturbed(t) if has_storage(t) else t for t in mine]
    return tree.unflatten(shape, others)


def disturbed(tensor):
    """In reverse order or, where that changes nothing, one more."""
    other = copied(tensor)
    other.copy_(tensor.flatten().flip(0).view(tensor.shape))
    if same_values(other, tensor) and tensor.dtype != torch.bool:
        other.copy_(tensor + 1)
    return other


def layout(tensor):
    if not has_storage(tensor):
        return tensor.layout, tensor.shape
    bits = tensor.is_conj(), tensor.is_neg()
    return tensor.dtype, tensor.shape, tensor.stride(), bits


def how_layouts_differ(actual, expected, exact=None):
    """The first difference between two (arguments, result), except for the values; or "".

    `exact`, of the three ways to compare, is needed only up to rounding.
    """
    tensors, shape = tree.flatten(actual)
    others, other_shape = tree.flatten(expected)
    if shape != other_shape:
        return f"{tree.describe(shape, tensors)}, not {tree.describe(other_shape, others)}"
    for i, (a, b) in enumerate(zip(tensors, others)):
        if layout(a) != layout(b):
            return f"tensor {i} has layout {layout(a)}, not {layout(b)}"
    if shared_memory(tensors) != shared_memory(others):
        return f"memory shared as {shared_memory(tensors)}, not {shared_memory(others)}"
    return ""


def how_they_differ(actual, expected, exact=None, same=None):
    """As text."""
    if difference := how_layouts_differ(actual, expected):
        return difference
    tensors, others = tree.flatten(actual)[0], tree.flatten(expected)[0]
    for i, (a, b) in enumerate(zip(tensors, others)):
        if not (same or same_values)(a, b):
            return f"tensor {i} of {len(tensors)}: {a.flatten()[:4]}, not {b.flatten()[:4]}"
    return ""


def how_they_differ_much(actual, expected, exact):
    """Up to rounding. Results that nearly cancel out are judged by the same in double precision."""
    difference = how_they_differ(actual, expected, same=close_values)
    if not difference:
        return ""
    try:
        exact = tree.flatten(exact())[0]
    except Exception as error:  # it does not take such numbers
        return f"{difference} ({text_of(error)})"
    tensors, others = tree.flatten(actual)[0], tree.flatten(expected)[0]
    for i, (a, b, right) in enumerate(zip(tensors, others, exact, strict=True)):
        if close_values(a, b):
            continue
        error, eager_error = ((t - right).abs().max().item() for t in (a, b))
        if not error <= TIMES_EAGERS_ERROR * eager_error:
            return f"tensor {i} of {len(tensors)} is off by {error}, eager's by {eager_error}"
    return ""


def how_inputs_differ(actual, expected):
    return how_they_differ((actual, None), (expected, None))


def shared_memory(tensors):
    """For each tensor the first one of the same storage."""
    storages = [t.untyped_storage()._cdata if has_storage(t) else id(t) for t in tensors]
    return [storages.index(s) for s in storages]


def same_values(a, b):
    """Bit for bit, except that every not-a-number equals every other."""
    if not has_storage(a):
        return torch.equal(a.to_dense(), b.to_dense())
    a, b = (t.resolve_conj().resolve_neg().clone(memory_format=FLAT) for t in (a, b))
    if a.is_complex():
        a, b = torch.view_as_real(a), torch.view_as_real(b)
    if a.is_floating_point():
        a, b = (t.float() if t.itemsize == 1 else t for t in (a, b))  # few ops take float8
        if not torch.equal(a.isnan(), b.isnan()):
            return False
        a, b = a.masked_fill(a.isnan(), 0), b.masked_fill(b.isnan(), 0)
    return torch.equal(a.flatten().view(torch.uint8), b.flatten().view(torch.uint8))


def close_values(a, b):
    """Within 1e-4 of the largest number, or 1e-6 where that is small; what is not finite is equal."""
    if not has_storage(a) or a.dtype != torch.float32:
        return same_values(a, b)
    if a.numel() == 0 or not b.isfinite().any():
        return same_values(a, b)
    finite = b.isfinite()
    if not same_values(a.masked_fill(finite, 0), b.masked_fill(finite, 0)):
        return False
    return ((a - b)[finite].abs().max() <= 1e-4 * b[finite].abs().max() + 1e-6).item()


def text_of(error):
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0][:300]}"


class Sweeper:
    """Sweeps in a process of its own, and in a new one after a crash."""

    def __init__(self):
        self._process = None

    def sweep(self, name, most=None):
        """The outcomes of an op's samples: of all, or of at most so many, spread over all."""
        outcomes = []
        after = -1
        while after is not None:
            after = self._ask(name, most, after, outcomes)
        return outcomes

    def _ask(self, name, most, after, outcomes):
        """Adds outcomes; returns the sample that crashed, or None at the end."""
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-W", "ignore", __file__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
                text=True,
            )
        print(json.dumps([name, most, after]), file=self._process.stdin, flush=True)
        for line in self._process.stdout:
            answer = json.loads(line)
            if answer is None:
                return None
            if isinstance(answer, int):
                after = answer  # is being tried
            else:
                outcomes.append(Outcome(**answer))
        code = self._process.wait()
        self._process = None
        outcomes.append(Outcome(after, "wrong", f"the process ended with {code}"))
        return after

    def close(self):
        if self._process is not None:
            self._process.stdin.close()
            self._process.wait()


def serve():
    """Answers the questions of a `Sweeper` on standard input."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what ops print goes elsewhere
    for question in sys.stdin:
        faulthandler.dump_traceback_later(SECONDS, exit=True)
        for answer in sweep(*json.loads(question)):
            faulthandler.dump_traceback_later(SECONDS, exit=True)
            print(json.dumps(answer if isinstance(answer, int) else asdict(answer)), file=answers)
            answers.flush()
        faulthandler.cancel_dump_traceback_later()
        print("null", file=answers, flush=True)


if __name__ == "__main__":
    serve()
