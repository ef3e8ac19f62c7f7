"""A CUDA runtime without a GPU, for tests; see README.md.

    out = run_on_fake_cuda("print(torch.ones(2, device='cuda').shape)")
"""

import fcntl
import importlib.util
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

FOLDER = Path(__file__).parent
BUILD = FOLDER.parent.parent / "build" / "fake_cuda"


def missing():
    """Why there is no fake here, or None. For `pytest.mark.skipif(missing() is not None, ...)`."""
    torch = Path(importlib.util.find_spec("torch").submodule_search_locations[0])
    if not (torch / "lib/libtorch_cuda.so").exists():
        return "this PyTorch has no CUDA libraries"
    if not list(torch.parent.glob("nvidia/cu[0-9]*/include/cuda_runtime_api.h")):
        return "this PyTorch's CUDA headers are not installed"
    if not (shutil.which("cmake") and shutil.which("readelf")):
        return "there is no cmake or no readelf"
    return None


def build():
    """Builds the libraries, if they are not there yet, and returns their folder."""
    BUILD.mkdir(parents=True, exist_ok=True)
    with open(BUILD / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests run in several processes
        python = f"-DNimble_PYTHON={sys.executable}"
        for command in (["-S", FOLDER, "-B", BUILD, python], ["--build", BUILD]):
            done = subprocess.run(["cmake", *command], capture_output=True, text=True)
            assert done.returncode == 0, done.stdout + done.stderr
    return BUILD / "lib"


def environment(**more):
    """The environment of a process that sees the fake device."""
    libraries = sorted(build().glob("*.so.*"), key=lambda path: "cudart" not in path.name)
    return {
        **os.environ,
        "LD_PRELOAD": os.pathsep.join(map(str, libraries)),
        "PYTHONPATH": os.pathsep.join([str(FOLDER.parent), *filter(None, sys.path)]),
        "PYTHONWARNINGS": "ignore",
        **more,
    }


def run_on_fake_cuda(script, timeout=600, **more):
    """Runs Python source in a process of its own, and returns what it prints.

    `torch`, `nn` and `fake` (see api.py) are imported already. `more` is added to the environment:
    FAKE_CUDA_MEMORY (MiB), FAKE_CUDA_SEED, FAKE_CUDA_BLANK.
    """
    head = "import torch\nfrom torch import nn\nfrom fake_cuda import api as fake\n"
    done = subprocess.run(
        [sys.executable, "-c", head + textwrap.dedent(script)],
        capture_output=True,
        text=True,
        timeout=timeout,
        env=environment(**more),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
