"""What a program is made of, as far as Python shows it: modules, their attributes, tensors."""

import contextlib
import enum
import functools
import types
from collections import deque

import torch

# Attributes that torch.nn.Module makes for itself; those that matter are looked at by name.
_OF_EVERY_MODULE = frozenset(torch.nn.Module().__dict__)
_HOOKS = ("_forward_hooks", "_forward_pre_hooks")
_PLAIN = frozenset(
    [bool, int, float, complex, str, bytes, type(None), torch.Size, torch.dtype, torch.device, type]
)
_DEEPEST = 4  # containers in containers
_LARGEST = 256  # entries of a container that has neither tensors nor modules


class Parts:
    """Where the state of a program is kept.

    What belongs to a module is followed strictly; of other objects and of variables (`loose`) only
    tensors and modules count.

    Attributes:
        modules: all modules.
        dicts: (dict, name, ordered, loose)
        sequences: (list, set or deque, name, loose)
        global_variables: (dict, key)
        cells: (cell, name)
        tensors: (name, tensor)
        optimizers: all optimizers.
    """

    def __init__(self, roots):
        self.modules = []
        self.dicts = []
        self.sequences = []
        self.global_variables = []
        self.cells = []
        self.tensors = []
        self.optimizers = []
        self._seen = set()
        for root in roots:
            self._add_value(root, "", True, _DEEPEST)

    def _is_new(self, value):
        known = id(value) in self._seen
        self._seen.add(id(value))
        return not known

    def _add_value(self, value, name, loose, depth):
        kind = type(value)
        if kind in _PLAIN or isinstance(value, (enum.Enum, types.ModuleType)):
            return
        if isinstance(value, torch.Tensor):
            if self._is_new(value):
                self.tensors.append((name, value))
        elif isinstance(value, torch.nn.Module):
            self._add_module(value, name)
        elif isinstance(value, torch.optim.Optimizer):
            if self._is_new(value):
                self.optimizers.append(value)
        elif depth > 0 and self._is_new(value):
            if isinstance(value, (types.FunctionType, types.MethodType, functools.partial)):
                self._add_function(value, name, depth - 1)
            elif isinstance(value, (list, tuple, set, deque, dict)):
                self._add_container(value, name, loose, depth - 1)
            elif not kind.__module__.startswith(("torch.", "builtins")):
                self._add_attributes(value, name, depth - 1)

    def _add_module(self, module, path):
        if not self._is_new(module):
            return
        prefix = f"{path}." if path else ""
        self.modules.append(module)
        if isinstance(module, torch.jit.ScriptModule):  # its registries are not in Python
            for name, tensor in (*module.named_parameters(), *module.named_buffers()):
                self.tensors.append((prefix + name, tensor))
            return
        attributes = module.__dict__
        self.dicts.append((attributes, path, False, False))
        for registry in (attributes["_parameters"], attributes["_buffers"]):
            self.dicts.append((registry, path, False, False))
            for name, tensor in registry.items():
                if tensor is not None and self._is_new(tensor):
                    self.tensors.append((prefix + name, tensor))
        for name in _HOOKS:
            self.dicts.append((attributes[name], prefix + name, True, False))
        for name, value in attributes.items():
            if name not in _OF_EVERY_MODULE and type(value) not in _PLAIN:
                self._add_value(value, prefix + name, False, _DEEPEST)
        children = attributes["_modules"]
        self.dicts.append((children, path, True, False))
        for name, child in children.items():
            if child is not None:
                self._add_module(child, prefix + name)

    def _add_container(self, container, name, loose, depth):
        is_dict = isinstance(container, dict)
        values = list(container.values() if is_dict else container)
        small = len(values) <= _LARGEST
        if not small:
            values = [v for v in values if isinstance(v, (torch.Tensor, torch.nn.Module))]
        if not small and not values:
            return
        if is_dict:
            self.dicts.append((container, name, False, loose))
        elif not isinstance(container, tuple):
            self.sequences.append((container, name, loose))
        for value in values:
            self._add_value(value, name, loose, depth)

    def _add_attributes(self, value, name, depth):
        attributes = getattr(value, "__dict__", None)
        if not isinstance(attributes, dict):
            return
        prefix = f"{name}." if name else ""
        self.dicts.append((attributes, name, False, True))
        for key, attribute in list(attributes.items()):
            self._add_value(attribute, f"{prefix}{key}", True, depth)

    def _add_function(self, function, name, depth):
        if isinstance(function, functools.partial):
            for value in (function.func, *function.args, *function.keywords.values()):
                self._add_value(value, name, True, depth)
            return
        if isinstance(function, types.MethodType):
            self._add_value(function.__self__, name, True, depth + 1)
            if not isinstance(function.__self__, torch.nn.Module):
                self._add_value(function.__func__, name, True, depth + 1)
            return
        if function.__module__ and function.__module__.partition(".")[0] == "torch":
            return
        for value in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
            self._add_value(value, name, True, depth)
        for variable, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
            self.cells.append((cell, variable))
            with contextlib.suppress(ValueError):  # the variable has no value yet
                self._add_value(cell.cell_contents, variable, True, depth)
        for variable in _names_in(function.__code__) & function.__globals__.keys():
            value = function.__globals__[variable]
            self.global_variables.append((function.__globals__, variable))
            self._add_value(value, variable, True, depth)


def _names_in(code):
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= _names_in(constant)
    return names
