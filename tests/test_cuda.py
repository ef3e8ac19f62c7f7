"""Programs on CUDA: recorded, captured on many streams, and replayed. On the fake runtime."""

from textwrap import dedent

import pytest
from fake_cuda import missing, run_on_fake_cuda
from nimble import _C


pytestmark = pytest.mark.skipif(missing() is not None, reason=str(missing()))
with_cuda = pytest.mark.skipif(_C.why_no_cuda() != "", reason=_C.why_no_cuda())

# Numbers mean nothing on a device that does not compute: it stays zero.
HEAD = """
import gc
import nimble
from torch.nn import functional as F

class Branches(nn.Module):
    def __init__(self, branches=4, width=16):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(branches))
    def forward(self, x):
        return sum(layer(x).relu() for layer in self.layers)

def error_of(function, *args, **kwargs):
    try:
        function(*args, **kwargs)
    except Exception as error:
        return type(error).__name__ + ": " + str(error)
    return "none"

def rand(*sizes):
    return torch.rand(*sizes).cuda()

x = rand(4, 16)
model = Branches().cuda()
"""


def on_fake(script, blank=True):
    return run_on_fake_cuda(HEAD + dedent(script), FAKE_CUDA_BLANK=str(int(blank))).splitlines()


@pytest.mark.skipif(_C.why_no_cuda() == "", reason="this build has CUDA")
def test_without_cuda_the_error_says_what_to_do():
    for line in on_fake("""
    print(error_of(nimble.Nimble(model).prepare, x))
    print(error_of(nimble.record, lambda a: a.cuda() * 2, x.cpu()))
    print(error_of(nimble.Nimble(model.cpu()).prepare(x.cpu()), x))
    """):
        assert "on device cuda:0; this Nimble was built without CUDA: install it again" in line


@with_cuda
def test_every_interface_replays_graphs():
    lines = on_fake("""
    def launches(call, *args):
        before = fake.counters()["graph_launches"]
        result = call(*args)
        return fake.counters()["graph_launches"] - before, result

    engine = nimble.Nimble(model).prepare(x)
    print(launches(engine, x)[0], engine.schedule.streams, engine.schedule.graphs)
    print(engine.schedule.device, engine.schedule.verify(), engine.schedule.degree)

    step = nimble.record(lambda a, b: {"sum": (a + b).relu(), "a": a}, x, x.clone())
    count, out = launches(step, x, x)
    print(count, out["a"] is x, out["sum"].device)

    fast = nimble.compile(model)
    fast(x), fast(rand(2, 16))
    print(launches(fast, x)[0], len(fast.programs))

    compiled = torch.compile(model, backend="nimble", fullgraph=True)
    with torch.no_grad():
        compiled(x)
        print(launches(compiled, x)[0])

    optimizer = torch.optim.Adam(model.parameters(), capturable=True)
    train = nimble.TrainStep(model, F.mse_loss, optimizer)
    for _ in range(3):
        train(x, x)
    print(launches(train, x, x)[0] > 0, all(p.grad is not None for p in model.parameters()))

    passes = nimble.Nimble(model).prepare(x, training=True)
    y = passes(x)
    print(y.requires_grad, launches(lambda: passes(x).sum().backward())[0])
    """)
    assert lines == [
        "1 4 1",
        "cuda:0 [] 4",
        "1 True cuda:0",
        "1 2",
        "1",
        "True True",
        "True 2",
    ]


@with_cuda
def test_outputs_are_fresh_or_borrowed():
    lines = on_fake("""
    engine = nimble.Nimble(model).prepare(x)
    a, b = engine(x), engine(x)
    print(a.data_ptr() != b.data_ptr())
    engine = nimble.Nimble(model, outputs="borrowed").prepare(x)
    a, b = engine(x), engine(x)
    print(a.data_ptr() == b.data_ptr())
    """)
    assert lines == ["True", "True"]


@with_cuda
def test_a_replay_is_on_the_callers_stream_and_reads_parameters_in_place():
    lines = on_fake("""
    engine = nimble.Nimble(model).prepare(x)
    side = torch.cuda.Stream()
    torch.cuda.synchronize()
    fake.set_log(1)
    with torch.cuda.stream(side):
        engine(x)
    torch.cuda.synchronize()
    numbers = {node.stream for node in fake.log()}
    print(numbers == {fake.stream_number(side.cuda_stream)})
    with torch.no_grad():
        model.layers[0].weight.add_(1)
    print(error_of(engine, x))
    model.layers[0].weight.data = rand(16, 16)
    print(error_of(engine, x))
    """)
    assert lines[:2] == ["True", "none"]
    assert "'layers.0.weight' was given other memory" in lines[2]


