"""Running the user's program once, so that the engine sees what it does."""

import contextlib
import threading

import torch
from torch.nn.modules import module as nn_module

from nimble import _C

# What hands a tensor's values to code the recorder cannot see.
_VALUE_READERS = ("tolist", "numpy", "__array__", "__dlpack__")

_patch_lock = threading.Lock()
_patch_users = 0
_originals = {}
_recording_here = threading.local()


def _refusing(name, original):
    def read_values(self, *args, **kwargs):
        if getattr(_recording_here, "active", False):
            _C.refuse_recording(
                f"Tensor.{name}", "it hands values of a tensor to code that is not replayed"
            )
        return original(self, *args, **kwargs)

    return read_values


@contextlib.contextmanager
def _watch_value_readers():
    """Notices, on this thread, ways to read a tensor that are not framework ops."""
    global _patch_users
    with _patch_lock:
        if _patch_users == 0:
            for name in _VALUE_READERS:
                _originals[name] = torch.Tensor.__dict__.get(name)
                setattr(torch.Tensor, name, _refusing(name, getattr(torch.Tensor, name)))
        _patch_users += 1
    _recording_here.active = True
    try:
        yield
    finally:
        _recording_here.active = False
        with _patch_lock:
            _patch_users -= 1
            if _patch_users == 0:
                for name, original in _originals.items():
                    if original is None:
                        delattr(torch.Tensor, name)
                    else:
                        setattr(torch.Tensor, name, original)


@contextlib.contextmanager
def _name_modules(root):
    """Tells the recorder which module the program is in."""
    names = {} if root is None else {id(m): name for name, m in root.named_modules()}
    thread = threading.get_ident()
    path = []

    def enter(module, _inputs):
        if threading.get_ident() != thread:
            return
        name = names.get(id(module))
        if name is None:
            name = ".".join(filter(None, [path[-1] if path else "", type(module).__name__]))
        path.append(name)
        _C.enter_module(name)

    def leave(module, _inputs, _output):
        if threading.get_ident() == thread and path:
            path.pop()
            _C.leave_module()

    before = nn_module.register_module_forward_pre_hook(enter)
    after = nn_module.register_module_forward_hook(leave, always_call=True)
    try:
        yield
    finally:
        before.remove()
        after.remove()


@contextlib.contextmanager
def observed(root=None):
    """What has to be in place while the program runs under the recorder."""
    with _watch_value_readers(), _name_modules(root):
        yield


def named_tensors(module):
    """Parameters and buffers with their names, for messages and to notice that they move."""
    named = list(module.named_parameters(remove_duplicate=False))
    return [*named, *module.named_buffers(remove_duplicate=False)]


def watch_module(module):
    """Notices parameters, buffers, submodules and train/eval flags that are replaced."""
    watch = _C.ModuleWatch()
    for path, part in module.named_modules():
        prefix = f"{path}." if path else ""
        for registry in (part._parameters, part._buffers, part._modules):
            for name in registry:
                watch.add(registry, name, f"'{prefix}{name}'")
        watch.add(part.__dict__, "training", f"the train/eval flag of '{path or 'the model'}'")
        for name, value in part.__dict__.items():
            if isinstance(value, torch.Tensor):
                watch.add(part.__dict__, name, f"'{prefix}{name}'")
    return watch
