"""What a step of training finds in Python objects and leaves there.

These are the gradients of tensors and the states of optimizers. They are passed to the recorded
program as inputs behind the user's, and what a step puts in their place is taken from its outputs.
So it does not matter where they are, or whether they were replaced since the last step.
"""

import contextlib
import threading
from collections import defaultdict

import torch
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from nimble import _C
from nimble._C import Refused
from nimble.live import Following, Hyperparameters, holds_numbers, read_after_adding

_PLAIN = (bool, int, float, complex, str, type(None))


class _Same:
    """An object, compared by identity."""

    def __init__(self, value):
        self.value = value

    def __eq__(self, other):
        return isinstance(other, _Same) and self.value is other.value

    __hash__ = None


class Carried:
    """Tensors whose gradients a step may leave, and optimizers that it may use."""

    def __init__(self, leaves=(), optimizers=()):
        self.leaves = []
        self.optimizers = []
        for optimizer in optimizers:
            self.add_optimizer(optimizer)
        self.add_leaves(leaves)

    def add_leaves(self, tensors):
        known = {id(leaf) for leaf in self.leaves}
        for tensor in tensors:
            if id(tensor) not in known:
                known.add(id(tensor))
                self.leaves.append(tensor)

    def add_optimizer(self, optimizer):
        if all(known is not optimizer for known in self.optimizers):
            self.optimizers.append(optimizer)
            self.add_leaves(p for group in optimizer.param_groups for p in group["params"])

    def collect(self):
        """The tensors that are there now, and everything else that a step could depend on."""
        tensors = []
        grads = []
        for leaf in self.leaves:
            grad = leaf.grad
            grads.append((leaf.requires_grad, grad is not None))
            if grad is not None:
                tensors.append(grad)
        return tensors, (
            tuple(grads),
            tuple([_state_of(optimizer, tensors) for optimizer in self.optimizers]),
        )

    def slots(self, shape):
        """Where each of the tensors belongs that `collect` gives."""
        slots = [("gradient", i) for i, (_, has_grad) in enumerate(shape[0]) if has_grad]
        for o, (_, per_parameter) in enumerate(shape[1]):
            for p, entry in enumerate(per_parameter):
                slots += [(o, p, key) for key, is_tensor, _ in entry if is_tensor]
        return slots

    @contextlib.contextmanager
    def replaced_by(self, tensors, shape):
        """Puts other tensors there for a while; gives a list that is what was put."""
        grads = [leaf.grad for leaf in self.leaves]
        states = [optimizer.state for optimizer in self.optimizers]
        try:
            rest = iter(tensors)
            for leaf, (_, has_grad) in zip(self.leaves, shape[0]):
                leaf.grad = next(rest) if has_grad else None
            for optimizer, (_, per_parameter) in zip(self.optimizers, shape[1]):
                optimizer.state = _new_state(optimizer, per_parameter, rest)
            yield
        finally:
            for leaf, grad in zip(self.leaves, grads):
                leaf.grad = grad
            for optimizer, state in zip(self.optimizers, states):
                optimizer.state = state

    def put(self, shape, tensors):
        """Leaves what a step leaves; `tensors[i]` None: what is there stays."""
        rest = iter(tensors)
        for leaf, (_, has_grad) in zip(self.leaves, shape[0]):
            if not has_grad:
                leaf.grad = None
            elif (grad := next(rest)) is not None:
                leaf.grad = grad
        for optimizer, (_, per_parameter) in zip(self.optimizers, shape[1]):
            for parameter, state in zip(_parameters_of(optimizer), per_parameter):
                for key, is_tensor, _ in state:
                    if is_tensor and (tensor := next(rest)) is not None:
                        optimizer.state[parameter][key] = tensor

    def value_of(self, key, tensors):
        """The value of a leaf of a tape; `tensors` as `collect` gives them."""
        if key[0] == "read":
            return read_after_adding(tensors[key[1]], key[2])
        optimizer, group, name, element = key
        value = self.optimizers[optimizer].param_groups[group][name]
        return value if element is None else value[element]


