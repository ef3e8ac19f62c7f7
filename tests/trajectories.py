"""How far training strays from eager PyTorch over many steps, beside how far eager strays from itself.

    python tests/trajectories.py mlp@32 mobilenet_v2@32 --optimizers adam,sgd --steps 50

All runs of a network and an optimizer start from the same parameters and get the same changing
data and random numbers. The yardsticks are eager runs that differ by rounding alone: with another
number of threads, in the other layout (of images), from parameters and inputs that are rounded
differently. Prints a table; ends with 1 if PyTorch's kernels are not equal to eager bit for bit or
if ours stray further than the yardsticks do.
"""

import argparse
import contextlib
import sys
from dataclasses import dataclass, field

import torch
from torch import nn
from torch.nn import functional as F

import nimble
from nimble.bench import training_workloads

#: Ours may stray this far, or so many times as far as the furthest yardstick. Where a program
#: amplifies rounding, runs part at random: yardsticks differ from each other as much.
TOLERANCE = 1e-3
TIMES_YARDSTICK = 4
ROUNDING = 2**-22

OPTIMIZERS = {
    "sgd": (torch.optim.SGD, {"lr": 1e-2, "momentum": 0.9}),
    "nesterov": (
        torch.optim.SGD,
        {"lr": 1e-2, "momentum": 0.9, "nesterov": True, "weight_decay": 5e-4},
    ),
    "adam": (torch.optim.Adam, {"lr": 1e-3}),
    "adamw": (torch.optim.AdamW, {"lr": 1e-3}),
    "rmsprop": (torch.optim.RMSprop, {"lr": 1e-3}),
    "adagrad": (torch.optim.Adagrad, {"lr": 1e-2}),
}
FORMS = {"plain": {"foreach": False}, "foreach": {"foreach": True}, "fused": {"fused": True}}


def conv_net():
    """A network of few layers with what the large ones are made of; for the tests."""
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU6(inplace=True),
        nn.Conv2d(16, 16, 3, 1, 1, groups=16, bias=False), nn.BatchNorm2d(16), nn.SiLU(inplace=True),
        nn.Conv2d(16, 32, 1), nn.MaxPool2d(2), nn.Flatten(), nn.Dropout(0.1),
        nn.Linear(32 * 16, 10),
    )  # fmt: skip
    batch = [torch.randn(16, 3, 16, 16), torch.randint(10, (16,))]
    return model, F.cross_entropy, torch.optim.SGD(model.parameters(), lr=0.01), batch


def bert_two_layers():
    """BERT-base with 2 of its 12 layers, 4 texts of 32 tokens."""
    return _bert((4, 32), num_hidden_layers=2)


def small_bert():
    return _bert(
        (4, 16), num_hidden_layers=2, hidden_size=64, num_attention_heads=4,
        intermediate_size=128, vocab_size=100, max_position_embeddings=64,
    )  # fmt: skip


def _bert(shape, **sizes):
    from transformers import BertConfig, BertForSequenceClassification

    model = BertForSequenceClassification(BertConfig(**sizes))
    batch = [torch.randint(model.config.vocab_size, shape), torch.randint(2, shape[:1])]
    loss_fn = lambda output, target: F.cross_entropy(output.logits, target)
    return model, loss_fn, torch.optim.AdamW(model.parameters(), lr=2e-5), batch


@dataclass
class Task:
    """A network that an optimizer trains for some steps."""

    name: str  # NAME@BATCH or module:function, as `nimble bench --train` takes them
    optimizer: type
    options: dict
    steps: int

    def begin(self, rounded=False):
        """The job in its first state, and its batches."""
        job, batch = training_workloads.build(self.name)
        model = job.model
        generator = torch.Generator().manual_seed(1)
        batches = [other_batch(batch, generator) for _ in range(self.steps)]
        if rounded:
            with torch.no_grad():
                for tensor in [*model.parameters(), *(x for b in batches for x in b)]:
                    if tensor.is_floating_point():
                        noise = torch.randn(tensor.shape, generator=generator)
                        tensor.mul_(1 + ROUNDING * noise)
        job.optimizer = self.optimizer(model.parameters(), **self.options)
        return job, batches