@with_cuda
def test_what_is_not_as_prepared_is_refused():
    lines = on_fake("""
    engine = nimble.Nimble(model).prepare(x)
    print(error_of(engine, x.cpu()))
    print(error_of(engine, rand(2, 16)))
    with torch.autocast("cuda", dtype=torch.float16):
        print(error_of(engine, x))
    graph = torch.cuda.CUDAGraph()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        graph.capture_begin()
        y = x + 1
        print(error_of(engine, x))
        graph.capture_end()
    print(error_of(nimble.record, lambda a: a.sum().item() + a, x))
    print(error_of(nimble.record, lambda a: a[a > 0], x))
    print(error_of(engine.schedule.save_timeline, "unused.json"))
    """)
    assert lines[0].startswith("NimbleError: input 0: prepared for float32[4,16] on cuda:0, got")
    assert "call prepare() with an example like it" in lines[1]
    assert "prepared with autocast off" in lines[2] and "CUDA Half" in lines[2]
    assert "cannot be called inside of a CUDA graph capture" in lines[3]
    assert "it reads a value back" in lines[4]
    assert "boolean mask" in lines[5]
    assert "torch.profiler" in lines[6]


@with_cuda
def test_ops_that_cannot_be_captured_run_between_graphs():
    lines = on_fake("""
    def function(a):
        b = (a * 2).relu()
        c = b.cpu().mul(3)          # leaves the device
        d = c.cuda() + b            # and comes back
        return torch.cumsum(d, 0), c

    step = nimble.record(function, x)
    print(step.schedule.graphs, len(step.schedule.outside_graphs))
    y, c = step(x)
    print(y.device, c.device, step.schedule.verify())
    print(*step.schedule.outside_graphs, sep="\\n")
    print("in no graph: aten::mul.Tensor" in step.explain())
    print(error_of(nimble.record, function, x, strict=True))
    """)
    assert lines[:2] == ["2 3", "cuda:0 cpu []"]
    assert lines[2].endswith("its result is on the CPU")
    assert lines[3].endswith("it runs on the CPU")
    assert lines[4].endswith("it reads a tensor on the CPU")
    assert lines[5] == "True"
    assert lines[6].startswith("Refused: cannot capture aten::")


@with_cuda
def test_an_op_that_ends_the_capture_is_found_and_put_between_graphs():
    lines = on_fake("""
    def synchronise(a):
        torch.cuda.synchronize()
        return a * 2
    library = torch.library.Library("shop", "DEF")
    library.define("synchronise(Tensor a) -> Tensor")
    library.impl("synchronise", synchronise, "CUDA")

    def function(a):
        return torch.ops.shop.synchronise(a.relu()) + 1

    step = nimble.record(function, x)
    step(x)
    print(step.schedule.graphs, step.schedule.outside_graphs)
    """)
    assert lines[0].startswith("2 ['shop::synchronise") and "cannot be captured" in lines[0]


@with_cuda
def test_numbers_of_an_optimizer_are_never_frozen():
    lines = on_fake("""
    def step_with(make, **more):
        train = nimble.TrainStep(model, F.mse_loss, make(model.parameters(), **more))
        for _ in range(3):
            train(x, x)
        return train.schedule.graphs, [op.split(" ")[0] for op in train.schedule.outside_graphs]

    print(*step_with(torch.optim.SGD, lr=0.1))
    print(*step_with(torch.optim.Adam, lr=0.1, capturable=True))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    train = nimble.TrainStep(model, F.mse_loss, optimizer)
    for _ in range(4):
        train(x, x)
    print([optimizer.state[p]["step"].item() for p in model.parameters()][:2])
    """)
    assert lines[0].startswith("1 ['aten::_foreach_add_.List")
    assert lines[2] == "[4.0, 4.0]"