def _parameters_of(optimizer):
    return [p for group in optimizer.param_groups for p in group["params"]]


def _state_of(optimizer, tensors):
    """Adds the tensors of an optimizer's state; returns the rest, and what its groups say."""
    states = optimizer.state
    groups = []
    per_parameter = []
    for group in optimizer.param_groups:
        parameters = group["params"]
        facts = [
            (k, v if isinstance(v, _PLAIN) else _Same(v))
            for k, v in group.items()
            if k != "params" and not holds_numbers(v)
        ]
        groups.append((tuple(map(id, parameters)), tuple(facts)))
        for parameter in parameters:
            entry = []
            for key, value in states.get(parameter, {}).items():
                if isinstance(value, torch.Tensor):
                    entry.append((key, True, None))
                    tensors.append(value)
                elif isinstance(value, _PLAIN):
                    entry.append((key, False, value))
                else:
                    raise Refused(
                        f"cannot replay this program: {type(optimizer).__name__} keeps a "
                        f"{type(value).__name__} in its state '{key}'; only tensors and numbers "
                        "are followed"
                    )
            per_parameter.append(tuple(entry))
    return tuple(groups), tuple(per_parameter)


def _new_state(optimizer, per_parameter, tensors):
    state = defaultdict(dict)
    for parameter, entry in zip(_parameters_of(optimizer), per_parameter):
        if entry:
            state[parameter] = {
                key: next(tensors) if is_tensor else value for key, is_tensor, value in entry
            }
    return state


class Run:
    """One run of a step under observation: live numbers, and what was not known to be carried.

    Attributes:
        grew: something was found that `carried` did not have; it has it now.
    """

    def __init__(self, carried, tape):
        self.carried, self.tape = carried, tape
        self.grew = False
        self._thread = threading.get_ident()
        self._numbers = []  # hyperparameters as they were
        self._shown = []  # what stands in their place
        self._open = []  # of optimizers inside of step()
        self._originals = []  # of what was found: how to put it back
        self._before = {}  # id of a carried tensor -> (index, value or None)

    @contextlib.contextmanager
    def observed(self, tensors):
        self._before = {
            id(t): (i, _C.peek(t)) for i, t in enumerate(tensors) if t.numel() == 1
        }
        pre = register_optimizer_step_pre_hook(self._before_step)
        post = register_optimizer_step_post_hook(self._after_step)
        try:
            with _noticing(self):
                _C.carry_gradients(self.carried.leaves)
                for optimizer in self.carried.optimizers:
                    self._remember(optimizer)
                yield
        finally:
            pre.remove()
            post.remove()
            while self._open:
                self._open.pop().__exit__(None, None, None)
            self._put_numbers_back()
            for undo in reversed(self._originals):
                undo()
            for group, numbers in self._numbers:
                group.update(numbers)

    def _here(self):
        return threading.get_ident() == self._thread

    def _remember(self, optimizer):
        for group in optimizer.param_groups:
            numbers = {k: v for k, v in group.items() if k != "params" and holds_numbers(v)}
            self._numbers.append((group, numbers))
        self._shown.append(Hyperparameters(self.tape, optimizer, self._number_of(optimizer)))

    def _put_numbers_back(self):
        while self._shown:
            if changed := self._shown.pop().restore():
                _C.refuse_recording(
                    "a step that changes the hyperparameters of its optimizer",
                    f"'{changed}' changes in Python; call the learning-rate scheduler outside "
                    "of the step",
                )

    def found_leaves(self, leaves):
        known = {id(leaf) for leaf in self.carried.leaves}
        for leaf in leaves:
            if id(leaf) not in known and _C.existed_before_recording(leaf):
                self.grew = True
                self._originals.append(lambda leaf=leaf, grad=leaf.grad: setattr(leaf, "grad", grad))
                self.carried.add_leaves([leaf])

    def found_optimizer(self, optimizer):
        if any(known is optimizer for known in self.carried.optimizers):
            return
        self.grew = True
        self.found_leaves(_parameters_of(optimizer))
        state = optimizer.state
        self._originals.append(lambda: setattr(optimizer, "state", state))
        optimizer.state = defaultdict(dict, {p: dict(entry) for p, entry in state.items()})
        self.carried.add_optimizer(optimizer)
        self._remember(optimizer)

    def _before_step(self, optimizer, args, kwargs):
        if not self._here():
            return
        self.found_optimizer(optimizer)
        self._open.append(Following(self.tape, self._key_of))
        self._open[-1].__enter__()

    def _after_step(self, optimizer, args, kwargs):
        if self._here() and self._open:
            self._open.pop().__exit__(None, None, None)

    def _number_of(self, optimizer):
        return next(i for i, o in enumerate(self.carried.optimizers) if o is optimizer)

    def _key_of(self, tensor):
        """What a number read from a carried tensor is: its value before the step, and some more."""
        known = self._before.get(id(tensor))
        if known is None:
            return None
        index, before = known
        return "read", index, _C.peek(tensor) - before