def other_batch(batch, generator):
    """Never the same, and can be learned like the first."""
    if any(x.is_floating_point() for x in batch):
        noise = lambda x: 0.1 * torch.randn(x.shape, generator=generator)
        return [x + noise(x) if x.is_floating_point() else x for x in batch]
    order = torch.randperm(len(batch[0]), generator=generator)
    return [x[order] for x in batch]


@dataclass
class Trajectory:
    start: list  # parameters
    losses: list = field(default_factory=list)
    parameters: dict = field(default_factory=dict)  # after so many steps
    end: list = ()  # all that training changes, gradients as well
    schedule: object = None  # of a replay


def run(task, threads, *, engine=None, channels_last=False, rounded=False):
    """Trains in eager mode or, with options for `nimble.TrainStep`, by replays."""
    with use_threads(threads):
        job, batches = task.begin(rounded)
        if channels_last:
            job.model.to(memory_format=torch.channels_last)
        step = job.step
        if engine is not None:
            step = nimble.TrainStep(
                job.model, job.loss_fn, job.optimizer, threads=threads, **engine
            )
        copies = lambda tensors: [t.detach().clone() for t in tensors]
        trajectory = Trajectory(copies(job.model.parameters()))
        for i, batch in enumerate(batches):
            if channels_last:
                batch = [in_channels_last(x) for x in batch]
            torch.manual_seed(i)
            trajectory.losses.append(step(*batch).item())
            if i + 1 in checkpoints(task.steps):
                trajectory.parameters[i + 1] = copies(job.model.parameters())
        grads = [p.grad for p in job.model.parameters() if p.grad is not None]
        trajectory.end = copies([*job.tensors(), *grads])
        if engine is not None:
            trajectory.schedule = step.schedule
        return trajectory


