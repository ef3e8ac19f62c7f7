"""The two kinds of workload, one module each (inference.py, training.py), with the same names in it:

    NAMES           workloads that have a name
    COMPETITORS     who takes part if nobody is named
    PREPARE         what a competitor's file calls its function of this kind
    PAPER_SPEEDUP   times the speed of PyTorch on a V100, from the Nimble paper
    expand(name) -> the names of workloads that a name on the command line stands for
    load(name) -> (subject, inputs), what a competitor is given; the same in every process
    describe(name, folder, with_onnx, with_degrees) -> facts, and files that `check` needs
    timed(prepared, inputs) -> the function of no arguments that is timed
    check(prepared, subject, folder) -> difference from eager, and the tolerance

A competitor that takes ONNX files is given the path of one as its subject.
"""

import importlib
import sys


def load(name):
    return importlib.import_module(f"nimble.bench.{name}")


def of_user(name):
    """What `module:function` of the user's returns."""
    module, _, function = name.partition(":")
    if "" not in sys.path:
        sys.path.insert(0, "")
    return getattr(importlib.import_module(module), function)()