def leaves_below(roots):
    """The tensors that a backward pass from these would leave gradients in."""
    roots = [roots] if isinstance(roots, torch.Tensor) else list(roots)
    found = [t for t in roots if t.grad_fn is None and t.requires_grad]
    nodes = [t.grad_fn for t in roots if t.grad_fn is not None]
    seen = set(nodes)
    while nodes:
        node = nodes.pop()
        if hasattr(node, "variable"):
            found.append(node.variable)
        for following, _ in node.next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                nodes.append(following)
    return found


def _noticed_backward(tensors, *args, **kwargs):
    if run := _current_run():
        run.found_leaves(leaves_below(tensors))
    return _originals["backward"](tensors, *args, **kwargs)


def _noticed_optimizer(self, *args, **kwargs):
    if run := _current_run():
        run.found_optimizer(self)
    return _originals["optimizer"](self, *args, **kwargs)


def _noticed_module(self, *args, **kwargs):
    if run := _current_run():
        run.found_leaves(self.parameters())
    return _originals["module"](self, *args, **kwargs)


def _noticed_get_state():
    if _current_run():
        return torch.ops.nimble.generator_state()
    return _originals["get state"]()


def _noticed_set_state(state):
    if _current_run():
        torch.ops.nimble.set_generator_state(state)
    else:
        _originals["set state"](state)


_NOTICED = {
    "backward": (torch.autograd, "backward", _noticed_backward),
    "optimizer": (torch.optim.Optimizer, "zero_grad", _noticed_optimizer),
    "module": (torch.nn.Module, "zero_grad", _noticed_module),
    "get state": (torch, "get_rng_state", _noticed_get_state),
    "set state": (torch, "set_rng_state", _noticed_set_state),
}
_originals = {}
_lock = threading.Lock()
_users = 0
_runs = threading.local()


def _current_run():
    return getattr(_runs, "current", None)


@contextlib.contextmanager
def _noticing(run):
    """Tells the run before gradients change in a way that is not an op.

    The random generator's state is saved and restored by ops meanwhile.
    """
    global _users
    with _lock:
        if _users == 0:
            for name, (owner, attribute, noticed) in _NOTICED.items():
                _originals[name] = vars(owner)[attribute]
                setattr(owner, attribute, noticed)
        _users += 1
    outer, _runs.current = _current_run(), run
    try:
        yield
    finally:
        _runs.current = outer
        with _lock:
            _users -= 1
            if _users == 0:
                for name, (owner, attribute, _) in _NOTICED.items():
                    setattr(owner, attribute, _originals[name])
