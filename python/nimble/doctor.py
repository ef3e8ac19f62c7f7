"""What was built, what is there, and on a machine with a GPU: whether it works and what it gains.

    nimble doctor > report.txt
"""

import copy
import platform
import statistics
from importlib.metadata import version

import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

import nimble
from nimble import _C, models

_TOLERANCE = 1e-3  # of outputs, relative to the largest
_TRAINING_TOLERANCE = 5e-2  # of a parameter's change in three steps, which rounding moves, too


def report(names, rounds, write=print):
    """Writes the report; returns whether everything that was tried is right."""
    _describe(write)
    if _C.why_no_cuda() or not torch.cuda.is_available():
        return True
    write(
        "\n| network | output | training | eager ms | CUDA graph ms | one stream ms | "
        "many streams ms | streams | x eager | x CUDA graph | idle, eager | idle, replay |"
    )
    write("|---" * 12 + "|")
    failures = []
    for name in names:
        try:
            cells, faults = _examine(name, rounds)
        except Exception as error:  # the next network may do better
            cells, faults = ["failed"], [f"{type(error).__name__}: {error}"]
        write(f"| {' | '.join([name, *cells])} |")
        failures += [f"{name}: {fault}" for fault in faults]
    write("")
    for failure in failures or ["Everything that was tried is right."]:
        write(failure)
    return not failures


def _describe(write):
    write(f"Nimble {version('nimble-engine')}, PyTorch {torch.__version__}")
    write(f"{platform.platform()}, Python {platform.python_version()}")
    write(
        f"CPU: {torch.get_num_threads()} threads, instruction sets: "
        f"{', '.join(_C.instruction_sets())}"
    )
    if why := _C.why_no_cuda():
        write(f"CUDA: {why}")
        return
    write(f"CUDA: built, of PyTorch: {torch.version.cuda}, cuDNN {torch.backends.cudnn.version()}")
    if not torch.cuda.is_available():
        write("no CUDA device is usable here")
    for index in range(torch.cuda.device_count()):
        device = torch.cuda.get_device_properties(index)
        write(
            f"cuda:{index}: {device.name}, sm_{device.major}{device.minor}, "
            f"{device.multi_processor_count} SMs, {device.total_memory / 2**30:.0f} GiB"
        )


def _examine(name, rounds):
    """The cells of a row, and what is wrong."""
    network = models.network(name)
    model = network.build().cuda()
    example, x = torch.randn(2, 1, 3, network.image_size, network.image_size).cuda().unbind()
    one = nimble.Nimble(model, streams=1).prepare(example)
    many = nimble.Nimble(model).prepare(example)
    with torch.no_grad():
        faults = [*one.schedule.verify(), *many.schedule.verify()]
        expected = model(x)
        error = max(_relative(engine(x), expected, expected) for engine in (one, many))
        if not error <= _TOLERANCE:
            faults.append(f"outputs differ from eager's by {error:.1e} of the largest")
        calls = {
            "eager": lambda: model(x),
            "graph": _as_plain_graph(model, x),
            "one": lambda: one(x),
            "many": lambda: many(x),
        }
        times = _time_in_turns(calls, rounds)
        idle = [_idle_share(calls[call]) for call in ("eager", "many")]
    moved = _training_error(model, x)
    if not moved <= _TRAINING_TOLERANCE:
        faults.append(f"parameters differ from eager's by {moved:.1e} of their change")
    cells = [
        f"{error:.1e}",
        f"{moved:.1e}",
        *(f"{times[call]:.3f}" for call in calls),
        f"{many.schedule.streams}",
        f"{times['eager'] / times['many']:.2f}",
        f"{times['graph'] / times['many']:.2f}",
        *("unknown" if share is None else f"{share:.0%}" for share in idle),
    ]
    return cells, faults


def _relative(got, expected, scale):
    """The largest difference, relative to the largest number; compared on the CPU."""
    got, expected, scale = (t.detach().cpu().double() for t in (got, expected, scale))
    difference = (got - expected).abs().max().item()
    return difference / max(scale.abs().max().item(), 1e-30) if difference else 0.0


def _training_error(model, x):
    """By how much parameters differ after three steps, relative to how much they moved."""
    before = [p.detach().clone() for p in model.parameters()]
    trained = []
    for prepared in (False, True):
        torch.manual_seed(0)
        network = copy.deepcopy(model).train()
        for layer in network.modules():  # statistics of one image say nothing
            if isinstance(layer, torch.nn.modules.batchnorm._BatchNorm):
                layer.eval()
        optimizer = torch.optim.SGD(network.parameters(), 1e-3, momentum=0.9)
        step = nimble.TrainStep(network, lambda y, target: (y * y).mean(), optimizer)
        if not prepared:
            step = _eager_step(network, optimizer)
        for _ in range(3):
            step(x, x)
        trained.append([p.detach() for p in network.parameters()])
    change = torch.cat([(a - b).flatten() for a, b in zip(trained[0], before)])
    difference = torch.cat([(a - b).flatten() for a, b in zip(*trained)])
    return _relative(difference, torch.zeros_like(difference), change)


def _eager_step(network, optimizer):
    def step(x, _):
        optimizer.zero_grad()
        y = network(x)
        (y * y).mean().backward()
        optimizer.step()

    return step


def _as_plain_graph(model, x):
    """The model as torch.cuda.graph captures it: on one stream."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            model(x)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        model(x)
    return graph.replay


def _time_in_turns(calls, rounds):
    """Medians of milliseconds on the device, a call of each a round."""
    times = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            call()
            torch.cuda.synchronize()
            begin.record()
            call()
            end.record()
            torch.cuda.synchronize()
            times[name].append(begin.elapsed_time(end))
    return {name: statistics.median(values) for name, values in times.items()}


def _idle_share(call):
    """The share of the time from the first to the last kernel in which none runs, or None."""
    call()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        call()
        torch.cuda.synchronize()
    spans = sorted(
        (event.time_range.start, event.time_range.end)
        for event in profiler.events()
        if event.device_type == DeviceType.CUDA
    )
    if not spans:
        return None
    busy, reached = 0, spans[0][0]
    for start, end in spans:
        busy += max(0, end - max(start, reached))
        reached = max(reached, end)
    total = reached - spans[0][0]
    return 1 - busy / total if total else None