@with_cuda
def test_dropout_draws_from_the_generator_as_eager_does():
    lines = on_fake("""
    dropout = nn.Sequential(nn.Linear(16, 16), nn.Dropout(), nn.Linear(16, 16), nn.Dropout()).cuda()
    generator = torch.cuda.default_generators[0]
    def drawn(call):
        torch.cuda.manual_seed(5)
        call(x)
        return generator.get_offset()
    before = torch.cuda.get_rng_state()
    engine = nimble.Nimble(dropout).prepare(x)
    print(torch.equal(before, torch.cuda.get_rng_state()))
    with torch.no_grad():
        print(drawn(engine) == drawn(dropout) > 0)
    """)
    assert lines == ["True", "True"]


@with_cuda
def test_backward_pass_and_autocast_are_recorded():
    lines = on_fake("""
    def step(a):
        with torch.autocast("cuda", dtype=torch.float16):
            y = model(a)
        return torch.autograd.grad(y.float().sum(), list(model.parameters()))
    recorded = nimble.record(step, x)
    print(len(recorded(x)), recorded.schedule.graphs)
    text = recorded.explain()
    print("aten::_to_copy" in text, "threshold_backward" in text)
    """)
    assert lines == ["8 1", "True True"]


# Copies really happen, so that what they leave can be compared; kernels are there to fail.
FAULTS = """
def leaks():
    gc.collect()
    torch.cuda.synchronize()
    torch._C._cuda_clearCublasWorkspaces()
    torch.cuda.empty_cache()
    counters = fake.counters()
    return {name: counters[name] for name in ("graphs", "executables", "captures", "events",
                                              "device_bytes", "user_objects")}
ours = torch.arange(64.).cuda()
other = torch.arange(64., 128.).cuda()
def step(a):
    unused = [(a * 2).relu() for _ in range(4)]
    ours.copy_(a)
    return ours.clone(), ours.view(8, 8).t().contiguous()[:0]
nimble.record(step, other)
clean = leaks()
"""


@with_cuda
@pytest.mark.parametrize("fault", ["out of memory", "launch", "later"])
def test_faults_are_clear_and_leave_nothing_behind(fault):
    lines = on_fake(FAULTS + f"""
fault = {fault!r}
said = []
for n in range(1, 60):
    torch.cuda.empty_cache()
    if fault == "out of memory":
        fake.fail_malloc(n, 2)
    elif fault == "launch":
        fake.fail_launch(n, 701)
    else:
        fake.fail_later(n, 700)
    error = error_of(nimble.record, step, other)
    fake.fail_malloc(0, 1), fake.fail_launch(0, 0), fake.fail_later(0, 0)
    if error != "none":
        said.append(error.splitlines()[0])
    assert ours.tolist() == list(range(64)), n
    assert leaks() == clean, (n, error, leaks(), clean)
print(len(said) > 3, *sorted(set(said)), sep="\\n")
step = nimble.record(step, other)
print(step(other)[0].tolist() == ours.tolist() == list(range(64, 128)))
""", blank=False)
    assert lines[0] == "True"
    assert lines[-1] == "True"
    expected = {
        "out of memory": "OutOfMemoryError: CUDA out of memory",
        "launch": "AcceleratorError: CUDA error: too many resources requested",
        "later": "AcceleratorError: CUDA error: an illegal memory access",
    }
    for said in lines[1:-1]:
        assert said.startswith(expected[fault])


# Ops whose kernels are Python functions on the device's memory, which is the host's.
COMPUTING = """
import ctypes, random

data_ptr = torch._C.TensorBase.data_ptr
def floats(tensor):
    return (ctypes.c_float * tensor.numel()).from_address(data_ptr(tensor))
def launch(function, to, *of):
    to, of = floats(to), [floats(tensor) for tensor in of]
    def run():
        for i in range(len(to)):
            to[i] = function(*(values[i] for values in of))
    if torch.cuda.is_available() and on_device:
        fake.call(run, torch.cuda.current_stream())
    else:
        run()

library = torch.library.Library("shop", "DEF")
library.define("mix(Tensor a, Tensor b) -> Tensor")
library.define("grow(Tensor(a!) a, Tensor b) -> ()")
def mix(a, b):
    out = torch.empty_like(a)
    launch(lambda x, y: 0.5 * x - 0.25 * y + 1, out, a, b)
    return out
def grow(a, b):
    launch(lambda x, y: 0.5 * x + 0.125 * y, a, a, b)
for name, function in (("mix", mix), ("grow", grow)):
    for key in ("CPU", "CUDA"):
        library.impl(name, function, key)
shop = torch.ops.shop

def random_program(seed):
    rng = random.Random(seed)
    plan = [(rng.random() < 0.25, rng.random(), rng.random()) for _ in range(60)]
    def program(a, b):
        values = [a, b]
        for in_place, first, second in plan:
            x = values[int(first * len(values))]
            y = values[-1 - int(second * min(8, len(values)))]
            if not in_place:
                values.append(shop.mix(x, y))
            elif x is not y and x is not a and x is not b:
                shop.grow(x, y)
        return values[-1], values[-2], values[len(values) // 2]
    return program
"""


