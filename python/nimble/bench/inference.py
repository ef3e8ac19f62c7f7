"""Inference: a model in eval mode on one input, and its results against eager's.

What all competitors share is made once: inputs, eager's results, an ONNX file.
"""

import time
import warnings
from pathlib import Path

import torch
from torch.utils.flop_counter import FlopCounterMode

import nimble
from nimble.bench import competitors, workloads
from nimble.bench.competitors import as_tensors

NAMES = workloads.NAMES
COMPETITORS = competitors.NAMES
PREPARE = "prepare"
PAPER_SPEEDUP = workloads.PAPER_SPEEDUP

#: Largest difference from eager that is still rounding, as a share of the largest output.
#: Reordered float32 sums gave up to 2e-4 (ResNet-101), bfloat16 at least 6e-3 (the MLP).
TOLERANCE = 1e-3


def expand(name):
    if ":" not in name and name not in NAMES:
        known = ", ".join(NAMES)
        raise ValueError(f"{name!r} is neither module:function nor one of {known}")
    return (name,)


def load(name):
    workload = workloads.load(name)
    return workload.model, workload.inputs


def describe(name, folder, with_onnx, with_degrees):
    """Writes what they share into the folder; returns facts about the workload."""
    model, inputs = load(name)
    torch.save(inputs, folder / "inputs.pt")
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        outputs = as_tensors(model(*_other_inputs(inputs)))
    torch.save(outputs, folder / "outputs.pt")

    facts = {
        "inputs": [list(x.shape) for x in inputs],
        "flops": counter.get_total_flops(),
        "parameters": sum(p.numel() for p in model.parameters()),
        "onnx_s": None,
        "onnx_error": None,
    }
    if with_degrees:
        engine = nimble.Nimble(model, kernels="torch", streams=1).prepare(*inputs)
        facts["degrees"] = {"forward": engine.schedule.degree}
    if with_onnx:
        start = time.perf_counter()
        try:
            _export(model, inputs, onnx_path(folder))
            facts["onnx_s"] = time.perf_counter() - start
        except Exception as error:
            facts["onnx_error"] = f"no ONNX file: {type(error).__name__}: {error}"
    return facts


def timed(prepared, inputs):
    return prepared.bind(inputs)


def check(prepared, subject, folder):
    """On inputs that it was not prepared on."""
    with prepared.mode():
        call = prepared.bind(_other_inputs(saved_inputs(folder)))  # results may lie in its memory
        outputs = prepared.read(call())
    return {"difference": difference(folder, outputs), "tolerance": TOLERANCE}


def saved_inputs(folder):
    return torch.load(folder / "inputs.pt")


def _other_inputs(inputs):
    """Inputs that are as valid as these, but different: prepared on one, checked on the other."""
    return tuple(torch.empty_like(x).copy_(x.flip(tuple(range(x.dim())))) for x in inputs)


def onnx_path(folder):
    return Path(folder) / "model.onnx"


def difference(folder, outputs):
    """Largest absolute difference from eager, divided by the largest output."""
    expected = torch.load(folder / "outputs.pt")
    if [t.shape for t in outputs] != [t.shape for t in expected]:
        return float("inf")
    with torch.no_grad():
        return max(
            (
                _largest(ours.double() - eager.double()) / (_largest(eager.double()) or 1.0)
                for ours, eager in zip(outputs, expected)
            ),
            default=0.0,
        )


def _largest(tensor):
    """Infinity if there is a NaN: that is never right here."""
    largest = tensor.abs().max().item() if tensor.numel() else 0.0
    return largest if largest == largest else float("inf")


def _export(model, inputs, path):
    """With the exporter by tracing, which is quicker; with the other one if it cannot."""
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        try:
            torch.onnx.export(model, inputs, path, dynamo=False, opset_version=18)
        except Exception:
            torch.onnx.export(model, inputs, path, dynamo=True)
