"""Arguments and results: their structure, their memory, their layout."""

import collections
import dataclasses
import gc

import pytest
import torch
from torch import nn

import nimble
from comparison import exact, kernels  # noqa: F401


Pair = collections.namedtuple("Pair", "left right")


@dataclasses.dataclass
class Answer:
    logits: torch.Tensor
    label: str = "none"


# ---- outputs: lifetime and identity ----


def test_outputs_stay_valid_after_the_next_call():
    function = lambda x: (x @ x, x.sort().values, x.exp().t())
    step = nimble.record(function, torch.randn(4, 4))
    inputs = [torch.randn(4, 4) for _ in range(4)]
    exact([step(x) for x in inputs], [function(x) for x in inputs])


def test_outputs_outlive_the_engine():
    step = nimble.record(lambda x: x + 1, torch.zeros(1000))
    y = step(torch.ones(1000))
    del step
    gc.collect()
    torch.zeros(1000)
    exact(y, torch.full((1000,), 2.0))


def test_borrowed_outputs_are_overwritten_by_the_next_call():
    step = nimble.record(lambda x: x @ x + 1, torch.randn(4, 4), outputs="borrowed")
    first = step(torch.ones(4, 4))
    second = step(torch.zeros(4, 4))
    assert first.data_ptr() == second.data_ptr()
    exact(first, torch.ones(4, 4))


def test_borrowed_outputs_outlive_the_engine():
    step = nimble.record(lambda x: x @ x + 1, torch.zeros(300, 300), outputs="borrowed")
    y = step(torch.zeros(300, 300))
    del step
    gc.collect()
    other = [torch.full((300, 300), 7.0) for _ in range(50)]
    exact(y, torch.ones(300, 300))
    assert other


def test_borrowed_outputs_can_be_reshaped_in_place_without_harm():
    def function(x):
        y = x @ x
        return y, y[0] * 2

    step = nimble.record(function, torch.randn(4, 4), outputs="borrowed")
    step(torch.randn(4, 4))[0].t_()
    x = torch.randn(4, 4)
    exact(step(x), function(x))


def test_borrowed_output_fed_back_as_input_equals_eager_or_is_an_error():
    function = lambda x: torch.cat([x[2:] * 2, x[:2] + 1])
    step = nimble.record(function, torch.randn(6), outputs="borrowed")
    x = torch.arange(6.0)
    want = function(function(function(x)))
    try:
        got = step(step(step(x)))
    except nimble.NimbleError:
        return
    exact(got, want)


class Aliases(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(3, 4))
        self.register_buffer("b", torch.randn(4))

    def forward(self, x):
        y = x * 2
        return {
            "input": x, "input view": x[1:], "input again": x, "parameter": self.w,
            "parameter view": self.w[1:, ::2], "transposed": self.w.t(), "buffer": self.b,
            "y": y, "y again": y, "y view": y[0],
        }  # fmt: skip


def test_an_output_that_is_an_input_or_parameter_is_that_memory():
    model = Aliases()
    engine = nimble.Nimble(model).prepare(torch.randn(3, 4))
    x = torch.randn(3, 4)
    with torch.no_grad():
        got, want = engine(x), model(x)
    exact(got, want)
    assert got["input"] is x and got["input again"] is x
    assert got["parameter"] is model.w and got["buffer"] is model.b
    assert got["y"] is got["y again"]
    assert got["y view"].data_ptr() == got["y"].data_ptr()
    for key in ("input view", "parameter view", "transposed"):
        assert got[key].data_ptr() == want[key].data_ptr()
        assert got[key].stride() == want[key].stride()


def test_a_view_of_the_input_is_its_memory_at_any_offset():
    step = nimble.record(lambda x: (x[1:], x.view(torch.int32)), torch.randn(4))
    base = torch.randn(10)
    view, bits = step(base[3:7])
    assert view.data_ptr() == base[4:].data_ptr() and bits.data_ptr() == base[3:].data_ptr()
    view.zero_()
    exact(base[4:7], torch.zeros(3))


