"""Every op of a real step of training by itself: our kernel and PyTorch's against double precision.

    python tests/ops_of_step.py mobilenet_v2@8

A network that amplifies rounding hides a small fault of a kernel: any two runs of it are far apart.
A single op on the values that a step gives it amplifies nothing.
"""

import argparse
import sys
from dataclasses import dataclass

import torch
from torch.utils._python_dispatch import TorchDispatchMode

import nimble
from nimble import tree
from nimble.bench import training_workloads

#: A kernel of ours may be so much less exact than PyTorch's, or this exact, relative to the largest
#: number. Winograd's algorithm (4x4 outputs of a 3x3 window) costs 4 digits of 7 at the worst.
TIMES_EAGER = 8
EXACT = 2e-6
EXACT_WITH_WINOGRAD = 1e-4


@dataclass
class Call:
    """An op and what it was given."""

    op: object
    arguments: tuple  # (args, kwargs), of copies
    of_images: bool  # the network has convolutions


class Calls(TorchDispatchMode):
    """Keeps one call of each op with each kind of arguments."""

    def __init__(self, of_images):
        super().__init__()
        self.kept = {}
        self._of_images = of_images

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        given = args, kwargs or {}
        if computes(op):
            tensors, shape = tree.flatten(given)
            kinds = tuple((t.shape, t.stride(), t.dtype) for t in tensors)
            key = op, repr(shape), kinds
            if key not in self.kept:
                self.kept[key] = Call(op, copied(given, unchanged), self._of_images)
        return op(*args, **(kwargs or {}))


def computes(op):
    """Whether its result is new numbers, which follow from its arguments."""
    return not (
        op.is_view
        or torch.Tag.nondeterministic_seeded in op.tags
        or "empty" in op.overloadpacket.__name__
    )


def copied(structure, change):
    tensors, shape = tree.flatten(structure)
    copies = {id(t): change(t.detach().clone()) for t in tensors}
    return tree.unflatten(shape, [copies[id(t)] for t in tensors])


def calls_of(name, steps=2):
    """Those of the step after so many others."""
    job, batch = training_workloads.load(name)
    for _ in range(steps):
        job.step(*batch)
    with Calls(any(p.dim() == 4 for p in job.model.parameters())) as calls:
        job.step(*batch)
    return list(calls.kept.values())


def unchanged(tensor):
    return tensor


def as_our_plans_have_images(tensor):
    if tensor.dim() == 4 and tensor.is_floating_point():
        return tensor.to(memory_format=torch.channels_last)
    return tensor


def in_double(tensor):
    return tensor.double() if tensor.is_floating_point() else tensor


def results_of(function, arguments):
    """Floating-point tensors that it returns or that it was given, as they are then."""
    found = [function(*arguments), arguments]
    return [t for t in tree.flatten(found)[0] if t.is_floating_point()]


@dataclass
class Verdict:
    """Errors relative to the largest number of a result; the largest of all results."""

    name: str
    shapes: list
    ours: float
    eager: float
    winograd: bool

    @property
    def exact_enough(self):
        exact = EXACT_WITH_WINOGRAD if self.winograd else EXACT
        return self.ours <= max(exact, TIMES_EAGER * self.eager)


def judge(call):
    """None if no kernel of ours computes it."""

    def function(args, kwargs):
        return call.op(*args, **kwargs)

    ours = as_our_plans_have_images if call.of_images else unchanged
    try:
        engine = nimble.record(function, *copied(call.arguments, ours), threads=1)
    except nimble.Refused:
        return None
    if engine.schedule.framework_tasks == engine.schedule.tasks:
        return None
    exact = results_of(
        lambda args, kwargs: call.op(*args, **with_type(kwargs)), copied(call.arguments, in_double)
    )
    errors = [
        max(map(error, results_of(run, copied(call.arguments, layout)), exact))
        for run, layout in ((engine, ours), (function, unchanged))
    ]
    shapes = [list(t.shape) for t in tree.flatten(call.arguments)[0]]
    return Verdict(str(call.op), shapes, *errors, "winograd" in engine.explain().lower())


def with_type(kwargs):
    return {k: torch.double if v is torch.float else v for k, v in kwargs.items()}


def error(tensor, right):
    if right.numel() == 0:
        return 0.0
    apart = (tensor.double() - right).abs()
    apart = apart.masked_fill(tensor.double() == right, 0)  # infinities
    return (apart.max() / right.abs().max().clamp(min=1e-30)).item()


def verdicts_of(name):
    return [verdict for call in calls_of(name) if (verdict := judge(call))]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", help="NAME@BATCH or module:function, as of nimble bench --train")
    verdicts = verdicts_of(parser.parse_args().name)
    for v in sorted(verdicts, key=lambda v: v.ours / max(v.eager, 1e-8)):
        sign = " " if v.exact_enough else "!"
        print(f"{sign} {v.ours:.1e} ours, {v.eager:.1e} eager: {v.name} {v.shapes[:4]}")
    faults = sum(not v.exact_enough for v in verdicts)
    print(f"{len(verdicts)} ops; {faults} not exact enough")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
