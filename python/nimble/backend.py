"""The hook for `torch.compile(model, backend="nimble")`."""

import torch

from nimble._C import NimbleError
from nimble.engine import compile as nimble_compile


def torch_compile_backend(graph_module, example_inputs, *, options=None, **_):
    """Replays what torch.compile captured. Keyword `options` are those of `nimble.compile`."""
    compiled = nimble_compile(graph_module.forward, **(options or {}))

    def call(*inputs):
        if torch.is_grad_enabled() and any(
            isinstance(i, torch.Tensor) and i.requires_grad for i in inputs
        ):
            raise NimbleError(
                'backend="nimble" replays inference: call the model under torch.no_grad() or '
                "torch.inference_mode()"
            )
        return compiled(*inputs)

    return call