@with_cuda
def test_programs_that_compute_give_the_cpus_results_in_every_order():
    lines = on_fake(COMPUTING + """
orders = set()
for seed in range(8):
    program = random_program(seed)
    a, b = torch.arange(4.), torch.arange(4.) * 0.5 - 1
    on_device = False
    expected = program(a, b)
    on_device = True
    step = nimble.record(program, a.cuda(), b.cuda())
    assert step.schedule.streams > 1
    for launch_seed in range(25):
        fake.set_seed(launch_seed)
        for got, wanted in zip(step(a.cuda(), b.cuda()), expected):
            assert torch.equal(got.cpu(), wanted), (seed, launch_seed)
        orders.add((seed, *fake.last_launch_order()))
print(len(orders) > 100)
""", blank=False)
    assert lines == ["True"]


# Kernels with a name of their own, so that their costs can be told apart.
NAMED = """
def chain(a, *ops):
    for op in ops:
        a = op(a)
    return a
# Recorded last, and the longest: sin and cos are slow.
def function(a):
    short = [(a + 1.0).relu() for _ in range(3)]
    long = chain(a, torch.sin, torch.cos, torch.sin, torch.cos)
    return sum(short) + long
fake.set_cost("sin_kernel", 50)
fake.set_cost("cos_kernel", 40)
step = nimble.record(function, x)
"""


@with_cuda
def test_ops_are_measured_on_the_device():
    lines = on_fake(NAMED + """
costs = {}
for line in step.explain().splitlines():
    words = line.split()
    if len(words) > 4 and words[0].isdigit() and words[1].isdigit():
        costs.setdefault(words[4], set()).add(float(words[2]))
print(costs["aten::sin"], costs["aten::cos"], costs["aten::relu"])
""")
    assert lines == ["{50.0} {40.0} {1.0}"]


@with_cuda
def test_the_longest_path_is_launched_first_on_the_most_urgent_stream():
    lines = on_fake(NAMED + """
rows = [line.split() for line in step.explain().splitlines()]
ops = [row[4] for row in rows if len(row) > 4 and row[0].isdigit() and row[1].isdigit()]
print(ops[:3], ops[-1])
nodes = fake.last_capture().nodes
kernels = ["sin" if "sin_kernel" in node.name else "cos" if "cos_kernel" in node.name else "other"
           for node in nodes]
priorities = {kind: {node.priority for node, name in zip(nodes, kernels) if name == kind}
              for kind in ("sin", "cos", "other")}
print(priorities["sin"] | priorities["cos"], len(priorities["other"]) > 1)
print(step.schedule.verify())
# In recorded order on one stream.
nimble.record(function, x, streams=1)
nodes = fake.last_capture().nodes
print("sin_kernel" in nodes[0].name, {node.priority for node in nodes})
""")
    assert lines == ["['aten::sin', 'aten::cos', 'aten::sin'] aten::add.Tensor", "{-5} True", "[]", "False {-5}"]


