"""Threads and many engines."""

import gc
import os
import threading
import weakref
from pathlib import Path

import pytest
import torch
from torch import nn

import nimble
from comparison import exact, kernels  # noqa: F401


def branches():
    torch.manual_seed(0)

    class Branches(nn.Module):
        def __init__(self):
            super().__init__()
            self.parts = nn.ModuleList(nn.Linear(16, 16) for _ in range(4))

        def forward(self, x):
            y = torch.cat([part(x).relu() for part in self.parts], 1)
            return y.sum(1), y.sort(1).values, x

    return Branches()


def in_threads(count, work):
    """Runs work(i) on threads that start together; raises the first error."""
    errors = []
    barrier = threading.Barrier(count)

    def run(i):
        barrier.wait()
        try:
            work(i)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


@pytest.mark.parametrize("streams", [1, 3])
@pytest.mark.parametrize("make", ["prepare", "compile"])
def test_ten_threads_on_one_engine_get_their_own_answers(make, streams):
    model = branches()
    engine = (
        nimble.compile(model, streams=streams)
        if make == "compile"
        else nimble.Nimble(model, streams=streams).prepare(torch.randn(8, 16))
    )

    def work(i):
        x = torch.full((8, 16), float(i))
        with torch.no_grad():
            want = model(x)
            for _ in range(100):
                got = engine(x)
                torch.testing.assert_close(got, want)
                assert got[2] is x

    in_threads(10, work)


@pytest.mark.parametrize("outputs", ["fresh", "borrowed"])
def test_instances_of_concurrent_callers_do_not_share_written_memory(outputs):
    def function(x):
        total = torch.zeros(4)
        for row in x:
            total += row
        return total

    step = nimble.record(function, torch.randn(8, 4), outputs=outputs)
    results = {}

    def work(i):
        for _ in range(100):
            x = torch.full((8, 4), float(i))
            got = step(x)
            if outputs == "fresh":
                results.setdefault(i, []).append(got)

    in_threads(6, work)
    for i, values in results.items():
        for value in values:
            exact(value, torch.full((4,), 8.0 * i))


def test_prepare_in_one_thread_and_run_in_another():
    model, made = branches(), []
    in_threads(1, lambda _: made.append(nimble.Nimble(model, streams=2).prepare(torch.randn(8, 16))))
    x = torch.randn(8, 16)
    with torch.no_grad():
        torch.testing.assert_close(made[0](x), model(x))
        in_threads(1, lambda _: torch.testing.assert_close(made[0](x), model(x)))


def test_prepare_in_several_threads_at_once():
    models = [branches() for _ in range(4)]
    attributes = sorted(vars(torch.Tensor))

    def work(i):
        for streams in (1, 2, 1):
            engine = nimble.Nimble(models[i], streams=streams).prepare(torch.randn(8, 16))
            x = torch.full((8, 16), float(i))
            x.tolist()  # allowed: this thread records nothing now
            with torch.no_grad():
                torch.testing.assert_close(engine(x), models[i](x))
            assert "[parts.3]" in engine.explain()

    in_threads(4, work)
    assert sorted(vars(torch.Tensor)) == attributes


def test_a_thread_beside_a_recording_is_not_recorded_and_not_refused():
    stop, seen = threading.Event(), []

    def beside():
        while not stop.is_set():
            seen.append(torch.ones(3).sum().item())
            torch.ones(3).numpy().tolist()

    thread = threading.Thread(target=beside)
    thread.start()
    try:
        for _ in range(5):
            step = nimble.record(lambda x: x + 1, torch.ones(3))
            assert step.schedule.tasks == 1
    finally:
        stop.set()
        thread.join()
    assert seen and set(seen) == {3.0}


def test_many_engines_live_side_by_side():
    engines = [nimble.record(lambda x, k=k: (x * k, x + k), torch.ones(3), streams=2) for k in range(100)]
    for k, engine in enumerate(engines):
        exact(engine(torch.full((3,), 2.0)), (torch.full((3,), 2.0 * k), torch.full((3,), 2.0 + k)))


def resident_bytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.serial
def test_a_thousand_prepares_do_not_grow_memory():
    model, x = branches(), torch.randn(64, 16)

    def cycles(count):
        for i in range(count):
            nimble.Nimble(model, streams=1 + (i % 50 == 0)).prepare(x)(x)
        gc.collect()
        return resident_bytes()

    after_200 = cycles(200)
    assert cycles(800) - after_200 < 8 << 20


def test_a_dropped_engine_frees_the_model():
    model = branches()
    gone = weakref.ref(model)
    engine = nimble.Nimble(model).prepare(torch.randn(8, 16))
    compiled = nimble.compile(model)
    compiled(torch.randn(8, 16))
    del model, engine, compiled
    gc.collect()
    assert gone() is None
