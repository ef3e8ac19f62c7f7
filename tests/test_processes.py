"""Forks, the end of the process, and what else needs a process of its own."""

import os
import subprocess
import sys
import textwrap

import pytest


def run_script(body, timeout=600, stderr=""):
    script = "import os, sys, threading\nimport torch\nfrom torch import nn\nimport nimble\n"
    script += textwrap.dedent(body)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONWARNINGS": "ignore"}
    environment.pop("OMP_NUM_THREADS", None)
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=timeout, env=environment
    )
    assert done.returncode == 0, done.stderr
    assert stderr is None or done.stderr == stderr
    return done.stdout


BRANCHES = """
    torch.set_num_threads({threads})
    parts = [nn.Linear(64, 64).requires_grad_(False) for _ in range(4)]
    function = lambda x: torch.cat([p(x).relu() for p in parts], 1).sum(1)
    x = torch.randn(64, 64)
    engine = nimble.record(function, x, streams={streams})
"""


@pytest.mark.parametrize("streams, threads", [(1, 1), (1, 2), (3, 2)])
def test_replay_after_fork(streams, threads):
    out = run_script(
        BRANCHES.format(streams=streams, threads=threads)
        + """
    torch.randn(500, 500) @ torch.randn(500, 500)  # eager uses its OpenMP team
    want = function(x)
    engine(x)
    for _ in range(8):
        child = os.fork()
        if child == 0:
            ok = all(torch.allclose(engine(x), want, atol=1e-5) for _ in range(20))
            again = nimble.record(lambda x: x * 2, x, streams=2) if ok else None
            os._exit(0 if ok and torch.equal(again(x), x * 2) else 7)
        assert torch.allclose(engine(x), want, atol=1e-5)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    print("fine")
    """
    )
    assert out == "fine\n"


@pytest.mark.parametrize("streams", [1, 3])
def test_exit_right_after_a_replay(streams):
    body = BRANCHES.format(streams=streams, threads=2) + '    engine(x)\n    print("fine")\n'
    for _ in range(2):
        assert run_script(body) == "fine\n"


@pytest.mark.parametrize("streams", [1, 3])
def test_exit_while_daemon_threads_replay(streams):
    body = BRANCHES.format(streams=streams, threads=2) + """
    started = [threading.Event() for _ in range(3)]
    def work(event):
        engine(x)
        event.set()
        while True:
            engine(x)
    for event in started:
        threading.Thread(target=work, args=(event,), daemon=True).start()
    for event in started:
        event.wait()
    print("fine")
    """
    for _ in range(3):
        assert run_script(body) == "fine\n"


@pytest.mark.parametrize(
    "around",
    [
        "torch.profiler.profile()",
        "torch.profiler.profile(profile_memory=True)",
        "torch._subclasses.fake_tensor.FakeTensorMode()",
    ],
)
def test_a_profiler_or_a_dispatch_mode_does_no_harm(around):
    out = run_script(
        f"""
    x = torch.ones(3)
    step = nimble.record(lambda x: x * 2, x)
    for use in (lambda: step(x), lambda: nimble.record(lambda x: x * 2, x)(x)):
        try:
            with {around}:
                use()
        except nimble.NimbleError:
            pass
    assert torch.equal(step(x), x * 2)
    print("fine")
    """,
        stderr=None,  # the profiler itself has a lot to say
    )
    assert out == "fine\n"


def test_recording_prints_nothing():
    out = run_script(
        """
    held = [torch.ones(1000)]
    def function(x):
        held.clear()  # memory from before the recording is freed in it
        return x * 2
    nimble.record(function, torch.ones(3))
    """
    )
    assert out == ""


def test_multiprocessing_workers_replay():
    out = run_script(
        BRANCHES.format(streams=2, threads=2)
        + """
    import multiprocessing
    inputs = [x + i for i in range(8)]
    wanted = [function(x) for x in inputs]  # eager itself hangs in a child: OpenMP does not fork
    def work(i):
        return bool(torch.allclose(engine(inputs[i]), wanted[i], atol=1e-5))
    with multiprocessing.get_context("fork").Pool(2) as pool:
        print(all(pool.map(work, range(8))))
    """
    )
    assert out == "True\n"
