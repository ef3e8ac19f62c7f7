"""Running the user's program once, so that the engine sees what it does."""

import contextlib
import os
import sys
import threading

import torch
import torch.utils.dlpack
from torch.nn.modules import module as nn_module
from torch.utils.checkpoint import set_checkpoint_early_stop

from nimble import _C
from nimble._C import Refused

# What hands a tensor's values to code the recorder cannot see.
_VALUE_READERS = [
    (torch.Tensor, "tolist"),
    (torch.Tensor, "numpy"),
    (torch.Tensor, "__array__"),
    (torch.Tensor, "__dlpack__"),
    (torch.Tensor, "__deepcopy__"),
    (torch.Tensor, "__reduce_ex__"),
    (torch, "to_dlpack"),
    (torch.utils.dlpack, "to_dlpack"),
]
# The same, except that the framework itself does not use them to read.
_MEMORY_READERS = [
    (torch.Tensor, "data_ptr"),
    (torch.Tensor, "storage"),
    (torch.Tensor, "untyped_storage"),
]
_FRAMEWORK = os.path.dirname(torch.__file__) + os.sep

_patch_lock = threading.Lock()
_patch_users = 0
_originals = []
_recording_here = threading.local()


def _refusing(owner, name, framework_may):
    original = getattr(owner, name)
    what = f"{owner.__name__}.{name}"

    def read_values(*args, **kwargs):
        if getattr(_recording_here, "active", False):
            caller = sys._getframe(1).f_code.co_filename
            if not (framework_may and caller.startswith(_FRAMEWORK)):
                why = "it hands values of a tensor to code that is not replayed"
                _C.refuse_recording(what, why)
                raise Refused(f"cannot replay {what}: {why}")
        return original(*args, **kwargs)

    return read_values


def _patch():
    readers = [(*r, False) for r in _VALUE_READERS] + [(*r, True) for r in _MEMORY_READERS]
    for owner, name, framework_may in readers:
        _originals.append((owner, name, vars(owner).get(name)))
        setattr(owner, name, _refusing(owner, name, framework_may))


def _unpatch():
    while _originals:
        owner, name, original = _originals.pop()
        if original is None:  # it is inherited
            delattr(owner, name)
        else:
            setattr(owner, name, original)


@contextlib.contextmanager
def _watch_value_readers():
    """Notices, on this thread, ways to read a tensor that are not framework ops."""
    global _patch_users
    with _patch_lock:
        if _patch_users == 0:
            _patch()
        _patch_users += 1
    _recording_here.active = True
    try:
        yield
    finally:
        _recording_here.active = False
        with _patch_lock:
            _patch_users -= 1
            if _patch_users == 0:
                _unpatch()


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
    # A recomputation that stops early does so by an exception inside of an op.
    with _watch_value_readers(), _name_modules(root), set_checkpoint_early_stop(False):
        yield


def module_of(function):
    """The module that a program is, or None."""
    owner = getattr(function, "__self__", function)
    return owner if isinstance(owner, torch.nn.Module) else None
