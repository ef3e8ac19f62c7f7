"""Training: whole steps (zero_grad, forward, loss, backward, optimizer), and their losses against
eager's.

The check is of losses, from the same state, on changing data and with seeded random numbers.
Networks amplify rounding, so how far is too far is measured: eager itself runs again from
parameters that are rounded differently, and, for those who draw other random numbers than eager
(torch.compile in dropout), from other seeds. That second comparison is much weaker.
"""

import itertools

import torch
from torch.utils.flop_counter import FlopCounterMode

import nimble
from nimble.bench import competitors, training_workloads

NAMES = training_workloads.NAMES
COMPETITORS = competitors.TRAINERS
PREPARE = "prepare_training"
PAPER_SPEEDUP = training_workloads.PAPER_SPEEDUP
expand = training_workloads.expand

#: Steps that are compared; as many batches are timed in turns.
STEPS = 4

#: May be off by so many times what eager moves, and always by the least. Channels last moved
#: eager by up to 1.6 times (ResNet-50, 2.8e-3); not to train moves losses by 9e-4 at least.
_TIMES_EAGERS_MOVE = 4
_LEAST_TOLERANCE = 2e-4
_ROUNDING = 2**-22


def load(name):
    # Moments of units that are dead decay into denormal numbers over thousands of steps on the
    # same data. Threads that are started later inherit this.
    torch.set_flush_denormal(True)
    return training_workloads.load(name)


def describe(name, folder, with_onnx, with_degrees):
    """Writes what the check needs into the folder; returns facts about the workload."""
    job, batch = load(name)
    start = _snapshot(job)
    with FlopCounterMode(display=False) as counter:
        job.loss(*batch).backward()
    job.optimizer.zero_grad()

    batches = list(_batches(batch))
    _restore(job, start)
    random_state = torch.get_rng_state()
    job.loss(*batch)
    draws = not torch.equal(random_state, torch.get_rng_state())
    _restore(job, start)
    expected = _losses(job.step, batches)

    def moved(step=job.step, seed=0, rounded=False):
        _restore(job, start)
        if rounded:
            _round_differently(job.model)
        return _difference(_losses(step, batches, seed), expected)

    moves = {
        "rounding": max(moved(rounded=True) for _ in range(2)),
        "other_draws": max(moved(seed=s) for s in (100, 200)) if draws else 0.0,
        "no_training": moved(step=lambda *batch: job.loss(*batch).detach()),
    }
    torch.save({"start": start, "batches": batches, "losses": expected, "moves": moves}, _file(folder))
    facts = {
        "inputs": [list(x.shape) for x in batch],
        "flops": counter.get_total_flops(),
        "parameters": sum(p.numel() for p in job.model.parameters()),
        "moves_of_losses": moves,
    }
    if with_degrees:
        _restore(job, start)
        facts["degrees"] = _degrees(job, batch)
    return facts


def timed(prepared, inputs):
    calls = itertools.cycle([prepared.bind(batch) for batch in _batches(inputs)])

    def call():
        return next(calls)()

    return call


def check(prepared, subject, folder):
    reference = torch.load(_file(folder), mmap=True)
    _restore(subject, reference["start"])
    with prepared.mode():
        step = lambda *batch: prepared.read(prepared.bind(batch)())[0]
        losses = _losses(step, reference["batches"])
    moves = reference["moves"]
    move, compared = moves["rounding"], f"losses of {STEPS} steps"
    if moves["other_draws"] and not prepared.same_draws:
        move = max(moves.values())
        compared += ", up to the draws of dropout, which differ"
    return {
        "difference": _difference(losses, reference["losses"]),
        "tolerance": max(_LEAST_TOLERANCE, _TIMES_EAGERS_MOVE * move),
        "compared": compared,
    }


def _file(folder):
    return folder / "training.pt"


def _batches(batch):
    """Batches that are as valid as this one, but different."""
    for i in range(STEPS):
        yield tuple(x.roll(i, -1) if x.dim() else x for x in batch)


def _losses(step, batches, seed=0):
    losses = []
    for i, batch in enumerate(batches):
        torch.manual_seed(seed + i)
        losses.append(step(*batch).item())
    return losses


def _difference(losses, expected):
    """The largest relative one; infinity if there is a NaN."""
    differences = [abs(a - b) / (abs(b) or 1.0) for a, b in zip(losses, expected, strict=True)]
    return max(d if d == d else float("inf") for d in differences)


def _snapshot(job):
    return [t.detach().clone() for t in job.tensors()]


@torch.no_grad()
def _restore(job, snapshot):
    """In place, as plans and compiled code may point to these tensors."""
    for tensor, value in zip(job.tensors(), snapshot, strict=True):
        tensor.copy_(value)


@torch.no_grad()
def _round_differently(model):
    for p in model.parameters():
        p.mul_(1 + _ROUNDING * torch.randn_like(p))


def plans_of_passes(job, batch):
    """Schedules of the forward pass, the backward pass and the whole step as they are recorded.

    None for one that is refused. They have PyTorch's ops as tasks, on one stream.
    """

    @torch.no_grad()
    def forward(*batch):
        return job.loss(*batch)

    def plan(program, *arguments):
        try:
            return nimble.record(program, *arguments, kernels="torch", streams=1).schedule
        except nimble.NimbleError:
            return None

    plans = {"forward": plan(forward, *batch)}
    loss = job.loss(*batch)  # a graph is only good until the next forward pass changes statistics
    parameters = [p for p in job.model.parameters() if p.requires_grad]

    def backward():
        return torch.autograd.grad(loss, parameters, retain_graph=True, allow_unused=True)

    plans["backward"] = plan(backward)
    plans["step"] = plan(job.step, *batch)
    return plans


def _degrees(job, batch):
    return {name: plan and plan.degree for name, plan in plans_of_passes(job, batch).items()}
