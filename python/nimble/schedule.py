"""What was planned, for people and tools."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch


class Schedule:
    """The plan of a prepared engine.

    Attributes:
        tasks, streams, waits: of the plan that is replayed. One stream means one op after another,
            each of ours divided among all workers.
        workers: threads that run tasks.
        framework_tasks: tasks that are ops of the framework, not kernels of ours.
        why_framework_kernels: why none of ours are used; empty if they are.
        weight_bytes: folded and packed copies of parameters.
        degree: the degree of logical concurrency (the most tasks of which no two are ordered).
        logical_streams, logical_waits: on a device with room for every stream.
        arena_bytes, arena_lower_bound_bytes: planned memory, and the least that it could be.
        peak_bytes, framework_peak_bytes: what a replay holds at most, and what eager held.
        costs_us: measured time of each task.
        one_stream_us, many_streams_us: measured while preparing (0: not tried).
        makespan_us, makespan_lower_bound_us: of the plan for several streams, as simulated.
        device: what it runs on. On CUDA also:
        graphs, graph_nodes, pool_bytes: graphs that a replay launches, kernels and copies in them,
            memory that they hold.
        outside_graphs: ops that run between graphs, and why.
        record_ms, plan_ms, measure_ms: where the time to prepare went; select_ms, for choosing
            kernels, is part of plan_ms.

    Example:
        >>> engine.schedule.streams, engine.schedule.waits
        (2, 61)
        >>> engine.schedule.save_timeline("t.json")   # open in https://ui.perfetto.dev
    """

    def __init__(self, engine, example):
        self._engine = engine
        self._example = example
        self.__dict__.update(engine.report())

    @cached_property
    def _logical(self):
        return self._engine.logical_concurrency()

    @property
    def degree(self):
        return self._logical.degree

    @property
    def logical_streams(self):
        return self._logical.streams

    @property
    def logical_waits(self):
        return self._logical.waits

    def verify(self):
        """Proves the plan free of races; returns one sentence per fault, none if it is."""
        return self._engine.verify()

    def simulate(self, gpu="v100"):
        """The recorded program on a GPU that is only described; see docs/simulation.md.

        Returns an object with `eager`, `one_stream` and `many_streams`, each of which has
        `total_ms`, `idle_share` and `sm_share`; with `flops`, `bytes`, `streams` and `waits`; and
        with the `timeline` of many streams, for Perfetto.

        Example:
            >>> run = engine.schedule.simulate("v100")
            >>> run.eager.total_ms / run.many_streams.total_ms
        """
        return self._engine.simulate(gpu)

    def save_timeline(self, path):
        """Replays once and writes when each task ran, one track per stream, for Perfetto."""
        inputs = [
            torch.zeros(size, dtype=dtype).as_strided(shape, strides)
            for size, shape, strides, dtype in self._example
        ]
        Path(path).write_text(self._engine.timeline(inputs))

    def save_graph(self, path):
        """Writes the recorded program: Graphviz if the name ends in .dot, else one line an op."""
        dot = str(path).endswith(".dot")
        Path(path).write_text(self._engine.graph_dot() if dot else self._engine.graph_text())

    def __repr__(self):
        return (
            f"Schedule(tasks={self.tasks}, streams={self.streams}, waits={self.waits}, "
            f"degree={self.degree}, arena={self.arena_bytes / 2**20:.2f} MiB)"
        )


@dataclass(frozen=True)
class Passes:
    """The plans of a model prepared for training; None for a pass that it does not have.

    Example:
        >>> engine = nimble.Nimble(model).prepare(x, training=True)
        >>> engine.schedule.forward.degree, engine.schedule.backward.degree
        (6, 11)
    """

    forward: Schedule | None = None
    backward: Schedule | None = None

    def verify(self):
        """Proves both plans free of races; returns one sentence per fault, none if they are."""
        return [fault for plan in (self.forward, self.backward) if plan for fault in plan.verify()]


def shape_of_input(tensor):
    """What `save_timeline` needs to make an input like this one."""
    reach = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride())) + 1
    size = reach if tensor.numel() else 0
    return size, tuple(tensor.shape), tensor.stride(), tensor.dtype