# Ops of the framework whose kernels on the device are its own on the CPU: enough of them for small
# networks. A device op is a host function on the device's memory, which is the host's.
COMPUTING_ATEN = """
import copy, ctypes, math
from torch.utils._pytree import tree_map

aten = torch.library.Library("aten", "IMPL")
data_ptr = torch._C.TensorBase.data_ptr

def host(tensor):
    if not isinstance(tensor, torch.Tensor) or not tensor.is_cuda:
        return tensor
    extent = 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride()))
    count = extent * tensor.element_size() if tensor.numel() else 0
    if count == 0:
        return torch.empty(tensor.shape, dtype=tensor.dtype)
    memory = (ctypes.c_char * count).from_address(data_ptr(tensor))
    return torch.frombuffer(memory, dtype=tensor.dtype).as_strided(tensor.shape, tensor.stride())

def run(function):
    fake.call(function, torch.cuda.current_stream())

def on_host(name, function=None):
    op = eval("torch.ops.aten." + name)
    function = function or op
    writes = any(a.alias_info and a.alias_info.is_write for a in op._schema.arguments)
    def kernel(*args, **kwargs):
        if writes:
            run(lambda: function(*tree_map(host, args), **kwargs))
            return args[0]
        def example(t):
            return torch.zeros_like(t, device="cpu") if isinstance(t, torch.Tensor) else t
        made = tree_map(lambda t: torch.empty_strided(t.shape, t.stride(), dtype=t.dtype,
                                                      device="cuda"),
                        function(*tree_map(example, args), **kwargs))
        def compute():
            results = function(*tree_map(host, args), **kwargs)
            tree_map(lambda out, value: host(out).copy_(value), made, results)
        run(compute)
        return made
    aten.impl(name.removesuffix(".default"), kernel, "CUDA")

def arange(start, end, step=1, *, out):
    out.resize_(math.ceil((end - start) / step))
    run(lambda: host(out).copy_(torch.arange(start, end, step, dtype=out.dtype)))
    return out
aten.impl("arange.start_out", arange, "CUDA")

def batch_norm(x, weight, bias, mean, var, training, momentum, eps):
    y = F.batch_norm(x, mean, var, weight, bias, training, momentum, eps)
    return y, torch.zeros(0), torch.zeros(0), torch.zeros(0, dtype=torch.uint8)
def convolution_relu(x, w, bias, stride, padding, dilation, groups):
    return F.conv2d(x, w, bias, stride, padding, dilation, groups).relu()
def convolution_add_relu(x, w, z, alpha, bias, stride, padding, dilation, groups):
    return (F.conv2d(x, w, bias, stride, padding, dilation, groups) + z).relu()

for name in ("convolution.default relu.default relu_.default add.Tensor add_.Tensor mul.Tensor "
             "mul_.Tensor sub.Tensor neg.default rsqrt.default addcmul.default cat.default "
             "frac.default roll.default copy_.default mean.dim").split():
    on_host(name)
on_host("cudnn_batch_norm.default", batch_norm)
on_host("cudnn_convolution_relu.default", convolution_relu)
on_host("cudnn_convolution_add_relu.default", convolution_add_relu)

class Block(nn.Module):
    def __init__(self, groups=1):
        super().__init__()
        self.a, self.b = nn.Conv2d(4, 4, 3, padding=1, bias=False), nn.Conv2d(4, 4, 1)
        self.c = nn.Conv2d(4, 4, 3, padding=1, groups=groups)
        self.norms = nn.ModuleList(nn.BatchNorm2d(4) for _ in range(4))
    def forward(self, x):
        y = self.norms[0](self.a(x)).relu_()
        y = (self.norms[1](self.b(y)) + x).relu()
        y = self.norms[2](self.c(y)) + y
        return self.norms[3](y).relu()  # behind no convolution

torch.manual_seed(3)
cpu = nn.Sequential(Block(), Block(groups=2)).eval()
with torch.no_grad():
    for name, tensor in cpu.state_dict().items():
        if tensor.is_floating_point() and "norms" in name:
            tensor.uniform_(0.5, 1.5)
device = copy.deepcopy(cpu).cuda()
x = torch.randn(2, 4, 6, 6)

def distance(engine, x=x):
    with torch.no_grad():
        expected, got = cpu(x), engine(x.cuda())
    torch.cuda.synchronize()
    assert got.stride() == expected.stride()
    return float((host(got) - expected).abs().max() / expected.abs().max())

def considered(engine):
    return [line for line in engine.explain().splitlines()
            if line.endswith(": kept") or ": dropped" in line]
"""


