"""Numbers that live in Python and are read at every step: learning rates, betas, step counts.

While a step is recorded, an optimizer finds `Live` numbers in the place of its hyperparameters.
They write down the arithmetic that is done with them, and in which arguments of which ops it ends.
A replay evaluates what was written down, in the same order and the same doubles as eager does, and
hands the results to the recorded calls. What a hyperparameter decides (`if momentum != 0`) is
written down as a condition that must hold for a replay.

The recorder finds a live number among the arguments of an op by its bits. So an optimizer is shown
numbers that differ a little from the real ones, each from all others; decisions are taken by the
real ones.
"""

import ctypes
import math
import operator

import torch
from torch.overrides import TorchFunctionMode

from nimble import _C

_BINARY = {
    "add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%", "pow": "**",
}  # fmt: skip
_COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_SINGLE = torch.float32


class Live(float):
    """A number with the expression that it is the value of."""

    def __new__(cls, tape, name, shown, real):
        self = super().__new__(cls, shown)
        self.tape, self.name, self.actual = tape, name, real
        return self

    def __bool__(self):
        return self.tape.decide(f"bool({self.name})", bool(self.actual))

    def __reduce__(self):
        return float, (float(self),)

    def __deepcopy__(self, memo):
        return self

    __hash__ = float.__hash__


def _is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def holds_numbers(value):
    """Whether it is a number or several, which a replay can follow."""
    if isinstance(value, (tuple, list)):
        return len(value) > 0 and all(map(_is_number, value))
    return _is_number(value)


def _text(value):
    return value.name if isinstance(value, Live) else repr(value)


def _real(value):
    return value.actual if isinstance(value, Live) else value


def _shown(value):
    return float(value) if isinstance(value, Live) else value


def _define_operators():
    def binary(function, symbol, reflected):
        def apply(self, other):
            if not _is_number(other):
                return NotImplemented
            a, b = (other, self) if reflected else (self, other)
            return self.tape.note(
                f"{_text(a)} {symbol} {_text(b)}",
                function(_shown(a), _shown(b)),
                function(_real(a), _real(b)),
            )

        return apply

    def comparison(function, symbol):
        def compare(self, other):
            if not _is_number(other):
                return NotImplemented
            return self.tape.decide(
                f"{self.name} {symbol} {_text(other)}", function(self.actual, _real(other))
            )

        return compare

    def unary(function, text):
        def apply(self):
            return self.tape.note(
                text.format(self.name), function(float(self)), function(self.actual)
            )

        return apply

    for name, symbol in _BINARY.items():
        function = getattr(operator, name)
        setattr(Live, f"__{name}__", binary(function, symbol, False))
        setattr(Live, f"__r{name}__", binary(function, symbol, True))
    for name, symbol in _COMPARISONS.items():
        setattr(Live, f"__{name}__", comparison(getattr(operator, name), symbol))
    for name, text in (("neg", "-{}"), ("pos", "+{}"), ("abs", "abs({})")):
        setattr(Live, f"__{name}__", unary(getattr(operator, name), text))


_define_operators()


