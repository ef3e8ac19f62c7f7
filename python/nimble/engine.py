"""The public interface: Nimble, compile and record."""

import functools
import threading
from collections import OrderedDict

import torch

from nimble import _C, recording, tree
from nimble._C import NimbleError, Refused
from nimble.module_state import record_when_steady
from nimble.schedule import Schedule, shape_of_input


class Options:
    """How to plan; the same everywhere.

    Args:
        streams: "auto" (several only where that measures faster than one) or a number.
        threads: how many cores to use; the default is `torch.get_num_threads()`.
        kernels: "auto" (ours, chosen by measuring) or "torch" (the framework's own only: bits as in
            eager on one stream).
        winograd: whether 3x3 convolutions may use Winograd's algorithm, which keeps results within
            1e-3 of eager, relative to the largest output, instead of 1e-4.
        outputs: "fresh" (each call returns new tensors) or "borrowed" (the next call overwrites
            them).
    """

    def __init__(
        self, streams="auto", threads=None, kernels="auto", outputs="fresh", winograd=True
    ):
        if streams != "auto" and not (isinstance(streams, int) and streams >= 1):
            raise NimbleError(f'streams must be "auto" or a positive number, not {streams!r}')
        if threads is not None and not (isinstance(threads, int) and threads >= 1):
            raise NimbleError(f"threads must be a positive number, not {threads!r}")
        if kernels not in ("auto", "torch"):
            raise NimbleError(f'kernels must be "auto" or "torch", not {kernels!r}')
        if outputs not in ("fresh", "borrowed"):
            raise NimbleError(f'outputs must be "fresh" or "borrowed", not {outputs!r}')
        self.streams = 0 if streams == "auto" else streams
        self.threads = threads or 0
        self.borrowed = outputs == "borrowed"
        self.native = kernels == "auto"
        self.winograd = bool(winograd)


class Program:
    """A function recorded for one structure of arguments."""

    def __init__(self, function, args, kwargs, options):
        tensors, self.shape = tree.flatten_call(args, kwargs)
        self.prepared_for = tree.describe(self.shape, tensors)
        self.output_shape = None
        module = recording.module_of(function)

        def record(state, check):
            def run(flat_inputs):
                args, kwargs = tree.unflatten(self.shape, flat_inputs)
                with recording.observed(module):
                    result = function(*args, **kwargs)
                self._check_arguments(args, kwargs, flat_inputs)
                check()
                outputs, shape = tree.flatten(result)
                if self.output_shape is None:  # later runs are on other values
                    self.output_shape = shape
                return outputs

            return _C.Engine(
                run,
                tensors,
                options.streams,
                options.threads,
                options.borrowed,
                options.native,
                options.winograd,
                state.tensors,
            )

        roots = [function, *tree.modules_in(self.shape)]
        self.engine, state = record_when_steady(roots, record)
        self.watch = state.watch
        self.schedule = Schedule(self.engine, [shape_of_input(t) for t in tensors])
        self._call_flat = self.engine.flat_call(self.watch, "list")

    def _check_arguments(self, args, kwargs, tensors):
        now, shape = tree.flatten_call(args, kwargs)
        if (
            shape != self.shape
            or any(a is not b for a, b in zip(now, tensors))
            or any(t.grad is not None for t in tensors)
        ):
            raise Refused(
                "cannot replay this program: it changes its arguments other than by writing "
                "into their tensors; return the new values instead"
            )

    def fast_call(self):
        """A function of a tuple of tensors, where the structure is as simple as that; or None."""
        match self.shape:
            case (_, _, (("sequence", _, arguments), ("dict", _, (), _, ()))) if all(
                a == ("tensor",) for a in arguments
            ):
                pass
            case _:
                return None
        match self.output_shape:
            case ("tensor",):
                return self.engine.flat_call(self.watch, "single")
            case ("sequence", kind, parts) if kind is tuple and set(parts) <= {("tensor",)}:
                return self.engine.flat_call(self.watch, "tuple")
        return None

    def __call__(self, args, kwargs):
        tensors, shape = tree.flatten_call(args, kwargs)
        if shape != self.shape:
            raise NimbleError(
                f"prepared for arguments {self.prepared_for}, got {tree.describe(shape, tensors)}: "
                "call prepare() with an example like it, or use nimble.compile, which prepares "
                "itself for new arguments"
            )
        return self.call_flat(tensors)

    def call_flat(self, tensors):
        outputs = self._call_flat(tensors)
        if outputs is NotImplemented:
            kinds = sorted({type(t).__name__ for t in tensors} - {"Tensor", "Parameter"})
            raise NimbleError(f"prepared for plain tensors, got a tensor subclass: {kinds}")
        return tree.unflatten(self.output_shape, outputs)


