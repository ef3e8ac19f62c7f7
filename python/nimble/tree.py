"""Structures of tensors: taken apart into a flat list and a shape, and put together again.

A shape is a nested tuple that compares equal for two structures that differ only in the values of
their tensors. Everything that is not a tensor is part of it.
"""

import copy
import dataclasses
import enum
import types
from collections import OrderedDict, defaultdict

import torch
from torch.utils import _pytree as pytree

from nimble._C import NimbleError

_CONSTANTS = (
    bool, int, float, complex, str, bytes, type(None), type(Ellipsis), slice, range, type,
    enum.Enum, torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Generator,
    types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.ModuleType,
    torch.nn.Module,
)  # fmt: skip
_TENSOR = ("tensor",)


@dataclasses.dataclass(frozen=True, eq=False)
class _Constant:
    """A value that is part of the shape: equal if it is the same object or an equal plain one."""

    value: object

    def __eq__(self, other):
        a, b = self.value, other.value
        if a is b:
            return True
        if type(a) is not type(b) or not isinstance(a, _CONSTANTS) or isinstance(a, torch.nn.Module):
            return False
        return a == b or (a != a and b != b)  # not-a-number is like itself

    def __hash__(self):
        return hash(type(self.value))

    def __repr__(self):
        return repr(self.value)


def flatten(structure):
    """Returns the tensors of a structure, in order, and its shape."""
    tensors = []
    return tensors, _shape_of(structure, tensors, [])


def unflatten(shape, tensors):
    """The inverse of `flatten`."""
    return _build(shape, iter(tensors))


def describe(shape, tensors):
    """A structure in one line, for messages: (float32[1, 3], {'mask': bool[3]})."""
    names = iter(f"{str(t.dtype).removeprefix('torch.')}{list(t.shape)}" for t in tensors)
    return _text(shape, names)


def _shape_of(value, tensors, parents):
    if isinstance(value, torch.Tensor):
        tensors.append(value)
        return _TENSOR
    if isinstance(value, _CONSTANTS):
        return ("constant", _Constant(value))
    if any(value is parent for parent in parents):
        raise NimbleError(f"a {type(value).__name__} contains itself")
    parents = [*parents, value]
    kind = type(value)
    if kind in (list, tuple, torch.Size):
        return ("sequence", kind, tuple(_shape_of(v, tensors, parents) for v in value))
    if isinstance(value, tuple) and hasattr(kind, "_fields"):
        return ("namedtuple", kind, tuple(_shape_of(v, tensors, parents) for v in value))
    if isinstance(value, tuple) and kind.__module__ == "torch.return_types":
        return ("sequence", kind, tuple(_shape_of(v, tensors, parents) for v in value))
    if kind in (dict, OrderedDict, defaultdict):
        factory = getattr(value, "default_factory", None)
        keys = tuple(value)
        children = tuple(_shape_of(value[k], tensors, parents) for k in keys)
        return ("dict", kind, tuple(map(_Constant, keys)), _Constant(factory), children)
    if isinstance(value, dict) and dataclasses.is_dataclass(value):  # transformers' ModelOutput
        keys = tuple(value)
        children = tuple(_shape_of(value[k], tensors, parents) for k in keys)
        return ("mapping dataclass", kind, keys, children)
    if kind in pytree.SUPPORTED_NODES:
        parts, context = pytree.SUPPORTED_NODES[kind].flatten_fn(value)
        children = tuple(_shape_of(v, tensors, parents) for v in parts)
        return ("registered", kind, _Constant(context), children)
    if kind.__module__ == "numpy":
        raise NimbleError(
            f"a {kind.__module__}.{kind.__qualname__} would be frozen at its first value: pass "
            "torch.as_tensor(...) of it"
        )
    return _object_shape(value, tensors, parents)


def _object_shape(value, tensors, parents):
    """Any other object: by its attributes if there are tensors in it, else as it is."""
    attributes = getattr(value, "__dict__", None)
    if not attributes:
        return ("constant", _Constant(value))
    found = []
    children = tuple(_shape_of(v, found, parents) for v in attributes.values())
    if not found:
        return ("constant", _Constant(value))
    tensors.extend(found)
    # The object itself is only a pattern to copy, not part of what must be equal.
    return ("object", type(value), tuple(attributes), children, _Pattern(value))


class _Pattern:
    """Equal to every other one."""

    def __init__(self, value):
        self.value = value

    def __eq__(self, other):
        return isinstance(other, _Pattern)

    def __hash__(self):
        return 0


def _build(shape, tensors):
    match shape:
        case ("tensor",):
            return next(tensors)
        case ("constant", constant):
            return constant.value
        case ("sequence", kind, children):
            return kind([_build(c, tensors) for c in children])
        case ("namedtuple", kind, children):
            return kind(*[_build(c, tensors) for c in children])
        case ("dict", kind, keys, factory, children):
            built = kind(factory.value) if kind is defaultdict else kind()
            for key, child in zip(keys, children):
                built[key.value] = _build(child, tensors)
            return built
        case ("mapping dataclass", kind, keys, children):
            return kind(**{k: _build(c, tensors) for k, c in zip(keys, children)})
        case ("registered", kind, context, children):
            parts = [_build(c, tensors) for c in children]
            return pytree.SUPPORTED_NODES[kind].unflatten_fn(parts, context.value)
        case ("object", _, names, children, pattern):
            built = copy.copy(pattern.value)
            for name, child in zip(names, children):
                object.__setattr__(built, name, _build(child, tensors))
            return built
    raise AssertionError(shape)


def _text(shape, names):
    match shape:
        case ("tensor",):
            return next(names)
        case ("constant", constant):
            text = repr(constant.value)
            return text if len(text) <= 40 else f"<{type(constant.value).__name__}>"
        case ("dict", _, keys, _, children):
            pairs = zip(keys, children)
            return "{" + ", ".join(f"{k.value!r}: {_text(c, names)}" for k, c in pairs) + "}"
        case ("sequence" | "namedtuple", kind, children):
            inside = ", ".join(_text(c, names) for c in children)
            return f"[{inside}]" if kind is list else f"({inside})"
        case (_, kind, *_):
            children = next(part for part in reversed(shape) if isinstance(part, tuple))
            return f"{kind.__name__}({', '.join(_text(c, names) for c in children)})"
    raise AssertionError(shape)
