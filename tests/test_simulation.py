"""A recorded program on a GPU that is only described: `schedule.simulate`, `inspect --simulate`."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import nimble


class Branches(nn.Module):
    """A convolution, and several beside each other on its result."""

    def __init__(self, branches):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.branches = nn.ModuleList(nn.Conv2d(8, 16, 1, bias=False) for _ in range(branches))

    def forward(self, x):
        x = self.stem(x)
        return [branch(x) for branch in self.branches]


def simulate(model, *inputs, gpu="v100"):
    engine = nimble.Nimble(model.eval(), streams=1, kernels="torch").prepare(*inputs)
    return engine.schedule.simulate(gpu)


@pytest.mark.parametrize(
    ("model", "shape", "flops", "elements"),
    [
        (nn.Linear(64, 32), (1, 64), 2 * 64 * 32, 64 + 64 * 32 + 32 + 32),
        (nn.Linear(64, 32), (5, 64), 2 * 5 * 64 * 32, 5 * 64 + 64 * 32 + 32 + 5 * 32),
        (
            nn.Conv2d(4, 6, 3, padding=1, bias=False),
            (2, 4, 10, 10),
            2 * 2 * 6 * 100 * 4 * 9,
            2 * 4 * 100 + 6 * 4 * 9 + 2 * 6 * 100,
        ),
        (
            nn.Conv2d(4, 4, 3, groups=4, bias=False),
            (1, 4, 10, 10),
            2 * 4 * 64 * 9,
            4 * 100 + 4 * 9 + 4 * 64,
        ),
        (nn.ReLU(), (3, 7), 21, 42),
        (nn.Embedding(1000, 8), None, 5 * 8, 5 * 8 + 5 * 2 + 5 * 8),  # indices have 8 bytes
    ],
)
def test_work_is_counted_from_the_recorded_ops(model, shape, flops, elements):
    x = torch.randn(shape) if shape else torch.arange(5)
    simulated = simulate(model, x)
    assert simulated.flops == flops
    assert simulated.bytes == 4 * elements


def test_branches_are_faster_on_many_streams_and_a_chain_is_not():
    image = torch.randn(1, 3, 16, 16)
    branches = simulate(Branches(4), image)
    assert branches.capped.total_ms == branches.many_streams.total_ms  # there is room for all
    assert branches.priorities.total_ms <= branches.launch_order.total_ms <= branches.capped.total_ms
    assert branches.streams == 4
    assert branches.waits == 3
    assert branches.many_streams.total_ms < branches.one_stream.total_ms < branches.eager.total_ms
    chain = simulate(nn.Sequential(nn.ReLU(), nn.Sigmoid(), nn.Tanh()), image)
    assert chain.streams == 1
    assert chain.many_streams.total_ms == chain.one_stream.total_ms


def test_an_eager_gpu_waits_for_its_host():
    image = torch.randn(1, 3, 16, 16)
    slow, fast = (
        simulate(Branches(4), image, gpu=f"v100,eager_op_ns={host}").eager for host in (1e6, 1)
    )
    assert slow.idle_share > 0.9 > fast.idle_share


def test_an_unknown_gpu_is_refused_with_those_there_are():
    with pytest.raises(nimble.NimbleError, match="there is: v100"):
        simulate(nn.ReLU(), torch.ones(1), gpu="abacus")


def inspect(*arguments):
    command = [Path(sys.executable).with_name("nimble"), "inspect", *arguments]
    return subprocess.run(command, capture_output=True, text=True)


def test_inspect_prints_a_table_and_writes_a_timeline(tmp_path):
    run = inspect("mlp", "--simulate", "v100", "--timeline", tmp_path / "t.json")
    assert run.returncode == 0, run.stderr
    header, _, row = (line for line in run.stdout.splitlines() if line.startswith("|"))
    assert "GPU idle" in header
    assert row.startswith("| mlp | 5 |")
    slices = [e for e in json.loads((tmp_path / "t.json").read_text())["traceEvents"] if "dur" in e]
    assert len(slices) == 5


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["mlp", "--simulate", "abacus"], "there is: v100"),
        (["--simulate", "v100", "--timeline", "t.json"], "one model"),
        ([], "a model is needed"),
    ],
)
def test_a_mistake_is_told_without_a_traceback(arguments, reason):
    run = inspect(*arguments)
    assert run.returncode == 2
    assert reason in run.stderr
    assert "Traceback" not in run.stderr
