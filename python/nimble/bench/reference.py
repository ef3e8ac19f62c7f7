"""What all competitors of one workload share, made once: inputs, eager's results, an ONNX file."""

import time
import warnings
from pathlib import Path

import torch
from torch.utils.flop_counter import FlopCounterMode

from nimble.bench.competitors import as_tensors
from nimble.bench.workloads import other_inputs


def describe(workload, folder, with_onnx):
    """Writes what they share into the folder; returns facts about the workload."""
    model, inputs = workload.model, workload.inputs
    torch.save(inputs, folder / "inputs.pt")
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        outputs = as_tensors(model(*other_inputs(inputs)))
    torch.save(outputs, folder / "outputs.pt")

    facts = {
        "inputs": [list(x.shape) for x in inputs],
        "flops": counter.get_total_flops(),
        "parameters": sum(p.numel() for p in model.parameters()),
        "onnx_s": None,
        "onnx_error": None,
    }
    if with_onnx:
        start = time.perf_counter()
        try:
            _export(model, inputs, onnx_path(folder))
            facts["onnx_s"] = time.perf_counter() - start
        except Exception as error:
            facts["onnx_error"] = f"no ONNX file: {type(error).__name__}: {error}"
    return facts


def inputs(folder):
    return torch.load(folder / "inputs.pt")


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