class Tape:
    """What one run did with live numbers."""

    def __init__(self, variant=0):
        self.variant = variant  # of the numbers that are shown
        self.leaves = {}  # key -> Live
        self._names = {}  # expression -> name
        self._decisions = {}  # condition -> outcome
        self._values = {}  # name -> which live value

    def leaf(self, key, real, shown=None):
        """The live number that stands for a hyperparameter, or for a value read from a tensor.

        Zero stands for itself, as long as it is zero: kernels do other work for it.
        """
        known = self.leaves.get(key)
        if known is None:
            if shown is None:
                shown = _near(float(real), len(self.leaves), self.variant) if real else 0.0
            known = self.leaves[key] = Live(self, f"h{len(self.leaves)}", shown, real)
            self.decide(f"{known.name} == 0", real == 0)
        return known if real else real

    def note(self, expression, shown, real):
        name = self._names.setdefault(expression, f"v{len(self._names)}")
        return Live(self, name, shown, real)

    def decide(self, condition, outcome):
        self._decisions[condition] = outcome
        return outcome

    def announce(self, arguments):
        """The live numbers among arguments, as `_C.announce_live` takes them."""
        announced = []
        for argument in arguments:
            if isinstance(argument, Live):
                announced.append((False, [float(argument)], [self._value(argument)]))
            elif isinstance(argument, (list, tuple)) and any(
                isinstance(element, Live) for element in argument
            ):
                values = [self._value(e) if isinstance(e, Live) else -1 for e in argument]
                announced.append((True, [float(e) for e in argument], values))
        return announced

    def _value(self, live):
        return self._values.setdefault(live.name, len(self._values))

    def shown(self):
        return [float(live) for live in self.leaves.values()]

    def compiled(self):
        """A function of the values of the leaves.

        It returns the live values, or None where a decision would be another one (if asked to
        look at those).
        """
        lines = [f"{', '.join(live.name for live in self.leaves.values())}, = leaves"]
        lines += [f"{name} = {expression}" for expression, name in self._names.items()]
        for condition, outcome in self._decisions.items():
            lines.append(f"if look and {'not ' if outcome else ''}({condition}): return None")
        lines.append(f"return [{', '.join(self._values)}]")
        if not self.leaves:
            lines = ["return []"]
        source = "def evaluate(leaves, look=True):\n" + "\n".join(f"    {line}" for line in lines)
        scope = {"inf": math.inf, "nan": math.nan}
        exec(source, scope)  # made of names and numbers of ours
        return scope["evaluate"]


def _near(real, index, variant):
    """Near the real number and on the same side of 0 and 1, different for every index."""
    offset = (0.0, 0.25)[variant] + 0.01 * math.modf((index + 1) * 0.6180339887498949)[0] + 1e-4
    if not math.isfinite(real):
        return real
    if real == 1.0:
        return 1 - 1e-2 * offset
    return real ** (1 + offset) if 0 < real < 1 else real * (1 + offset)


class Following(TorchFunctionMode):
    """In force inside of `optimizer.step()`: says which live numbers ops are given.

    `read(tensor)` gives the key of a number that the optimizer may read from one of its tensors.
    """

    def __init__(self, tape, read):
        super().__init__()
        self._tape, self._read = tape, read

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func is torch.Tensor.item and (key := self._read(args[0])) is not None:
            value = _C.peek(args[0])
            return self._tape.leaf(key, value, shown=value)
        announced = self._tape.announce((*args, *kwargs.values()))
        if not announced:
            return func(*args, **kwargs)
        _C.announce_live(announced)
        try:
            return func(*args, **kwargs)
        finally:
            _C.announce_live([])


def read_after_adding(tensor, added):
    """What `tensor.item()` gives after `tensor += added`."""
    total = tensor.item() + added
    return ctypes.c_float(total).value if tensor.dtype is _SINGLE else total


class Hyperparameters:
    """The numbers in the parameter groups of an optimizer, replaced by live ones for a while."""

    def __init__(self, tape, optimizer, number):
        self._replaced = []
        for index, group in enumerate(optimizer.param_groups):
            for name, value in group.items():
                key = (number, index, name)
                if name == "params" or not holds_numbers(value):
                    continue
                if _is_number(value):
                    live = tape.leaf((*key, None), value)
                else:
                    live = type(value)(tape.leaf((*key, i), v) for i, v in enumerate(value))
                self._replaced.append((group, name, value, live))
        for group, name, _, live in self._replaced:
            group[name] = live

    def restore(self):
        """Puts the real numbers back; returns the name of one that the optimizer changed itself."""
        changed = None
        for group, name, value, live in self._replaced:
            if group.get(name) is not live:
                changed = name
            group[name] = value
        return changed
