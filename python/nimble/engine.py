"""The public interface: Nimble, compile and record."""

import functools
import itertools
import threading
from collections import OrderedDict

import torch

from nimble import _C, recording, tree
from nimble._C import NimbleError, Refused
from nimble.carried import Carried, Run
from nimble.live import Tape
from nimble.module_state import record_when_steady
from nimble.parts import Parts
from nimble.schedule import Passes, Schedule, shape_of_input


_MOST_STEPS_UNTIL_STEADY = 4
_MOST_PROGRAMS = 8  # of one step
_DEVICES = ("cpu", "cuda")


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
        strict: on CUDA, whether to refuse a program with ops that cannot be captured. Else they run
            between graphs; `explain()` says which, and why.
    """

    def __init__(
        self,
        streams="auto",
        threads=None,
        kernels="auto",
        outputs="fresh",
        winograd=True,
        strict=False,
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
        self.strict = bool(strict)
        self.graph_memory = None  # on CUDA: programs that have the same use it in turn
        self.keep_memory = False  # on CUDA: use none twice, which tests compare with


class _Again(Exception):
    """A run found state that it was not given, or left more than it found."""


class NotSteady(Exception):
    """A step that makes the state of its optimizer does other work than the next one."""

    def __init__(self, tensors, shape):
        self.after = tensors, shape  # what it leaves


class Program:
    """A function recorded for one structure of arguments.

    `carried`: state of a step of training, see carried.py; None: it must not have any. `entry`:
    what to take for it in the place of what is there, as `Carried.collect` gives it.
    """

    def __init__(self, function, args, kwargs, options, carried=None, entry=None):
        self._tensors, self.shape = tree.flatten_call(args, kwargs)
        self.prepared_for = tree.describe(self.shape, self._tensors)
        self._function, self._options = function, options
        self._roots = [function, *tree.modules_in(self.shape)]
        self.carried = Carried() if carried is None else carried
        if carried is not None:
            for optimizer in Parts(self._roots).optimizers:
                self.carried.add_optimizer(optimizer)
        while True:
            try:
                self._record(entry)
                break
            except _Again:
                entry = None
                if carried is None:
                    raise Refused(
                        "cannot replay this program: it leaves gradients in its parameters; "
                        "record a whole step with nimble.record or nimble.TrainStep"
                    ) from None
        self.watch = self._state.watch
        examples = [*self._tensors, *self._carried_examples]
        self.schedule = Schedule(self.engine, [shape_of_input(t) for t in examples])
        self._evaluate = self._tape.compiled()
        self._kinds = [(t.shape, t.dtype) for t in self._tensors]
        self._call_flat = self.engine.flat_call(self.watch, "list")
        del self._tensors, self._carried_examples, self._function, self._state

    def _record(self, entry):
        if self.carried.optimizers or self.carried.leaves:
            tensors = Parts(self._roots).tensors
            self.carried.add_leaves(t for _, t in tensors if t.is_leaf and t.requires_grad)
        self._carried_examples, self.entry = entry or self.carried.collect()

        def record(state, check):
            self.output_shape = None
            self._tape = None  # of the first run
            runs = itertools.count()

            def run(flat_inputs):
                results = self._run(flat_inputs, variant=min(next(runs), 1))
                check()
                return results

            return _C.Engine(
                run,
                [*self._tensors, *self._carried_examples],
                self._options.streams,
                self._options.threads,
                self._options.borrowed,
                self._options.native,
                self._options.winograd,
                self._options.strict,
                self._options.graph_memory,
                self._options.keep_memory,
                state.tensors,
                self._live_in_last_run if self.carried.optimizers else None,
            )

        known = len(self.carried.leaves), len(self.carried.optimizers)
        try:
            self.engine, self._state = record_when_steady(self._roots, record)
        except Refused:
            if (len(self.carried.leaves), len(self.carried.optimizers)) != known:
                raise _Again from None  # what was refused may be what is carried now
            raise

    def _run(self, flat_inputs, variant):
        """Runs the function, and returns its outputs and what it left in carried state."""
        count = len(self._tensors)
        inputs, state = flat_inputs[:count], flat_inputs[count:]
        args, kwargs = tree.unflatten(self.shape, inputs)
        tape = Tape(variant)
        observation = Run(self.carried, tape)
        with self.carried.replaced_by(state, self.entry):
            module = recording.module_of(self._function)
            with observation.observed(state), recording.observed(module):
                result = self._function(*args, **kwargs)
            if observation.grew:
                raise _Again
            left, exit_shape = self.carried.collect()
        self._check_arguments(args, kwargs, inputs)
        outputs, shape = tree.flatten(result)
        if exit_shape[1] != self.entry[1]:
            raise NotSteady(left, exit_shape)
        entry_slots = {id(t): slot for t, slot in zip(state, self.carried.slots(self.entry))}
        stays = [
            entry_slots.get(id(t)) == slot for t, slot in zip(left, self.carried.slots(exit_shape))
        ]
        self._last_tape = tape
        if self.output_shape is None:  # later runs are on other values
            self.output_shape = shape
            self._tape = tape
            self.exit = exit_shape
            self._outputs = len(outputs)
            self._stays = stays
        elif exit_shape != self.exit or stays != self._stays:
            raise Refused(
                "cannot replay this program: which gradients it leaves depends on values"
            )
        _C.join_outputs_from(len(outputs))
        return [*outputs, *(t for t, same in zip(left, stays) if not same)]

    def _live_in_last_run(self, flat_inputs):
        state = flat_inputs[len(self._tensors) :]
        leaves = [
            self.carried.value_of(key, state) if key[0] == "read" else self._last_tape.leaves[key]
            for key in self._tape.leaves
        ]
        return self._tape.compiled()([float(leaf) for leaf in leaves], look=False)

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

    def takes(self, tensors):
        """Whether arguments are of the recorded shapes and types."""
        return [(t.shape, t.dtype) for t in tensors] == self._kinds

    def live_values(self, state):
        """The numbers that a replay needs now; None: the program would do something else now."""
        try:
            return self._evaluate([self.carried.value_of(k, state) for k in self._tape.leaves])
        except (ArithmeticError, LookupError, TypeError):
            return None

    def call_step(self, tensors, state, live):
        """As `call_flat`, on carried state as `Carried.collect` gives it."""
        if change := self.watch.first_change():
            raise NimbleError(
                f"the model changed since it was prepared: {change} was replaced; call prepare() "
                "again"
            )
        outputs = self.engine.run([*tensors, *state], live)
        left = iter(outputs[self._outputs :])
        self.carried.put(self.exit, [None if same else next(left) for same in self._stays])
        return tree.unflatten(self.output_shape, outputs[: self._outputs])

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
        self._given = options
        self._options = Options(**options)
        self._fast = None
        self._training = None

    def prepare(self, *args, training=False, **kwargs):
        """Runs the model once on an example, plans, and returns self.

        Parameters, buffers, gradients, flags and the random state are left as they were; caches
        that the model makes in its first call are kept.

        With `training` the forward and the backward pass are planned. The engine is then called
        like the model itself, under your own loss and optimizer.
        """
        if training:
            from nimble.backend import prepare_for_training

            self._program, self._fast = None, None
            self._training = prepare_for_training(self.model, args, kwargs, self._given)
            return self
        self._training = None
        with torch.no_grad():
            self._program = Program(self.model, args, kwargs, self._options)
        self._fast = self._program.fast_call()
        return self

    @property
    def schedule(self):
        """Streams, tasks, waits, degree, memory and costs of the plan.

        After `prepare(training=True)` a `nimble.schedule.Passes`: one of each pass.
        """
        if self._training is None:
            return super().schedule
        return Passes(**{name: p.schedule for name, p in self._training.programs.items()})

    def explain(self):
        if self._training is None:
            return super().explain()
        return "\n".join(
            f"{name} pass\n{program.engine.explain()}"
            for name, program in self._training.programs.items()
        )

    def __call__(self, *args, **kwargs):
        if self._training is not None:
            return self._training(*args, **kwargs)
        if self._fast is not None and not kwargs:
            outputs = self._fast(args)
            if outputs is not NotImplemented:
                return outputs
        return self._prepared_program()(args, kwargs)


class _Recorded(_Prepared):
    """A recorded function; call it like the function itself."""

    def __init__(self, function, args, kwargs, options):
        self._function, self._options = function, options
        carried = Carried()
        entry = None
        for _ in range(_MOST_STEPS_UNTIL_STEADY):
            try:
                self._program = Program(function, args, kwargs, options, carried, entry)
                break
            except NotSteady as first:
                entry = first.after
        else:
            raise Refused(
                "cannot replay this program: its optimizer makes other state at every step"
            )
        self._fast = None
        self._step = None
        if carried.leaves or carried.optimizers:
            self._step = StepCache(function, options, carried, self._program)
        else:
            self._fast = self._program.fast_call()
        functools.update_wrapper(self, function, updated=())

    def __call__(self, *args, **kwargs):
        if self._step is not None:
            return self._step(args, kwargs)
        if self._fast is not None and not kwargs:
            outputs = self._fast(args)
            if outputs is not NotImplemented:
                return outputs
        return self._program(args, kwargs)


class StepCache:
    """A step of training, recorded for each structure of state that it meets.

    A step that makes the state of its optimizer (the first one) runs as it is.
    """

    def __init__(self, function, options, carried, program=None, renew=False):
        self._function, self._options, self._carried = function, options, carried
        self._renew = renew  # record again what was changed since, instead of an error
        self.programs = [program] if program else []  # the one used last stands last
        self._unsteady = []  # shapes of state for which the step runs as it is

    def __call__(self, args, kwargs):
        tensors, shape = tree.flatten_call(args, kwargs)
        state, state_shape = self._carried.collect()
        found = self._find(tensors, shape, state, state_shape)
        if found is None and state_shape not in self._unsteady:
            try:
                program = Program(
                    self._function, args, kwargs, self._options, self._carried,
                    (state, state_shape),
                )  # fmt: skip
            except NotSteady:
                self._unsteady.append(state_shape)
            else:
                self.programs.append(program)
                del self.programs[:-_MOST_PROGRAMS]
                found = self._find(tensors, shape, state, state_shape)
        if found is None:
            return _detached(self._function(*args, **kwargs))
        program, live = found
        return program.call_step(tensors, state, live)

    def _find(self, tensors, shape, state, state_shape):
        if self._renew:
            self.programs = [
                program
                for program in self.programs
                if not (program.watch.first_change() or program.engine.moved_tensor())
            ]
        for program in reversed(self.programs):
            if program.shape != shape or program.entry != state_shape:
                continue
            if self._renew and not program.takes(tensors):
                continue
            live = program.live_values(state)
            if live is not None:
                return program, live
        return None


def _detached(structure):
    tensors, shape = tree.flatten(structure)
    return tree.unflatten(shape, [t.detach() for t in tensors])


def record(
    function,
    *args,
    streams="auto",
    threads=None,
    kernels="auto",
    outputs="fresh",
    winograd=True,
    strict=False,
    **kwargs,
):
    """Runs any function of tensors once and returns it as a replayed plan.

    Example:
        >>> step = nimble.record(lambda x, y: (x @ y).relu(), x, y)
        >>> z = step(x, y)
    """
    options = Options(streams, threads, kernels, outputs, winograd, strict)
    return _Recorded(function, args, kwargs, options)


class _Compiled(_OfThisProcess):
    """A model or function that prepares itself for each signature it meets."""

    def __init__(self, function, options, cache_size):
        if cache_size < 1:
            raise NimbleError(f"cache_size must be at least 1, not {cache_size}")
        self._function = function
        self._options = options
        self._options.graph_memory = _C.GraphMemory()
        self._cache_size = cache_size
        self._programs = OrderedDict()  # the one used last stands last
        self._lock = threading.Lock()  # of the dict, not of recording or replaying

    def __call__(self, *args, **kwargs):
        tensors, shape = tree.flatten_call(args, kwargs)
        key = (
            shape,
            *(torch.is_autocast_enabled(d) and torch.get_autocast_dtype(d) for d in _DEVICES),
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

    def forget_programs(self):
        """Frees their memory; a later call prepares again."""
        with self._lock:
            self._programs.clear()


def compile(
    model,
    *,
    streams="auto",
    threads=None,
    kernels="auto",
    outputs="fresh",
    winograd=True,
    strict=False,
    cache_size=8,
):
    """Returns a callable that prepares itself for every new signature of its arguments.

    At most `cache_size` plans are kept; the one not used for longest goes first. A model whose
    parameters, submodules, hooks or attributes were replaced is recorded anew.

    Example:
        >>> fast = nimble.compile(model)
        >>> fast(torch.rand(1, 3, 224, 224)); fast(torch.rand(8, 3, 224, 224))
    """
    options = Options(streams, threads, kernels, outputs, winograd, strict)
    return _Compiled(model, options, cache_size)
