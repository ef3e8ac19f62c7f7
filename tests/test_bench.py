"""`nimble bench`: what it writes, and that a competitor's fault is a row, not the end."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
import torch

from nimble.bench import competitors, inference, workloads
from nimble.bench.process import Child, ChildFailed

FILES = {
    "tiny.py": """
        import torch

        def net():
            layers = [torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4)]
            return torch.nn.Sequential(*layers).eval(), torch.randn(3, 8)

        def broken():
            raise RuntimeError("this model cannot be made")
        """,
    "double.py": """
        from nimble.bench.competitors import Prepared

        LABEL, REQUIRES, FROM_ONNX = "doubles", (), False

        def prepare(model, inputs, setting):
            return Prepared(bind=lambda inputs: lambda: 2 * model(*inputs))
        """,
    "frozen.py": """
        from nimble.bench.competitors import Prepared

        LABEL, REQUIRES, FROM_ONNX = "always the first result", (), False

        def prepare(model, inputs, setting):
            result = model(*inputs).detach()
            return Prepared(bind=lambda inputs: lambda: result)
        """,
    "crash.py": """
        import os

        LABEL, REQUIRES, FROM_ONNX = "crashes", (), False

        def prepare(model, inputs, setting):
            print("last words", flush=True)
            os.abort()
        """,
    "late_crash.py": """
        import os

        from nimble.bench.competitors import Prepared

        LABEL, REQUIRES, FROM_ONNX = "crashes while it is timed", (), False

        def prepare(model, inputs, setting):
            calls = []

            def call():
                calls.append(1)
                return os._exit(3) if len(calls) > 2 else model(*inputs)

            return Prepared(bind=lambda inputs: call)
        """,
    "refuse.py": """
        LABEL, REQUIRES, FROM_ONNX = "refuses", (), False

        def prepare(model, inputs, setting):
            raise ValueError("no such operator")
        """,
    "hang.py": """
        import time

        LABEL, REQUIRES, FROM_ONNX = "hangs", (), False

        def prepare(model, inputs, setting):
            time.sleep(600)
        """,
    "absent.py": """
        LABEL, REQUIRES, FROM_ONNX = "is not installed", ("no_such_module",), False
        """,
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    for name, text in FILES.items():
        (tmp_path / name).write_text(textwrap.dedent(text))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def bench(folder, names, chosen, *more):
    command = [sys.executable, "-m", "nimble", "bench", *names, "--competitors", ",".join(chosen)]
    done = subprocess.run(
        [*command, "--threads", "1", "--rounds", "2", "--json", "out.json", *more],
        cwd=folder,
        capture_output=True,
        text=True,
    )
    assert (folder / "out.json").exists(), done.stderr
    return done, json.loads((folder / "out.json").read_text())


def rows_of(results):
    return {row["competitor"]: row for row in results["workloads"][0]["results"]}


def test_results(folder):
    chosen = ["eager", *competitors.OURS]
    done, results = bench(folder, ["tiny:net"], chosen)
    assert done.returncode == 0, done.stdout + done.stderr
    workload = results["workloads"][0]
    assert results["machine"]["threads"] == 1
    assert results["options"]["rounds"] == 2
    assert workload["inputs"] == [[3, 8]]
    assert workload["flops"] == 2 * 3 * (8 * 16 + 16 * 4)
    assert workload["parameters"] == 8 * 16 + 16 + 16 * 4 + 4
    assert workload["fastest_peer"] == "eager"
    assert workload["nimble_many_streams_to_fastest_peer"] > 0
    assert list(rows_of(results)) == chosen
    for row in rows_of(results).values():
        assert row["status"] == "ok"
        assert row["difference"] <= inference.TOLERANCE
        assert 0 < row["p10_ms"] <= row["median_ms"] <= row["p90_ms"]
        assert 0 < row["speedup_p10"] <= row["speedup_p90"]
        assert row["samples"] >= 6 and row["prepare_s"] >= 0
        assert row["prepare_peak_mib"] >= 0
    assert rows_of(results)["eager"]["speedup"] == 1
    assert rows_of(results)["nimble_one_stream"]["details"]["streams"] == 1
    for label in ("PyTorch eager", "Nimble, one stream", "fastest peer: eager"):
        assert label in done.stdout
    assert "timing 3 competitors in turns" in done.stderr


def test_a_fault_is_a_row(folder):
    chosen = ["eager", "double", "frozen", "crash", "late_crash", "refuse", "absent"]
    done, results = bench(folder, ["tiny:net"], chosen)
    rows = rows_of(results)
    assert done.returncode == 1  # for the wrong results
    assert rows["eager"]["status"] == "ok"
    assert rows["double"]["status"] == rows["frozen"]["status"] == "wrong"
    assert "WRONG" in done.stdout
    assert rows["crash"]["status"] == rows["late_crash"]["status"] == "failed"
    assert rows["crash"]["reason"] == "crashed: SIGABRT; last words"
    assert rows["late_crash"]["reason"].startswith("crashed: exit code 3")
    assert rows["refuse"]["reason"] == "ValueError: no such operator"
    assert rows["absent"]["status"] == "missing"
    assert rows["absent"]["reason"] == "not installed: no_such_module"
    assert results["workloads"][0]["fastest_peer"] == "eager"


def test_who_takes_too_long_is_given_up(folder):
    done, results = bench(folder, ["tiny:net"], ["hang"], "--prepare-timeout", "3")
    assert rows_of(results)["hang"]["reason"] == "no answer to 'prepare' within 3 s"
    assert results["workloads"][0]["fastest_peer"] is None


def test_a_workload_that_fails_is_not_the_end(folder):
    done, results = bench(folder, ["tiny:broken", "tiny:net"], ["eager"])
    assert done.returncode == 1
    failed, good = results["workloads"]
    assert failed["reason"] == "RuntimeError: this model cannot be made"
    assert good["results"][0]["status"] == "ok"


def test_an_unknown_workload_is_an_error_before_anything_runs(folder):
    command = [sys.executable, "-m", "nimble", "bench", "resnet51"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert "neither module:function nor one of resnet50" in done.stderr


def state_of(process_id):
    """The letter that ps shows, None if there is no such process."""
    try:
        return Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return None


def wait_for_state(process_id, state):
    end = time.monotonic() + 60
    while state_of(process_id) != state:
        assert time.monotonic() < end, f"{state_of(process_id)}, not {state}"
        time.sleep(0.01)


def test_a_child_is_stopped_between_questions_and_ends_with_close(tmp_path):
    child = Child(tmp_path, threads=1)
    child.ask("ready", limit_s=300)
    wait_for_state(child.process_id, "T")
    child.ask("ready", limit_s=300)
    wait_for_state(child.process_id, "T")
    child.close()
    assert state_of(child.process_id) is None
    child.close()  # twice does no harm


def test_a_child_that_failed_is_closed(tmp_path):
    child = Child(tmp_path, threads=1)
    with pytest.raises(ChildFailed, match="AttributeError"):
        child.ask("no such command", limit_s=300)
    assert state_of(child.process_id) is None


def test_stopped_children_do_not_outlive_their_parent(folder):
    program = """
        import time
        from pathlib import Path
        from nimble.bench.process import Child

        if __name__ == "__main__":
            child = Child(Path.cwd(), threads=1)
            child.ask("ready", limit_s=300)
            print(child.process_id, flush=True)
            time.sleep(600)
        """
    (folder / "parent.py").write_text(textwrap.dedent(program))
    parent = subprocess.Popen(
        [sys.executable, "parent.py"], cwd=folder, stdout=subprocess.PIPE, text=True
    )
    process_id = int(parent.stdout.readline())
    wait_for_state(process_id, "T")
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    end = time.monotonic() + 60
    while state_of(process_id) not in (None, "Z"):
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.parametrize("name", ["mlp", "mobilenet_v2"])
def test_a_workload_is_the_same_in_every_process(name):
    first, second = workloads.load(name), workloads.load(name)
    torch.rand(3)
    assert all(torch.equal(a, b) for a, b in zip(first.inputs, second.inputs, strict=True))
    weights = zip(first.model.state_dict().values(), second.model.state_dict().values())
    assert all(torch.equal(a, b) for a, b in weights)


def test_difference_from_eager(tmp_path):
    torch.save([torch.tensor([4.0, -8.0])], tmp_path / "outputs.pt")
    assert inference.difference(tmp_path, [torch.tensor([4.0, -8.0])]) == 0
    assert inference.difference(tmp_path, [torch.tensor([5.0, -8.0])]) == 1 / 8
    assert inference.difference(tmp_path, [torch.tensor([4.0, float("nan")])]) == float("inf")
    assert inference.difference(tmp_path, [torch.tensor([4.0])]) == float("inf")


def test_every_competitor_has_the_same_names():
    for name in competitors.NAMES:
        competitor = competitors.load(name)
        assert competitor.LABEL and isinstance(competitor.REQUIRES, tuple)
        assert isinstance(competitor.FROM_ONNX, bool) and callable(competitor.prepare)


def test_chart(tmp_path):
    pytest.importorskip("matplotlib")
    from nimble.bench import chart

    row = {"status": "ok", "speedup": 1.5, "speedup_p10": 1.4, "speedup_p90": 1.6}
    rows = [row | {"competitor": name, "label": name} for name in competitors.NAMES]
    rows[1] = {"competitor": rows[1]["competitor"], "label": "x", "status": "failed"}
    machine = {"threads": 2, "processor": "a processor"}
    results = {"machine": machine, "workloads": [{"name": "net", "results": rows}]}
    chart.draw(results, tmp_path / "c")
    assert (tmp_path / "c.svg").read_text().count("<svg") == 1
    assert (tmp_path / "c.png").read_bytes().startswith(b"\x89PNG")