class _OfThisProcess:
    """What can be neither copied nor pickled."""

    def __reduce_ex__(self, protocol):
        raise NimbleError(
            "a prepared program cannot be copied or pickled: it is memory and threads of this "
            "process; copy the model itself and prepare the copy"
        )


class _Prepared(_OfThisProcess):
    """What every prepared program shows."""

    _program = None

    @property
    def schedule(self):
        """Streams, tasks, waits, degree, memory and costs of the plan."""
        return self._prepared_program().schedule

    def explain(self):
        """What is replayed by which kernel, on which stream, and what was measured."""
        return self._prepared_program().engine.explain()

    def _prepared_program(self):
        if self._program is None:
            raise NimbleError("not prepared yet: call prepare(example input) first")
        return self._program


class Nimble(_Prepared):
    """A model prepared for one kind of input.

    Example:
        >>> engine = nimble.Nimble(model).prepare(x)
        >>> y = engine(x)

    The model runs as in `torch.no_grad()`. Keyword options: see `nimble.engine.Options`.
    """

    def __init__(self, model, **options):
        self.model = model
        self._options = Options(**options)
        self._fast = None

    def prepare(self, *args, **kwargs):
        """Runs the model once on an example, plans, and returns self.

        Parameters, buffers, gradients, flags and the random state are left as they were; caches
        that the model makes in its first call are kept.
        """
        with torch.no_grad():
            self._program = Program(self.model, args, kwargs, self._options)
        self._fast = self._program.fast_call()
        return self

    def __call__(self, *args, **kwargs):
        if self._fast is not None and not kwargs:
            outputs = self._fast(args)
            if outputs is not NotImplemented:
                return outputs
        return self._prepared_program()(args, kwargs)


class _Recorded(_Prepared):
    """A recorded function; call it like the function itself."""

    def __init__(self, function, args, kwargs, options):
        self._program = Program(function, args, kwargs, options)
        self._fast = self._program.fast_call()
        functools.update_wrapper(self, function, updated=())

    __call__ = Nimble.__call__


def record(
    function,
    *args,
    streams="auto",
    threads=None,
    kernels="auto",
    outputs="fresh",
    winograd=True,
    **kwargs,
):
    """Runs any function of tensors once and returns it as a replayed plan.

    Example:
        >>> step = nimble.record(lambda x, y: (x @ y).relu(), x, y)
        >>> z = step(x, y)
    """
    options = Options(streams, threads, kernels, outputs, winograd)
    return _Recorded(function, args, kwargs, options)


class _Compiled(_OfThisProcess):
    """A model or function that prepares itself for each signature it meets."""

    def __init__(self, function, options, cache_size):
        if cache_size < 1:
            raise NimbleError(f"cache_size must be at least 1, not {cache_size}")
        self._function = function
        self._options = options
        self._cache_size = cache_size
        self._programs = OrderedDict()  # the one used last stands last
        self._lock = threading.Lock()  # of the dict, not of recording or replaying

    def __call__(self, *args, **kwargs):
        tensors, shape = tree.flatten_call(args, kwargs)
        autocast = torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu")
        key = (
            shape,
            autocast,
            torch.get_default_dtype(),
            *((t.shape, t.stride(), t.dtype, t.device) for t in tensors),
        )
        with self._lock:
            program = self._programs.get(key)
            if program is not None:
                self._programs.move_to_end(key)
        if program is not None and (program.watch.first_change() or program.engine.moved_tensor()):
            program = None
        if program is None:
            with torch.no_grad():
                program = Program(self._function, args, kwargs, self._options)
            with self._lock:
                self._programs[key] = program
                self._programs.move_to_end(key)
                if len(self._programs) > self._cache_size:
                    self._programs.popitem(last=False)
        return program.call_flat(tensors)

    @property
    def programs(self):
        """The prepared programs, the one used last at the end."""
        return list(self._programs.values())


def compile(
    model,
    *,
    streams="auto",
    threads=None,
    kernels="auto",
    outputs="fresh",
    winograd=True,
    cache_size=8,
):
    """Returns a callable that prepares itself for every new signature of its arguments.

    At most `cache_size` plans are kept; the one not used for longest goes first. A model whose
    parameters, submodules, hooks or attributes were replaced is recorded anew.

    Example:
        >>> fast = nimble.compile(model)
        >>> fast(torch.rand(1, 3, 224, 224)); fast(torch.rand(8, 3, 224, 224))
    """
    return _Compiled(model, Options(streams, threads, kernels, outputs, winograd), cache_size)
