"""The hook for `torch.compile(model, backend="nimble")`; an entry point of the package names it."""

import functools
import itertools
import weakref

import torch
from functorch.compile import make_boxed_func
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.exc import Unsupported

from nimble import tree
from nimble._C import Refused
from nimble.engine import compile as nimble_compile

_MOST_SIGNATURES = 256  # of one engine's arguments; Dynamo has no more for one code object
_engines = itertools.count()


def torch_compile_backend(graph_module, example_inputs, *, options=None, passes=None, **_):
    """Replays what torch.compile captured. Keyword `options` are those of `nimble.compile`.

    In training `passes`, a dict, gets lists of what forward and backward passes became.
    """
    if torch.is_grad_enabled() and any(
        isinstance(i, torch.Tensor) and i.requires_grad for i in example_inputs
    ):
        forward, backward = (
            functools.partial(_compile_pass, options=options, passes=passes, name=name)
            for name in ("forward", "backward")
        )
        return aot_autograd(fw_compiler=forward, bw_compiler=backward)(graph_module, example_inputs)
    numbers = _take_numbers(graph_module)
    compiled = nimble_compile(graph_module.forward, **(options or {}))

    def call(*inputs):
        if numbers:
            inputs = list(inputs)
            for position in numbers:
                inputs[position] = inputs[position].item()
        return compiled(*inputs)

    return call


def _compile_pass(graph_module, _, *, options, passes, name):
    """The forward or the backward pass: a function of tensors, without autograd."""
    compiled = nimble_compile(graph_module.forward, **(options or {}))
    if passes is not None:
        passes.setdefault(name, []).append(compiled)

    @make_boxed_func
    def run(*inputs):
        with torch.no_grad():
            return compiled(*inputs)

    return run


def _with_code_of_its_own(function):
    """Of one code object Dynamo compiles only so much, and all models of a class share one."""
    code = function.__code__
    function.__code__ = code.replace(co_name=f"engine_{next(_engines)}")
    return function


def _forget(passes):
    for used in itertools.chain(*passes.values()):
        used.forget_programs()


class TrainingEngine:
    """A model with both passes planned, by torch.compile; call it like the model."""

    def __init__(self, model, options):
        self._passes = {}
        # Dynamo keeps every backend, and much of what backends returned, for ever.
        weakref.finalize(self, _forget, self._passes).atexit = False
        backend = functools.partial(torch_compile_backend, options=options, passes=self._passes)
        self._call = torch.compile(
            _with_code_of_its_own(lambda *args, **kwargs: model(*args, **kwargs)),
            backend=backend, fullgraph=True, dynamic=False, recompile_limit=_MOST_SIGNATURES,
        )  # fmt: skip

    def __call__(self, *args, **kwargs):
        return self._call(*args, **kwargs)

    @property
    def programs(self):
        """The program of each pass that was used last, by the name of the pass."""
        used = {name: compiled[-1].programs for name, compiled in self._passes.items()}
        return {name: programs[-1] for name, programs in used.items() if programs}


def prepare_for_training(model, args, kwargs, options):
    """Plans both passes on an example, and leaves the model's state as it was."""
    engine = TrainingEngine(model, options)
    buffers = [(b, b.clone()) for b in model.buffers()]
    rng = torch.get_rng_state()
    try:
        with torch.enable_grad():
            outputs, _ = tree.flatten(engine(*args, **kwargs))
            outputs = [o for o in outputs if o.requires_grad]
            leaves = [p for p in model.parameters() if p.requires_grad]
            if outputs and leaves:
                ones = [torch.ones_like(o) for o in outputs]
                torch.autograd.grad(outputs, leaves, ones, allow_unused=True)
    except Unsupported as error:
        raise Refused(f"cannot plan this model for training: {error}") from None
    finally:
        with torch.no_grad():
            for buffer, was in buffers:
                buffer.copy_(was)
        torch.set_rng_state(rng)
    return engine


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
