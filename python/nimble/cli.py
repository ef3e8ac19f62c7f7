"""The command line: nimble demo, nimble inspect, nimble bench, nimble doctor."""

import argparse
import signal
import statistics
import sys
import time
from pathlib import Path

import torch

import nimble
from nimble import bench, doctor, models
from nimble.bench import competitors, kinds, training, training_workloads, workloads


def main(argv=None):
    parser = argparse.ArgumentParser(prog="nimble", description=nimble.__doc__.splitlines()[0])
    commands = parser.add_subparsers(required=True)
    workload_help = "module:function of yours that returns (model, inputs), or one of: "
    workload_help += " ".join(workloads.NAMES)

    demo = commands.add_parser("demo", help="prepare a network, compare with eager PyTorch")
    demo.add_argument("network", nargs="?", default="nasnet_a_mobile", choices=models.NETWORKS)
    demo.add_argument("--rounds", type=int, default=20, help="timed calls of each competitor")
    demo.set_defaults(run=run_demo)

    inspect = commands.add_parser("inspect", help="show what is planned for a model")
    inspect.add_argument(
        "model",
        nargs="?",
        help=f"{workload_help}; with --train as for bench --train; may be left out with --simulate "
        "(all of the paper's networks) and --train (all that bench --train knows)",
    )
    inspect.add_argument(
        "--train", action="store_true", help="a step of training: concurrency and memory of it"
    )
    inspect.add_argument("--streams", type=_streams, default="auto")
    inspect.add_argument("--threads", type=int)
    inspect.add_argument("--timeline", metavar="FILE", help="write one replay, for Perfetto")
    inspect.add_argument("--graph", metavar="FILE", help="write the recorded program (.dot or text)")
    inspect.add_argument(
        "--simulate", metavar="GPU", help="eager, one and many streams on a GPU on paper: v100"
    )
    inspect.set_defaults(run=run_inspect, fail=inspect.error)

    compare = commands.add_parser("bench", help="compare with eager PyTorch and other engines")
    compare.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help=f"{workload_help} (default: all of these); with --train a function that returns "
        "(model, loss_fn, optimizer, batch), or one of: "
        f"{' '.join(training_workloads.NAMES)}, or any other NAME@BATCH",
    )
    compare.add_argument("--train", action="store_true", help="whole steps of training")
    compare.add_argument(
        "--degrees", action="store_true", help="also the degree of concurrency of each pass"
    )
    compare.add_argument("--threads", type=int, default=torch.get_num_threads())
    compare.add_argument("--rounds", type=int, default=20, help="turns of each competitor")
    compare.add_argument(
        "--competitors",
        metavar="A,B",
        help=f"some of {','.join(competitors.NAMES)}, or modules of yours like those",
    )
    compare.add_argument("--json", metavar="FILE", help="write all results")
    compare.add_argument("--chart", metavar="PREFIX", help="draw PREFIX.svg and PREFIX.png")
    compare.add_argument(
        "--prepare-timeout", metavar="S", type=float, default=300, help="give up who takes longer"
    )
    compare.add_argument(
        "--tune", metavar="S", type=float, default=120, help="time for TVM to tune; 0: untuned"
    )
    compare.add_argument("--max-autotune", action="store_true", help="torch.compile searches too")
    compare.add_argument("--quick", action="store_true", help="3 short rounds, nothing tuned")
    compare.set_defaults(run=run_bench, fail=compare.error)

    examine = commands.add_parser("doctor", help="what was built and works; a report for a bug")
    examine.add_argument(
        "networks", nargs="*", metavar="NETWORK", help=f"some of {' '.join(models.NETWORKS)}"
    )
    examine.add_argument("--rounds", type=int, default=20, help="timed calls of each way to run")
    examine.set_defaults(run=run_doctor, fail=examine.error)

    arguments = parser.parse_args(argv)
    return arguments.run(arguments)