def test_a_detached_output_is_another_tensor_on_the_same_memory():
    w = nn.Parameter(torch.randn(3))
    function = lambda x: (x.detach(), x.view(3), w.detach(), x)
    with torch.no_grad():
        x = torch.randn(3)
        got, want = nimble.record(function, x)(x), function(x)
    for mine, theirs in zip(got, want):
        assert mine.data_ptr() == theirs.data_ptr()
        assert mine.requires_grad == theirs.requires_grad
    assert [y is x for y in got] == [y is x for y in want]
    assert got[2] is not w


VIEWS_OF_ALL = {
    "detach": lambda x: (x.detach(), x + 1),
    "slice": lambda x: (x[:], x + 1),
    "back and forth": lambda x: (x.t().t(), x),
    "written": lambda x: (x[:], x.add_(1)),
}


@pytest.mark.parametrize("function", VIEWS_OF_ALL)
@pytest.mark.parametrize("prepared", [False, True])
def test_a_view_of_a_whole_input_has_the_strides_it_has_now(function, prepared):
    function = VIEWS_OF_ALL[function]
    make = lambda transposed: torch.randn(3, 4).t() if transposed else torch.randn(4, 3)
    step = nimble.record(function, make(prepared))
    mine = make(not prepared)
    theirs = mine.clone(memory_format=torch.preserve_format)
    got, want = step(mine), function(theirs)
    exact(got, want)
    exact(mine, theirs)
    assert got[0] is not mine and got[0].data_ptr() == mine.data_ptr()
    assert got[0].stride() == want[0].stride()


def test_a_view_of_an_expanded_input_is_right_or_refused():
    x = torch.randn(1, 3).expand(4, 3)
    for function in (lambda x: x.detach(), lambda x: x[:]):
        exact(nimble.record(function, x)(x), x)
        exact(nimble.compile(function)(x), x)
    with pytest.raises(nimble.NimbleError, match="input 0 is expanded.*pass a copy"):
        nimble.record(lambda x: x[1:], x)
    step = nimble.record(lambda x: x[1:], x.clone())
    with pytest.raises(nimble.NimbleError, match="input 0 is expanded.*pass a copy"):
        step(x)


def test_a_part_of_a_conjugate_view_is_right_or_refused():
    x = torch.randn(4, dtype=torch.complex64)
    for prepared, called in ((x, x.conj()), (x.conj(), x)):
        step = nimble.record(lambda x: x[1:], prepared)
        exact(step(prepared), prepared[1:])
        with pytest.raises(nimble.NimbleError, match="conjugate.*pass a copy"):
            step(called)
        exact(nimble.record(lambda x: x[:], prepared)(called), called)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: (x + 1, [x - 1, (x * 2,)], {"a": x, 3: {"b": x.exp()}}),
        lambda x: Pair(x + 1, Pair(x, None)),
        lambda x: Answer(x + 1, "cat"),
        lambda x: collections.OrderedDict(z=x + 1, a=x * 2),
        lambda x: collections.defaultdict(list, a=[x + 1]),
        lambda x: x.max(0),
        lambda x: torch.std_mean(x),
        lambda x: [x + 1],
        lambda x: (),
        lambda x: None,
        lambda x: (None, 3, "a", x * 2, 2.5, torch.float16, x.shape, slice(1, 2)),
        lambda x: (torch.zeros(2), torch.tensor([1.0, 2.0]), torch.arange(3), x.shape[0]),
        lambda x: 1,
    ],
)
def test_outputs_keep_their_structure(function):
    step = nimble.record(function, torch.randn(3, 3))
    for _ in range(2):
        x = torch.randn(3, 3)
        got, want = step(x), function(x)
        assert type(got) is type(want)
        if isinstance(want, Answer):
            got, want = vars(got), vars(want)
        assert repr(got) == repr(want)


def test_model_output_of_transformers_keeps_its_structure():
    outputs = pytest.importorskip("transformers.modeling_outputs")
    function = lambda x: outputs.BaseModelOutput(x + 1, hidden_states=(x, x * 2))
    step = nimble.record(function, torch.randn(3))
    x = torch.randn(3)
    got, want = step(x), function(x)
    assert type(got) is type(want) and list(got) == list(want) and got.attentions is None
    exact(got.to_tuple(), want.to_tuple())


def test_constant_outputs_are_fresh_at_every_call():
    step = nimble.record(lambda x: (torch.tensor([1.0, 2.0]), torch.zeros(2), x), torch.randn(2))
    x = torch.randn(2)
    first = step(x)
    first[0].add_(5)
    first[1].add_(5)
    exact(step(x), (torch.tensor([1.0, 2.0]), torch.zeros(2), x))


