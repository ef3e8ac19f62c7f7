"""The hook for `torch.compile(model, backend="nimble")`; an entry point of the package names it."""

import torch

from nimble._C import NimbleError
from nimble.engine import compile as nimble_compile


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
