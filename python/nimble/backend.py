"""The hook for `torch.compile(model, backend="nimble")`."""

import importlib.abc
import importlib.util
import sys

import torch

from nimble._C import NimbleError
from nimble.engine import compile as nimble_compile

_REGISTRY = "torch._dynamo.backends.registry"


def torch_compile_backend(graph_module, example_inputs, *, options=None, **_):
    """Replays what torch.compile captured. Keyword `options` are those of `nimble.compile`."""
    numbers = _take_numbers(graph_module)
    compiled = nimble_compile(graph_module.forward, **(options or {}))

    def call(*inputs):
        if torch.is_grad_enabled() and any(
            isinstance(i, torch.Tensor) and i.requires_grad for i in inputs
        ):
            raise NimbleError(
                'backend="nimble" replays inference: call the model under torch.no_grad() or '
                "torch.inference_mode()"
            )
        if numbers:
            inputs = list(inputs)
            for position in numbers:
                inputs[position] = inputs[position].item()
        return compiled(*inputs)

    return call


def _take_numbers(graph_module):
    """Makes the graph take as numbers what it gets as tensors only to call item(), and says which.

    Dynamo passes a layer's eps and momentum like that. As numbers they are part of a signature.
    """
    graph, positions = graph_module.graph, []
    for position, node in enumerate(graph.find_nodes(op="placeholder")):
        reads = list(node.users)
        if reads and all((r.op, r.target) == ("call_method", "item") for r in reads):
            positions.append(position)
            for read in reads:
                read.replace_all_uses_with(node)
                graph.erase_node(read)
    if positions:
        graph_module.recompile()
    return positions


class _ListOnImport(importlib.abc.MetaPathFinder):
    """Lists the backend when torch.compile is first used: to import it now takes a second."""

    def find_spec(self, name, path, target=None):
        if name != _REGISTRY:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        execute = spec.loader.exec_module

        def execute_and_list(module):
            execute(module)
            _list_in(module)

        spec.loader.exec_module = execute_and_list
        return spec


def _list_in(registry):
    from importlib.metadata import EntryPoint

    where = f"{__name__}:{torch_compile_backend.__name__}"
    registry._BACKENDS.setdefault("nimble", EntryPoint("nimble", where, "torch_dynamo_backends"))


def list_backend():
    """Makes the name known also where the package's entry points are not installed."""
    if _REGISTRY in sys.modules:
        _list_in(sys.modules[_REGISTRY])
    else:
        sys.meta_path.insert(0, _ListOnImport())