def test_a_program_without_inputs_or_outputs_runs_for_its_effect():
    counter = torch.zeros(())

    def count():
        counter.add_(1)

    step = nimble.record(count)
    assert counter == 0
    assert step() is None and step() is None
    assert counter == 2


# ---- inputs: structure, layout, overlap ----


def test_nested_arguments_and_keywords_are_taken_apart():
    def function(pair, *, mask=None, options=("a", 2), state=None):
        return pair.left + pair.right["r"][0] * options[1] + (0 if mask is None else mask)

    def arguments():
        return (Pair(torch.randn(3), {"r": [torch.randn(3)]}),), {"mask": torch.randn(3)}

    args, kwargs = arguments()
    step = nimble.record(function, *args, **kwargs)
    args, kwargs = arguments()
    exact(step(*args, **kwargs), function(*args, **kwargs))


def test_the_order_of_keywords_does_not_matter():
    function = lambda x, *, a, b: x * a - b
    step = nimble.record(function, torch.ones(2), a=torch.ones(2), b=torch.zeros(2))
    x, a, b = torch.rand(3, 2).unbind()
    exact(step(x, b=b, a=a), function(x, a=a, b=b))
    compiled = nimble.compile(function)
    exact(compiled(x, a=a, b=b), compiled(x, b=b, a=a))
    assert len(compiled.programs) == 1


LAYOUTS = {
    "contiguous": lambda: torch.randn(2, 4, 4, 4),
    "transposed": lambda: torch.randn(4, 4, 4, 2).permute(3, 2, 0, 1),
    "channels_last": lambda: torch.randn(2, 4, 4, 4).to(memory_format=torch.channels_last),
    "sliced": lambda: torch.randn(5, 9, 6, 8)[1:3, 1::2, 2:, ::2],
    "expanded": lambda: torch.randn(1, 4, 1, 4).expand(2, 4, 4, 4),
    "scalar expanded": lambda: torch.randn(()).expand(2, 4, 4, 4),
}


@pytest.mark.parametrize("called", LAYOUTS)
@pytest.mark.parametrize("prepared", LAYOUTS)
def test_any_layout_of_the_input_gives_eager_values(prepared, called):
    model = nn.Sequential(nn.Conv2d(4, 4, 3), nn.ReLU())
    engine = nimble.Nimble(model).prepare(LAYOUTS[prepared]())
    for layout in (called, prepared):
        x = LAYOUTS[layout]()
        with torch.no_grad():
            torch.testing.assert_close(engine(x), model(x))


@pytest.mark.parametrize("size", [(), (0,), (3, 0, 2), (1,), (1, 1)])
@pytest.mark.parametrize(
    "dtype",
    [torch.float32, torch.half, torch.bfloat16, torch.int64, torch.uint8, torch.bool,
     torch.complex64],
)  # fmt: skip
def test_any_size_and_dtype_equals_eager(size, dtype):
    def function(x):
        return x + x, x.to(torch.complex64).exp().sum(), torch.cat([x.flatten(), x.flatten()]), x == 0

    make = lambda: torch.randn(size).mul(3).to(dtype)
    step = nimble.record(function, make())
    x = make()
    exact(step(x), function(x))


@pytest.mark.parametrize("prepared", [False, True])
@pytest.mark.parametrize("called", [False, True])
def test_conjugate_and_negative_views_are_inputs_like_others(prepared, called):
    def make(lazy):
        x = torch.randn(3, dtype=torch.complex64)
        return (x.conj(), x.conj().imag) if lazy else (x, x.imag)

    function = lambda z, i: (z * 2, z.conj() * z.real, i + 1)
    step = nimble.record(function, *make(prepared))
    z, i = make(called)
    exact(step(z, i), function(z, i))


@pytest.mark.parametrize("inputs", [lambda x: (x, x), lambda x: (x[:4], x[1:5]), lambda x: (x, x.flip(0))])
def test_inputs_that_share_memory_are_read_right(inputs):
    function = lambda a, b: a * 2 + b
    step = nimble.record(function, *inputs(torch.randn(6)))
    args = inputs(torch.randn(6))
    exact(step(*args), function(*args))