def run_demo(arguments):
    net = models.network(arguments.network)
    size = net.image_size
    progress = _Progress(5)

    progress.step(f"building {net.name}, {size}x{size}, random weights")
    model = net.build()
    example, image = torch.randn(2, 1, 3, size, size).unbind()

    progress.step("preparing: one stream")
    one = nimble.Nimble(model, streams=1).prepare(example)
    progress.step("preparing: many streams")
    start = time.perf_counter()
    many = nimble.Nimble(model).prepare(example)
    prepare_s = time.perf_counter() - start

    progress.step("comparing with eager on another image")
    with torch.no_grad():
        expected = model(image)
    differences = [
        ((engine(image) - expected).abs().max() / expected.abs().max()).item()
        for engine in (one, many)
    ]

    progress.step("timing eager, one stream, many streams in turns")
    competitors = {"eager": model, "one stream": one, "many streams": many}
    times = time_in_turns(competitors, (image,), arguments.rounds, progress)
    progress.finish()

    plan = many.schedule
    eager_ms = statistics.median(times["eager"])
    print(f"{net.name}, batch 1, {torch.get_num_threads()} threads, median of {arguments.rounds}\n")
    for name, values in times.items():
        ratio = eager_ms / statistics.median(values)
        print(f"  {name:<13} {statistics.median(values):9.2f} ms   {ratio:5.2f}x eager")
    print(f"\n  one stream against eager: {differences[0]:.1e} of the largest output", end="")
    print(f"; many streams: {differences[1]:.1e}")
    print(f"  {plan.framework_tasks} of {plan.tasks} tasks are PyTorch's ops, the others our kernels")
    print(f"  {plan.tasks} tasks on {plan.streams} streams with {plan.waits} waits", end="")
    print(f"; the plan is {'proven free of races' if not plan.verify() else 'FAULTY'}")
    print(f"  degree of concurrency {plan.degree}", end="")
    print(f" ({plan.logical_streams} streams, {plan.logical_waits} waits if there were room)")
    print(f"  memory: arena {_mib(plan.arena_bytes)}, a replay's peak {_mib(plan.peak_bytes)}", end="")
    print(f", eager's peak {_mib(plan.framework_peak_bytes)}")
    print(f"  prepared in {prepare_s:.2f} s (recorded {plan.record_ms:.0f} ms,", end=" ")
    print(f"planned {plan.plan_ms:.0f} ms, measured {plan.measure_ms:.0f} ms)")
    return 0 if max(differences) < 1e-3 else 1  # what Winograd's algorithm may cost


def run_inspect(arguments):
    if arguments.train:
        return run_inspect_training(arguments)
    try:
        arguments.model = arguments.model and _workload_name(arguments.model)
    except ValueError as error:
        arguments.fail(str(error))
    if arguments.simulate:
        return run_simulation(arguments)
    if not arguments.model:
        arguments.fail("a model is needed")
    workload = workloads.load(arguments.model)
    model, inputs = workload.model, workload.inputs
    engine = nimble.Nimble(model, streams=arguments.streams, threads=arguments.threads)
    engine.prepare(*inputs)
    print(engine.explain(), end="")
    plan = engine.schedule
    print(f"\ndegree of concurrency {plan.degree}; with room for every stream: ", end="")
    print(f"{plan.logical_streams} streams, {plan.logical_waits} waits")
    faults = plan.verify()
    print("proven free of races" if not faults else "\n".join(faults))
    if arguments.timeline:
        plan.save_timeline(arguments.timeline)
    if arguments.graph:
        plan.save_graph(arguments.graph)
    return 1 if faults else 0


def run_inspect_training(arguments):
    """A table of the degree of concurrency of the passes, and of a step's memory."""
    if arguments.simulate or arguments.timeline or arguments.graph:
        arguments.fail("--train goes with --streams and --threads only")
    try:
        names = training_workloads.expand(arguments.model) if arguments.model else None
    except ValueError as error:
        arguments.fail(str(error))
    names = names or training_workloads.NAMES
    progress = _Progress(len(names))
    rows = []
    faults = []
    for name in names:
        progress.step(f"recording {name}")
        job, batch = training_workloads.load(name)
        plans = training.plans_of_passes(job, batch)
        step = nimble.record(
            job.step, *batch, streams=arguments.streams, threads=arguments.threads
        )
        if arguments.model and len(names) == 1:
            print(step.explain())
        faults += step.schedule.verify()
        rows.append(_training_row(name, plans, step.schedule))
    progress.finish()
    _print_table(rows)
    print("\n".join(faults) or "\nproven free of races")
    return 1 if faults else 0


def _training_row(name, plans, planned):
    of_plan = lambda show: [show(p) if p else "refused" for p in plans.values()]
    degrees, waits = of_plan(lambda p: f"{p.degree}"), of_plan(lambda p: f"{p.logical_waits}")
    ours = planned.tasks - planned.framework_tasks
    return {
        "step of training": name,
        "degree: forward": degrees[0],
        "backward": degrees[1],
        "step": degrees[2],
        "waits": waits[2],
        "peak: eager": _mib(planned.framework_peak_bytes),
        "PyTorch's kernels": _mib(plans["step"].peak_bytes) if plans["step"] else "refused",
        "ours": _mib(planned.peak_bytes) if ours else planned.why_framework_kernels,
        "our tasks": f"{ours} of {planned.tasks}",
        "streams": f"{planned.streams}",
    }


def _print_table(rows):
    for cells in (rows[0].keys(), ["---"] * len(rows[0]), *(row.values() for row in rows)):
        print(f"| {' | '.join(cells)} |")


def run_simulation(arguments):
    """A table of what the recorded programs would take; see docs/simulation.md."""
    if arguments.timeline and not arguments.model:
        arguments.fail("--timeline is of one model")
    names = [arguments.model] if arguments.model else list(models.NETWORKS)
    progress = _Progress(len(names))
    rows = []
    for name in names:
        progress.step(f"recording {name}")
        workload = workloads.load(name)
        engine = nimble.Nimble(workload.model, streams=1, kernels="torch")
        plan = engine.prepare(*workload.inputs).schedule
        try:
            simulated = plan.simulate(arguments.simulate)
        except nimble.NimbleError as error:
            arguments.fail(str(error))
        rows.append(_simulated_row(name, plan, simulated))
    progress.finish()
    if arguments.timeline:
        Path(arguments.timeline).write_text(simulated.timeline)
    print(f"{arguments.simulate} on paper: estimated, not measured; see docs/simulation.md\n")
    _print_table(rows)
    return 0


