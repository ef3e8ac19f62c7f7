"""Structures of tensors: taken apart into a flat list and a shape, and put together again.

A shape is a nested tuple that compares equal for two structures that differ only in the values of
their tensors. Everything that is not a tensor is part of it.
"""

import copy
import dataclasses
import enum
import functools
import types
from collections import OrderedDict, defaultdict

import torch
from torch.utils import _pytree as pytree

from nimble._C import NimbleError

_CONSTANTS = (
    bool, int, float, complex, str, bytes, type(None), type(Ellipsis), slice, range, type,
    enum.Enum, torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Generator,
    types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.ModuleType,
    functools.partial, torch.nn.Module,
)  # fmt: skip
_COMMON_CONSTANTS = frozenset([bool, int, float, str, type(None)])
_SEQUENCES = frozenset([list, tuple, torch.Size])
_DICTS = frozenset([dict, OrderedDict, defaultdict])
_TENSOR = ("tensor",)


class _Constant:
    """A value that is part of the shape: equal if it is the same object or an equal plain one."""

    __slots__ = ("value",)

    def __init__(self, value):
        self.value = value

    def __eq__(self, other):
        a, b = self.value, other.value
        if a is b:
            return True
        if type(a) is not type(b) or isinstance(a, torch.nn.Module):
            return False
        if isinstance(a, (float, complex)):  # 0.0 is not -0.0, and not-a-number is like itself
            return repr(a) == repr(b)
        return type(a).__hash__ is not None and bool(a == b)

    def __hash__(self):
        return hash(self.value) if isinstance(self.value, (int, str)) else hash(type(self.value))

    def __repr__(self):
        return repr(self.value)


def flatten(structure):
    """Returns the tensors of a structure, in order, and its shape."""
    tensors = []
    return tensors, _shape_of(structure, tensors, ())


def flatten_call(args, kwargs):
    """`flatten((args, kwargs))`, where the order of keywords does not matter."""
    return flatten((args, dict(sorted(kwargs.items())) if len(kwargs) > 1 else kwargs))


def modules_in(shape):
    """The modules among the constants of a shape."""
    if isinstance(shape, _Constant):
        return [shape.value] if isinstance(shape.value, torch.nn.Module) else []
    parts = shape if isinstance(shape, (tuple, frozenset)) else ()
    return [module for part in parts for module in modules_in(part)]


def unflatten(shape, tensors):
    """The inverse of `flatten`."""
    return _build(shape, iter(tensors))


def describe(shape, tensors):
    """A structure in one line, for messages: (float32[1, 3], {'mask': bool[3]})."""
    names = iter(f"{str(t.dtype).removeprefix('torch.')}{list(t.shape)}" for t in tensors)
    return _text(shape, names)


def _shape_of(value, tensors, parents):
    kind = type(value)
    if kind in _COMMON_CONSTANTS:
        return ("constant", _Constant(value))
    if isinstance(value, torch.Tensor):
        tensors.append(value)
        return _TENSOR
    is_sequence = kind in _SEQUENCES
    is_dict = kind in _DICTS
    if not (is_sequence or is_dict) and isinstance(value, _CONSTANTS):
        return ("constant", _Constant(value))
    if any([value is parent for parent in parents]):
        return _shape_of_cycle(value)
    parents = (*parents, value)
    if is_sequence:
        return ("sequence", kind, tuple([_shape_of(v, tensors, parents) for v in value]))
    if is_dict:
        factory = value.default_factory if kind is defaultdict else None
        keys = tuple([_Constant(key) for key in value])
        children = tuple([_shape_of(v, tensors, parents) for v in value.values()])
        return ("dict", kind, keys, _Constant(factory), children)
    if kind in (set, frozenset):
        if any(isinstance(v, torch.Tensor) for v in value):
            raise NimbleError("a set of tensors has no order: pass a list")
        return ("set", kind, frozenset(map(_Constant, value)))
    if isinstance(value, tuple) and hasattr(kind, "_fields"):
        return ("namedtuple", kind, tuple(_shape_of(v, tensors, parents) for v in value))
    if isinstance(value, tuple):  # torch.return_types
        return ("sequence", kind, tuple(_shape_of(v, tensors, parents) for v in value))
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


def _shape_of_cycle(value):
    if isinstance(value, (list, tuple, dict)):
        raise NimbleError(f"a {type(value).__name__} contains itself")
    return ("constant", _Constant(value))


def _object_shape(value, tensors, parents):
    """Any other object: by its attributes, and by its items if it is a kind of list or dict."""
    attributes = _attributes_of(value)
    items = list(value) if isinstance(value, list) else []
    items = dict(value) if isinstance(value, dict) else items
    if not attributes and not items:
        return ("constant", _Constant(value))
    count = len(tensors)
    children = (_shape_of(items, tensors, parents), _shape_of(attributes, tensors, parents))
    # The object itself is only a pattern, not part of what must be equal.
    return ("object", type(value), children, len(tensors) > count, _Pattern(value))


def _attributes_of(value):
    if dataclasses.is_dataclass(value):
        return {f.name: getattr(value, f.name) for f in dataclasses.fields(value)} | _vars_of(value)
    return _vars_of(value)


def _vars_of(value):
    return dict(getattr(value, "__dict__", None) or {})


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
        case ("set", kind, constants):
            return kind(constant.value for constant in constants)
        case ("object", _, _, False, pattern):
            return pattern.value
        case ("object", _, (items, attributes), True, pattern):
            return _copy_with(pattern.value, _build(items, tensors), _build(attributes, tensors))
    raise AssertionError(shape)


def _copy_with(value, items, attributes):
    built = copy.copy(value)
    if isinstance(built, list):
        built[:] = items
    elif isinstance(built, dict):
        dict.update(built, items)
    for name, attribute in attributes.items():
        object.__setattr__(built, name, attribute)
    return built


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
        case ("set", _, constants):
            return "{" + ", ".join(sorted(map(repr, constants))) + "}"
        case ("object", kind, children, *_):
            inside = [_text(child, names) for child in children]
            return f"{kind.__name__}({', '.join(t for t in inside if t not in ('[]', '{}'))})"
        case (_, kind, *_):
            children = next(part for part in reversed(shape) if isinstance(part, tuple))
            return f"{kind.__name__}({', '.join(_text(c, names) for c in children)})"
    raise AssertionError(shape)