def checkpoints(steps):
    return (max(1, steps // 5), steps)


def in_channels_last(tensor):
    return tensor.to(memory_format=torch.channels_last) if tensor.dim() == 4 else tensor


@contextlib.contextmanager
def use_threads(threads):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def equal(a, b):
    """Losses, parameters, statistics, gradients and the optimizer's state, to the last bit."""
    return (
        a.losses == b.losses
        and len(a.end) == len(b.end)
        and all(torch.equal(x, y) for x, y in zip(a.end, b.end))
    )


@dataclass
class Distance:
    """Of two trajectories. NaN where one of them has it.

    Attributes:
        loss: the largest relative difference of the losses.
        parameters: at the end, relative to the largest number of a tensor; the largest.
        path: at the checkpoints, of all parameters together, relative to how far they have come.
    """

    loss: float
    parameters: float
    path: tuple

    def numbers(self):
        return [self.loss, self.parameters, *self.path]


def distance(run, reference):
    losses = torch.tensor([run.losses, reference.losses], dtype=torch.float64)
    paths = []
    for step, expected in reference.parameters.items():
        apart = norm_of_differences(run.parameters[step], expected)
        paths.append(apart / norm_of_differences(reference.start, expected))
    return Distance(
        ((losses[0] - losses[1]).abs() / losses[1].abs()).max().item(),
        max(largest_difference(a, b) for a, b in zip(run.parameters[step], expected)),
        tuple(paths),
    )


def largest_difference(a, b):
    return ((a - b).abs().max() / b.abs().max().clamp(min=1e-30)).item()


def norm_of_differences(some, others):
    return sum((a - b).double().square().sum() for a, b in zip(some, others)).sqrt().item()


def furthest(distances):
    columns = zip(*(d.numbers() for d in distances))
    loss, parameters, *path = (max(column) for column in columns)
    return Distance(loss, parameters, tuple(path))


def strays(ours, yardstick):
    """Whether any number is further off than the yardstick allows."""
    return any(
        not mine <= max(TOLERANCE, TIMES_YARDSTICK * theirs)
        for mine, theirs in zip(ours.numbers(), yardstick.numbers())
    )


def yardsticks(task, threads, reference):
    """How far eager runs that differ by rounding are from eager, by what they do differently."""
    runs = {
        "other threads": run(task, 1 if threads > 1 else 2),
        "rounded": run(task, threads, rounded=True),
    }
    if any(p.dim() == 4 for p in reference.start):
        runs["channels last"] = run(task, threads, channels_last=True)
    return {name: distance(r, reference) for name, r in runs.items()}


@dataclass
class Comparison:
    """Of one form of an optimizer with eager."""

    equal: bool  # PyTorch's kernels on one stream, bit for bit
    ours: Distance
    plan: object  # the schedule with our kernels

    def share_of_ours(self):
        tasks = f"{self.plan.tasks - self.plan.framework_tasks} of {self.plan.tasks}"
        return self.plan.why_framework_kernels or tasks


def compare(task, threads, reference):
    exact = run(task, threads, engine={"kernels": "torch", "streams": 1})
    ours = run(task, threads, engine={})
    return Comparison(equal(exact, reference), distance(ours, reference), ours.schedule)


def tasks_of(name, optimizer, steps, rate=1.0, forms=FORMS):
    """A task for each form that PyTorch has of the optimizer, by the name of the form."""
    kind, options = OPTIMIZERS[optimizer]
    tasks = {}
    for form in forms:
        with contextlib.suppress(RuntimeError, TypeError):
            chosen = {**options, "lr": options["lr"] * rate, **FORMS[form]}
            kind([nn.Parameter(torch.zeros(1))], **chosen)
            tasks[form] = Task(name, kind, chosen, steps)
    return tasks


def row_of(optimizer, tasks, threads):
    """A row of the table, and whether it shows a fault."""
    compared, yardstick = {}, None
    for form, task in tasks.items():
        reference = run(task, threads)
        if yardstick is None:  # forms differ by rounding alone
            yardstick = furthest(yardsticks(task, threads, reference).values())
            losses = f"{reference.losses[0]:.3f} → {reference.losses[-1]:.3f}"
        compared[form] = compare(task, threads, reference)
    ours = furthest([c.ours for c in compared.values()])
    differ = [form for form, c in compared.items() if not c.equal]
    row = {
        "network": task.name.split(":")[-1],
        "optimizer": optimizer,
        "rate": f"{task.options['lr']:.0e}",
        "loss": losses,
        "forms equal": f"{len(compared) - len(differ)} of {len(compared)}",
        "ours: loss": f"{ours.loss:.0e}",
        "parameters": f"{ours.parameters:.0e}",
        "path": " → ".join(f"{p:.0e}" for p in ours.path),
        "eager: loss": f"{yardstick.loss:.0e}",
        "parameters ": f"{yardstick.parameters:.0e}",
        "path ": " → ".join(f"{p:.0e}" for p in yardstick.path),
        "our tasks": ", ".join(sorted({c.share_of_ours() for c in compared.values()})),
    }
    return row, bool(differ) or strays(ours, yardstick)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "names", nargs="+", metavar="NAME", help="NAME@BATCH or module:function, as of nimble bench"
    )
    parser.add_argument("--optimizers", default=",".join(OPTIMIZERS), metavar="A,B")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--rate", type=float, default=1.0, help="times the usual learning rates")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--forms", default=",".join(FORMS), metavar="A,B")
    arguments = parser.parse_args()
    header = True
    faults = 0
    for name in arguments.names:
        for optimizer in arguments.optimizers.split(","):
            forms = arguments.forms.split(",")
            tasks = tasks_of(name, optimizer, arguments.steps, arguments.rate, forms)
            row, fault = row_of(optimizer, tasks, arguments.threads)
            if header:
                print(f"| {' | '.join(map(str.strip, row))} |\n|{'---|' * len(row)}")
            print(f"| {' | '.join(row.values())} |{' FAULT' if fault else ''}", flush=True)
            header = False
            faults += fault
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
