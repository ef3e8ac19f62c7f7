"""The fake CUDA runtime keeps the rules that tests of the CUDA replayer lean on."""

import pytest
from fake_cuda import missing, run_on_fake_cuda

pytestmark = pytest.mark.skipif(missing() is not None, reason=str(missing()))

# Calls on the runtime itself; each returns its error.
HELPERS = """
import ctypes, threading
rt = fake.runtime
GLOBAL, THREAD, RELAXED = 0, 1, 2

def pointer(create, *arguments):
    out = ctypes.c_void_p()
    assert create(ctypes.byref(out), *arguments) == 0
    return out

def stream(flags=1):
    return pointer(rt.cudaStreamCreateWithFlags, flags)

def event():
    return pointer(rt.cudaEventCreateWithFlags, 2)

noop = fake.HostFunction(lambda _: None)
def work(s):
    return rt.cudaLaunchHostFunc(s, noop, None)

def begin(s, mode=THREAD):
    return rt.cudaStreamBeginCapture(s, mode)

def end(s):
    graph = ctypes.c_void_p()
    error = rt.cudaStreamEndCapture(s, ctypes.byref(graph))
    if graph:
        rt.cudaGraphDestroy(graph)
    return error

def in_thread(function):
    out = []
    thread = threading.Thread(target=lambda: out.append(function()))
    thread.start()
    thread.join()
    return out[0]

def malloc():
    out = ctypes.c_void_p()
    return rt.cudaMalloc(ctypes.byref(out), ctypes.c_size_t(4096))

a, b, e = stream(), stream(), event()
"""

# Each prints the errors of its calls.
RULES = {
    "legacy stream cannot capture": ("print(begin(None))", "900"),
    "begin twice": ("begin(a); print(begin(a), end(a))", "401 0"),
    "end without begin": ("print(end(a))", "401"),
    "plain": ("begin(a); print(work(a), end(a))", "0 0"),
    "synchronise the stream": (
        "begin(a); print(rt.cudaStreamSynchronize(a), work(a), end(a), work(a))",
        "900 901 901 0",
    ),
    "query the stream": ("begin(a); print(rt.cudaStreamQuery(a), end(a))", "900 901"),
    "synchronise the device": (
        "begin(a, RELAXED); print(rt.cudaDeviceSynchronize(), end(a))",
        "900 901",
    ),
    "merge two captures": (
        "begin(a); begin(b); work(b); rt.cudaEventRecord(e, b)\n"
        "print(rt.cudaStreamWaitEvent(a, e, 0), end(a), end(b))",
        "902 901 901",
    ),
    "end on another stream": (
        "begin(a); rt.cudaEventRecord(e, a); rt.cudaStreamWaitEvent(b, e, 0)\nprint(end(b), end(a))",
        "903 901",
    ),
    "unjoined work": (
        "begin(a); work(a); rt.cudaEventRecord(e, a); rt.cudaStreamWaitEvent(b, e, 0); work(b)\n"
        "print(end(a), work(b))",
        "904 0",
    ),
    "a stream that only waited is joined": (
        "begin(a); work(a); rt.cudaEventRecord(e, a); rt.cudaStreamWaitEvent(b, e, 0); work(a)\n"
        "print(end(a))",
        "0",
    ),
    "event recorded outside": (
        "work(b); rt.cudaEventRecord(e, b); begin(a)\n"
        "print(rt.cudaStreamWaitEvent(a, e, 0), end(a))",
        "905 901",
    ),
    "legacy stream beside a blocking capture": (
        "s = stream(flags=0); begin(s); print(work(None), end(s), work(None))",
        "906 901 0",
    ),
    "legacy stream beside another capture": ("begin(a); print(work(None), end(a))", "0 0"),
    "query a captured event": (
        "begin(a); rt.cudaEventRecord(e, a); print(rt.cudaEventQuery(e), end(a))",
        "907 901",
    ),
    "end in another thread": (
        "begin(a); print(in_thread(lambda: end(a)), end(a))",
        "908 0",
    ),
    "relaxed ends anywhere": ("begin(a, RELAXED); print(in_thread(lambda: end(a)))", "0"),
    "allocate, thread-local": ("begin(a, THREAD); print(malloc(), end(a))", "900 901"),
    "allocate, relaxed": ("begin(a, RELAXED); print(malloc(), end(a))", "0 0"),
    "allocate in another thread, global": (
        "begin(a, GLOBAL); print(in_thread(malloc), end(a))",
        "900 901",
    ),
    "allocate in another thread, thread-local": (
        "begin(a, THREAD); print(in_thread(malloc), end(a))",
        "0 0",
    ),
    "exchange the thread's mode": (
        "begin(a, THREAD); mode = ctypes.c_int(RELAXED)\n"
        "rt.cudaThreadExchangeStreamCaptureMode(ctypes.byref(mode))\n"
        "print(malloc(), mode.value, end(a))",
        "0 0 0",
    ),
}


