"""The state of a program that Python sees: a recorded run must leave it as it was.

Values of tensors are not looked at here: the recorder follows writes to memory.
"""

import ctypes

import torch

from nimble import _C
from nimble._C import Refused
from nimble.parts import Parts

_PLAIN_TENSORS = (torch.Tensor, torch.nn.Parameter)


class _WarmedUp(Exception):
    """The first run changed what the next one finds, as a run that fills a cache does."""

    def __init__(self, memory):
        self.memory = memory


class ModuleState:
    """What the parts of a program are now.

    Attributes:
        watch: notices later changes.
        tensors: (name, tensor) of all of them.
    """

    def __init__(self, roots):
        parts = Parts(roots)
        self.tensors = parts.tensors
        self.watch = _watch_of(parts)
        self._classes = [(module, type(module)) for module in parts.modules]
        self._dicts = [(d, dict(d), loose) for d, _, _, loose in parts.dicts]
        self._sequences = [(s, list(s), loose) for s, _, loose in parts.sequences]
        self._globals = [(d, key, d[key]) for d, key in parts.global_variables]
        self._cells = [(cell, _contents(cell)) for cell, _ in parts.cells]
        facts = [(name, t, facts_of(t)) for name, t in parts.tensors]
        self._facts = [(*f, _kept(f[1])) for f in facts if f[2] is not None]

    def first_change(self):
        """What a run did to the state, in words, or empty."""
        if replaced := self.watch.first_change():
            return f"replaces {replaced}"
        for name, tensor, facts, _ in self._facts:
            if facts_of(tensor) != facts:
                return f"changes the shape, the memory or the gradient of '{name}'"
        return ""

    def memory(self):
        """The bytes of all tensors, read without an op."""
        return [_bytes_of(tensor) for _, tensor in self.tensors]

    def restore(self):
        """Puts everything back that is not what it was."""
        for module, kind in self._classes:
            if type(module) is not kind:
                module.__class__ = kind
        for container, items, loose in self._dicts:
            if not loose or _any_counts(*container.values(), *items.values()):
                _restore_dict(container, items)
        for container, items, loose in self._sequences:
            if not _identical(container, items) and (not loose or _any_counts(*container, *items)):
                container.clear()
                (container.update if isinstance(container, set) else container.extend)(items)
        for variables, key, value in self._globals:
            if _any_counts(value, variables.get(key)) and variables.get(key) is not value:
                variables[key] = value
        for cell, contents in self._cells:
            if _any_counts(contents, _contents(cell)) and _contents(cell) is not contents:
                cell.cell_contents = contents
        for _, tensor, facts, kept in self._facts:
            if facts_of(tensor) != facts:
                tensor.data, tensor.grad = kept
                tensor.requires_grad_(facts[-1])


def record_when_steady(roots, record):
    """Returns what `record` does, and the state of the program that it was recorded in.

    `record(state, check)` runs the program and then calls `check()`. A run that changes the state
    may be the first of its kind, which fills a cache: then the next one is recorded, and must
    change nothing. If it does, or anything else fails, all is put back.
    """
    before = ModuleState(roots)

    def check_first():
        if before.first_change():
            raise _WarmedUp(before.memory())

    try:
        state, recorded = before, None
        try:
            recorded = record(before, check_first)
        except _WarmedUp as run:
            written = _written_by(run, before)
        if recorded is None:
            state = ModuleState(roots)
            recorded = record(state, lambda: _check_steady(state, written))
        _check_steady(state, [])  # preparing runs the program on other values, too
        return recorded, state
    except BaseException:
        before.restore()
        raise


def _written_by(run, state):
    """What the warm-up wrote: (name, tensor, the bytes that the recorder has put back)."""
    return [
        (name, tensor, now)
        for (name, tensor), then, now in zip(state.tensors, run.memory, state.memory())
        if then != now
    ]


def _check_steady(state, written):
    if change := state.first_change():
        raise Refused(
            f"cannot replay this program: it {change} at every call, which a replay cannot "
            "repeat; update it in place (copy_) instead"
        )
    for name, tensor, before in written:
        if _bytes_of(tensor) == before:
            raise Refused(
                f"cannot replay this program: its first call writes '{name}' and later ones do "
                "not; call the model once before you prepare it"
            )


def facts_of(tensor):
    """What an op on other values of the same tensor leaves as it is."""
    if type(tensor) not in _PLAIN_TENSORS or tensor.layout is not torch.strided or tensor.is_nested:
        return None
    return (
        tensor.shape,
        tensor.stride(),
        tensor.dtype,
        tensor.data_ptr(),
        id(tensor.grad) if tensor.is_leaf else None,
        tensor.requires_grad,
    )


def _kept(tensor):
    """What `facts_of` speaks of, kept alive: memory and gradient."""
    return tensor.data, tensor.grad if tensor.is_leaf else None


def _bytes_of(tensor):
    if facts_of(tensor) is None or tensor.device.type != "cpu":
        return b""
    storage = tensor.untyped_storage()
    return ctypes.string_at(storage.data_ptr(), storage.nbytes())


def _contents(cell):
    try:
        return cell.cell_contents
    except ValueError:  # the variable has no value yet
        return None


def _watch_of(parts):
    watch = _C.ModuleWatch()
    for entry in parts.dicts:
        watch.add_dict(*entry)
    for entry in parts.sequences:
        watch.add_sequence(*entry)
    for entry in parts.global_variables:
        watch.add_global(*entry)
    for entry in parts.cells:
        watch.add_cell(*entry)
    for name, tensor in parts.tensors:
        watch.add_tensor(tensor, name)
    return watch


def _any_counts(*values):
    return any(isinstance(value, (torch.Tensor, torch.nn.Module)) for value in values)


def _identical(container, items):
    return len(container) == len(items) and all(a is b for a, b in zip(container, items))


def _restore_dict(container, items):
    if not _identical(container, items):
        container.clear()
        container.update(items)
    for key, value in items.items():
        if container[key] is not value:
            container[key] = value
