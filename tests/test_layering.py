"""The layering check catches each kind of wrong include, and the real tree has none."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]
SCRIPT = REPOSITORY / "tools" / "check_layering.py"

spec = importlib.util.spec_from_file_location("check_layering", SCRIPT)
check_layering = importlib.util.module_from_spec(spec)
spec.loader.exec_module(check_layering)


def violations(root, files):
    for name, text in files.items():
        path = root / "nimble" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return check_layering.check_tree(root)


WRONG = {
    "base includes nothing of ours": ("base/a.h", '#include "nimble/trace/trace.h"'),
    "trace does not know graph": ("trace/a.h", '#include "nimble/graph/graph.h"'),
    "graph does not know schedule": ("graph/a.cc", '#include "nimble/schedule/dag.h"'),
    "kernels do not know graph": ("kernels/a.cc", '#include "nimble/graph/graph.h"'),
    "passes do not know schedule": ("passes/a.cc", '#include "nimble/schedule/dag.h"'),
    "schedule does not know runtime": ("schedule/a.cc", '#include "nimble/runtime/replayer.h"'),
    "schedule does not know kernels": ("schedule/a.cc", '#include "nimble/kernels/gemm.h"'),
    "runtime does not know graph": ("runtime/a.cc", '#include "nimble/graph/graph.h"'),
    "nobody includes torch/": ("runtime/a.cc", '#include "nimble/torch/nimble.h"'),
    "torch does not know python": ("torch/a.cc", '#include "nimble/python/module.h"'),
    "python knows the facade only": ("python/a.cc", '#include "nimble/schedule/dag.h"'),
    "a test may not look ahead": ("graph/a_test.cc", '#include "nimble/schedule/dag.h"'),
    "torch headers": ("runtime/a.cc", "#include <torch/torch.h>"),
    "ATen headers": ("base/a.h", "#include <ATen/ATen.h>"),
    "c10 headers": ("graph/a.h", '#include "c10/util/Half.h"'),
    "Python's header": ("schedule/a.cc", "#include <Python.h>"),
    "pybind11": ("trace/a.cc", "#  include  <pybind11/pybind11.h>"),
    "torch headers in a test": ("runtime/a_test.cc", "#include <ATen/ATen.h>"),
    "a folder that is not in the table": ("extras/a.h", "#pragma once"),
}


@pytest.mark.parametrize("name, include", WRONG.values(), ids=WRONG.keys())
def test_wrong_include_is_reported_with_file_and_line(tmp_path, name, include):
    line = 1 if name.startswith("extras") else 3
    found = violations(tmp_path, {name: f"#pragma once\n\n{include}\n"})
    assert len(found) == 1
    assert f"nimble/{name}:{line}: " in found[0]


def test_relative_include_is_seen_through(tmp_path):
    found = violations(
        tmp_path,
        {
            "base/a.h": '#include "../graph/graph.h"\n#include "../../nimble/graph/graph.h"\n',
            "graph/graph.h": '#include "other.h"\n',
            "graph/other.h": "",
        },
    )
    assert len(found) == 2 and "base/a.h:1: " in found[0] and "base/a.h:2: " in found[1]


def test_every_violation_is_reported(tmp_path):
    text = '#include <ATen/ATen.h>\n#include "nimble/graph/graph.h"\n'
    assert len(violations(tmp_path, {"base/a.h": text, "trace/b.h": text})) == 4


RIGHT = {
    "base/ids.h": "#include <vector>\n// #include <torch/torch.h>\n",
    "trace/trace.h": '#include "nimble/base/ids.h"\n',
    "graph/graph.h": '#include "nimble/trace/trace.h"\n#include "nimble/base/ids.h"\n',
    "kernels/gemm.cc": '#include "hwy/highway.h"\n#include "nimble/base/ids.h"\n',
    "passes/fold.cc": '#include "nimble/graph/graph.h"\n#include "nimble/kernels/cost.h"\n',
    "schedule/dag.h": '#include "nimble/graph/graph.h"\n',
    "runtime/replay.cc": '#include "nimble/schedule/dag.h"\n#include "nimble/kernels/gemm.h"\n',
    "runtime/replay_test.cc": '#include "nimble/graph/graph.h"\n#include "gtest/gtest.h"\n',
    "runtime/test_programs.h": '#include "nimble/graph/graph.h"\n',
    "torch/nimble.h": '#include <ATen/ATen.h>\n#include "nimble/runtime/replay.h"\n',
    "python/module.cc": "#include <torch/extension.h>\n#include <nimble/torch/nimble.h>\n",
}


def test_right_includes_pass(tmp_path):
    assert violations(tmp_path, RIGHT) == []


def test_empty_tree_fails(tmp_path):
    assert violations(tmp_path, {}) != []


def test_script_fails_on_a_violation_and_passes_on_this_repository(tmp_path):
    def run(root):
        return subprocess.run(
            [sys.executable, SCRIPT, root], capture_output=True, text=True, check=False
        )

    violations(tmp_path, {"base/a.h": "#include <ATen/ATen.h>\n"})
    wrong = run(tmp_path)
    assert wrong.returncode == 1 and "base/a.h:1: " in wrong.stdout
    right = run(REPOSITORY / "src")
    assert right.returncode == 0, right.stdout