def test_capture_rules():
    script = HELPERS
    for rule, (body, _) in RULES.items():
        script += f"print({rule!r}, end=': ')\na, b, e = stream(), stream(), event()\n{body}\n"
        script += "mode = ctypes.c_int(GLOBAL)\n"
        script += "rt.cudaThreadExchangeStreamCaptureMode(ctypes.byref(mode))\n"
    out = run_on_fake_cuda(script)
    assert out.splitlines() == [f"{rule}: {errors}" for rule, (_, errors) in RULES.items()]


def test_two_branches_have_just_their_edges():
    out = run_on_fake_cuda("""
    x = torch.ones(8, device="cuda")
    y = torch.ones(8, device="cuda")
    side = torch.cuda.Stream()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        main = torch.cuda.current_stream()
        fake.set_tag(1); x.mul_(2)
        side.wait_stream(main)
        fake.set_tag(2); x.add_(1)
        with torch.cuda.stream(side):
            fake.set_tag(3); y.exp_()
            fake.set_tag(4); y.log_()
        main.wait_stream(side)
        fake.set_tag(5); x.add_(y)
    captured = fake.last_capture()
    print([(node.kind, node.tag) for node in captured.nodes], captured.edges)
    print(captured.nodes[1].stream == captured.nodes[0].stream != captured.nodes[2].stream)
    print("exp" in captured.nodes[2].name)
    """)
    assert out.splitlines() == [
        "[('kernel', 1), ('kernel', 2), ('kernel', 3), ('kernel', 4), ('kernel', 5)]"
        " [(0, 1), (0, 2), (2, 3), (1, 4), (3, 4)]",
        "True",
        "True",
    ]


# Two branches that compute on device memory, and are joined.
COMPUTES = """
values = torch.tensor([3., 0., 0., 0.]).cuda()
floats = (ctypes.c_float * 4).from_address(values.data_ptr())
def set_to(to, function):
    def run():
        floats[to] = function()
    return run
side = torch.cuda.Stream()
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    main = torch.cuda.current_stream()
    fake.call(set_to(0, lambda: floats[0] + 1), main)
    side.wait_stream(main)
    fake.call(set_to(1, lambda: floats[0] * 10), main)
    fake.call(set_to(2, lambda: floats[0] * 100), side)
    {join}
    fake.call(set_to(3, lambda: floats[1] + floats[2]), main)
    {late_join}
"""


def test_random_orders_respect_the_graph():
    computes = COMPUTES.format(join="main.wait_stream(side)", late_join="")
    out = run_on_fake_cuda("import ctypes\n" + computes + """
edges = fake.last_capture().edges
orders, results = set(), set()
for seed in range(20):
    fake.set_seed(seed)
    values.copy_(torch.tensor([3., 0., 0., 0.]))
    graph.replay()
    order = fake.last_launch_order()
    assert all(order.index(before) < order.index(after) for before, after in edges)
    orders.add(tuple(order))
    results.add(tuple(values.tolist()))
print(sorted(orders), results)
""")
    assert out == "[(0, 1, 2, 3), (0, 2, 1, 3)] {(4.0, 40.0, 400.0, 440.0)}\n"


def test_a_missing_wait_is_seen_in_some_order():
    computes = COMPUTES.format(join="", late_join="main.wait_stream(side)")
    out = run_on_fake_cuda("import ctypes\n" + computes + """
results = set()
for seed in range(20):
    values.copy_(torch.tensor([3., 0., 0., 0.]))
    graph.replay()
    results.add(values[3].item())
print(sorted(results))
""")
    assert out == "[40.0, 440.0]\n"


def test_copies_and_fills_of_a_graph_really_happen():
    out = run_on_fake_cuda("""
    source = torch.arange(4.).cuda()
    target = torch.ones(4).cuda()
    other = torch.ones(4).cuda()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        target.copy_(source)
        other.zero_()
    print(target.tolist(), [node.kind for node in fake.last_capture().nodes])
    source.copy_(torch.tensor([5., 6., 7., 8.]))
    graph.replay()
    print(target.tolist())
    """)
    first, second = out.splitlines()
    assert first.startswith("[1.0, 1.0, 1.0, 1.0] ['memcpy', ")
    assert second == "[5.0, 6.0, 7.0, 8.0]"


def test_kernels_can_compute():
    out = run_on_fake_cuda("""
    import ctypes
    Kernel = ctypes.CFUNCTYPE(None, ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p,
                              ctypes.c_void_p, ctypes.c_void_p)
    counts = []
    kernel = Kernel(lambda arguments, grid, block, user: counts.append(
        ctypes.cast(arguments[0], ctypes.POINTER(ctypes.c_int))[0]))
    sizes = (ctypes.c_size_t * 1)(4)
    fake.runtime.fake_cuda_set_kernel(b"FillFunctor", kernel, None, sizes, ctypes.c_size_t(1))
    x = torch.empty(12, device="cuda").fill_(1)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        x[:7].fill_(2)
    graph.replay()
    print(counts)
    """)
    assert out == "[12, 7]\n"