def _simulated_row(name, plan, simulated):
    eager, one, many = simulated.eager, simulated.one_stream, simulated.many_streams
    paper = workloads.PAPER_SPEEDUP.get(name)
    return {
        "network": name,
        "ops": f"{plan.tasks}",
        "GFLOP": f"{simulated.flops / 1e9:.2f}",
        "eager ms": f"{eager.total_ms:.2f}",
        "GPU idle": f"{eager.idle_share:.0%}",
        "one stream ms": f"{one.total_ms:.2f}",
        "x eager": f"{eager.total_ms / one.total_ms:.2f}",
        "degree": f"{plan.degree}",
        "waits": f"{simulated.waits}",
        "many streams ms": f"{many.total_ms:.2f}",
        "x one stream": f"{one.total_ms / many.total_ms:.2f}",
        "8 streams ms": f"{simulated.capped.total_ms:.3f}",
        "launch order": f"{simulated.launch_order.total_ms:.3f}",
        "priorities": f"{simulated.priorities.total_ms:.3f}",
        "SMs busy, one and many": f"{one.sm_share:.0%}, {many.sm_share:.0%}",
        "both, x eager": f"{eager.total_ms / many.total_ms:.2f}",
        "paper, x eager": f"{paper:.2f}" if paper else "",
    }


def run_bench(arguments):
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that temporary files are removed
    kind_name = "training" if arguments.train else "inference"
    kind = kinds.load(kind_name)
    try:
        names = [n for name in arguments.names or kind.NAMES for n in kind.expand(name)]
    except ValueError as error:
        arguments.fail(str(error))
    options = bench.Options(
        threads=arguments.threads,
        rounds=3 if arguments.quick else arguments.rounds,
        slice_s=0.1 if arguments.quick else 0.3,
        prepare_limit_s=arguments.prepare_timeout,
        tune_s=0 if arguments.quick else arguments.tune,
        max_autotune=arguments.max_autotune,
        kind=kind_name,
        degrees=arguments.degrees,
        competitors=tuple((arguments.competitors or ",".join(kind.COMPETITORS)).split(",")),
    )
    progress = _Progress(bench.steps(names, options))
    results = bench.run(names, options, progress, arguments.json, arguments.chart)
    rows = [row for workload in results["workloads"] for row in workload["results"]]
    failed = any("reason" in workload for workload in results["workloads"])
    return 1 if failed or any(row["status"] == "wrong" for row in rows) else 0


def run_doctor(arguments):
    names = arguments.networks or list(models.NETWORKS)
    for name in set(names) - set(models.NETWORKS):
        arguments.fail(f"unknown network {name!r}; choose from {', '.join(models.NETWORKS)}")
    return 0 if doctor.report(names, arguments.rounds) else 1


def time_in_turns(competitors, inputs, rounds, progress=None):
    """Milliseconds of each call, one call of each competitor a round.

    Before it the competitor runs until the caches are its own and the idle threads of the one
    before have stopped spinning (PyTorch's go on for some 15 ms).
    """
    times = {name: [] for name in competitors}
    with torch.no_grad():
        for round_number in range(rounds):
            if progress:
                progress.part(round_number + 1, rounds)
            for name, call in competitors.items():
                turn = time.perf_counter()
                while True:
                    start = time.perf_counter()
                    call(*inputs)
                    end = time.perf_counter()
                    if start - turn > 0.03:
                        break
                times[name].append((end - start) * 1e3)
    return times


class _Progress:
    """Says on the terminal what is going on; silent lines in a log."""

    def __init__(self, steps):
        self._steps = steps
        self._step = 0
        self._text = ""
        self._live = sys.stderr.isatty()

    def step(self, text):
        self._step += 1
        self._text = f"[{self._step}/{self._steps}] {text}"
        self._show(self._text, end="" if self._live else "\n")

    def part(self, done, of):
        if self._live:
            bar = "#" * (20 * done // of)
            self._show(f"{self._text} [{bar:<20}]", end="")

    def finish(self):
        if self._live:
            self._show("", end="")

    def _show(self, text, end):
        print(f"\r\033[K{text}" if self._live else text, end=end, file=sys.stderr, flush=True)


def _workload_name(text):
    if ":" not in text and text not in workloads.NAMES:
        known = ", ".join(workloads.NAMES)
        raise ValueError(f"{text!r} is neither module:function nor one of {known}")
    return text


def _streams(text):
    return text if text == "auto" else int(text)


def _mib(size):
    return f"{size / 2**20:.2f} MiB"