@with_cuda
def test_folded_and_fused_plans_compute_what_the_program_does():
    lines = on_fake(COMPUTING_ATEN + """
engine = nimble.Nimble(device).prepare(x.cuda())
print(*considered(engine), sep="\\n")
print("aten::cudnn_batch_norm" in engine.explain(), engine.schedule.weight_bytes > 0)
print(distance(engine) < 1e-5, distance(engine, torch.randn(2, 4, 6, 6)) < 1e-5)
# No result is copied because it lies otherwise than planned, at a batch of one either.
one = nimble.Nimble(device, kernels="auto").prepare(x[:1].cuda())
print(one.schedule.graph_nodes == one.schedule.tasks, distance(one, x[:1]) < 1e-5)
plain = nimble.Nimble(device, kernels="torch").prepare(x.cuda())
print("aten::cudnn_batch_norm" in plain.explain(), plain.schedule.weight_bytes, distance(plain) < 1e-6)
""", blank=False)
    assert lines[0].startswith("batch norm folded: ") and lines[0].endswith(": kept")
    assert lines[1].startswith("batch norm folded, convolutions fused") and lines[1].endswith("kept")
    assert lines[2].startswith("likewise, in channels_last: ")
    assert lines[3:] == ["False True", "True True", "True True", "True 0 True"]


@with_cuda
def test_folded_constants_follow_the_parameters():
    lines = on_fake(COMPUTING_ATEN + """
engine = nimble.Nimble(device).prepare(x.cuda())
print(engine.schedule.weight_bytes > 0)
def change(name, how):
    with torch.no_grad():
        for model in (cpu, device):
            how(model.get_parameter(name) if "running" not in name else model.get_buffer(name))
    print(distance(engine) < 1e-5)
change("0.a.weight", lambda p: p.mul_(1.5))
change("0.norms.1.running_var", lambda p: p.add_(1))
change("1.c.bias", lambda p: p.copy_(torch.ones(4)))
change("1.b.weight", lambda p: p.data.mul_(-2))  # counts no version
change("1.norms.0.weight", lambda p: p.data.add_(0.5))
""", blank=False)
    assert lines == ["True"] * 6


@with_cuda
@pytest.mark.parametrize("fault", ["fails", "wrong", "slow"])
def test_a_plan_that_fails_or_differs_or_is_slower_is_dropped(fault):
    lines = on_fake(COMPUTING_ATEN + f"""
fault = {fault!r}
def convolution_relu(x, w, bias, stride, padding, dilation, groups):
    if fault == "fails":
        raise RuntimeError("no such algorithm")
    wrong = 1.01 if fault == "wrong" else 1
    return F.conv2d(x, w, bias, stride, padding, dilation, groups).relu() * wrong
""" + """
library = torch.library.Library("aten", "IMPL")
def kernel(x, w, bias, stride, padding, dilation, groups):
    if fault == "slow":
        for _ in range(50):
            run(lambda: None)
    made = torch.empty_like(x)
    out = convolution_relu(host(x), host(w), host(bias), stride, padding, dilation, groups)
    run(lambda: host(made).copy_(
        convolution_relu(host(x), host(w), host(bias), stride, padding, dilation, groups)))
    return made
library.impl("cudnn_convolution_relu", kernel, "CUDA", allow_override=True)
engine = nimble.Nimble(device).prepare(x.cuda())
print(considered(engine)[0].endswith(": kept"))
print(considered(engine)[1])
print(distance(engine) < 1e-5)
""", blank=False)
    assert (lines[0], lines[2]) == ("True", "True")
    assert {
        "fails": lines[1].endswith("dropped: RuntimeError: no such algorithm"),
        "wrong": lines[1].endswith("dropped: output 0 differs by more than rounding"),
        "slow": lines[1].endswith("us: dropped"),
    }[fault], lines[1]


@with_cuda
def test_graphs_of_one_compiled_function_share_their_memory():
    lines = on_fake("""
    def pool_bytes(share):
        fast = nimble.compile(model, streams=1)
        if not share:
            fast._options.graph_memory = None
        for batch in (64, 128, 256, 512):
            fast(rand(batch, 16))
        torch.cuda.synchronize()
        sizes = [p.schedule.pool_bytes for p in fast.programs]
        return sizes[-1] if share else sum(sizes)
    print(pool_bytes(True) < pool_bytes(False))
    """)
    assert lines == ["True"]


@with_cuda
def test_doctor_goes_as_far_as_a_device_without_kernels_lets_it():
    lines = on_fake("""
    from nimble import doctor
    doctor._idle_share = lambda call: None  # the profiler needs a real driver
    print(doctor.report(["mobilenet_v2"], rounds=1))
    """)
    assert any(line.startswith("cuda:0: ") for line in lines)
    assert any(line.startswith("| mobilenet_v2 | 0.0e+00 | 0.0e+00 |") for line in lines)
    assert lines[-2:] == ["Everything that was tried is right.", "True"]