def test_faults_are_torch_errors_and_the_process_stays_usable():
    out = run_on_fake_cuda("""
    def error_of(function):
        try:
            function()
        except Exception as error:
            return type(error).__name__ + ": " + str(error).split("\\n")[0][:60]
        return "none"

    fake.fail_malloc(1, 2)  # PyTorch tries twice
    print(error_of(lambda: torch.empty(1 << 26, device="cuda")))
    print(error_of(lambda: torch.empty(1 << 26, device="cuda")))
    fake.fail_malloc(1, 1)
    print(error_of(lambda: torch.empty(1 << 28, device="cuda")))
    x = torch.ones(4, device="cuda")
    fake.fail_launch(2, 701)
    print(error_of(lambda: x + 1))
    print(error_of(lambda: x + 1))
    print(error_of(lambda: x + 1))
    fake.fail_later(1, 700)
    print(error_of(lambda: x + 1))
    print(error_of(torch.cuda.synchronize))
    print(error_of(torch.cuda.synchronize))
    fake.set_memory(1 << 30)
    print(error_of(lambda: torch.empty(1 << 31, device="cuda"))[:16])
    """)
    lines = out.splitlines()
    assert lines[0].startswith("OutOfMemoryError: CUDA out of memory")
    assert lines[1:4] == ["none"] * 3
    assert lines[4].startswith("AcceleratorError: CUDA error: too many resources requested")
    assert lines[5:7] == ["none"] * 2
    assert lines[7].startswith("AcceleratorError: CUDA error: an illegal memory access")
    assert lines[8:] == ["none", "OutOfMemoryError"]


def test_nothing_leaks():
    out = run_on_fake_cuda("""
    import gc
    names = "events graphs executables user_objects captures device_bytes".split()
    def program():
        layer = nn.Conv2d(3, 8, 3).cuda()
        x = torch.ones(1, 3, 8, 8, device="cuda")
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            layer(x).sum().backward()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            main = torch.cuda.current_stream()
            side.wait_stream(main)
            with torch.cuda.stream(side):
                y = layer(x)
            main.wait_stream(side)
            y.sum()
        graph.replay()
        torch.cuda.synchronize()
        inside = fake.counters()
        assert inside["executables"] == 1 and inside["device_bytes"] > 0
    def after():
        gc.collect()
        torch.cuda.synchronize()
        torch._C._cuda_clearCublasWorkspaces()
        torch.cuda.empty_cache()
        return {name: fake.counters()[name] for name in names}
    program()
    first = after()
    for _ in range(3):
        program()
    assert after() == first, (after(), first)
    print(first)
    """)
    assert "'graphs': 0, 'executables': 0" in out
    assert "'captures': 0, 'device_bytes': 0" in out


MODELS = {
    "resnet18": "torchvision.models.resnet18()",
    "mobilenet_v2": "torchvision.models.mobilenet_v2()",
    "nasnet_a_mobile": "nimble.models.nasnet_a_mobile()",
    "bert": "bert()",
    "vit": "vit()",
    "lstm": "nn.LSTM(16, 32, num_layers=2, bidirectional=True, dropout=0.1)",
    "resnet50": "torchvision.models.resnet50()",
    "resnet101": "torchvision.models.resnet101()",
    "inception_v3": "torchvision.models.inception_v3(init_weights=False, aux_logits=False)",
    "efficientnet_b0": "torchvision.models.efficientnet_b0()",
    "efficientnet_b5": "torchvision.models.efficientnet_b5()",
    "nasnet_a_large": "nimble.models.nasnet_a_large()",
    "darts": "nimble.models.darts()",
    "amoebanet": "nimble.models.amoebanet()",
}
IN_TRAINING = ["resnet18", "mobilenet_v2", "nasnet_a_mobile", "bert", "vit", "lstm"]

NETWORK = """
import torchvision, transformers
def bert():
    return transformers.BertModel(transformers.BertConfig(
        hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128))
def vit():
    return torchvision.models.VisionTransformer(
        image_size=224, patch_size=32, num_layers=2, num_heads=4, hidden_dim=64, mlp_dim=128)
name, training = {name!r}, {training}
if "nimble" in {build!r}:
    import nimble.models
model = {build}.cuda().train(training)
if name == "bert":
    x = torch.zeros(2, 16, dtype=torch.long).cuda()
elif name == "lstm":
    x = torch.randn(5, 2, 16).cuda()
else:
    x = torch.randn(2, 3, 224, 224).cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
def first(y):
    return y if isinstance(y, torch.Tensor) else first(y[0])
def step():
    if not training:
        with torch.no_grad():
            return model(x)
    optimizer.zero_grad()
    first(model(x)).sum().backward()
    optimizer.step()
side = torch.cuda.Stream()
with torch.cuda.stream(side):
    step()
    step()
torch.cuda.synchronize()
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    step()
graph.replay()
torch.cuda.synchronize()
captured = fake.last_capture()
assert len(captured.edges) == len(captured.nodes) - 1  # one stream is a chain
print(len(captured.nodes))
"""


@pytest.mark.parametrize(
    "name, training",
    [(name, False) for name in MODELS] + [(name, True) for name in IN_TRAINING],
)
def test_network_is_captured(name, training):
    out = run_on_fake_cuda(NETWORK.format(name=name, training=training, build=MODELS[name]))
    assert int(out) >= 5
