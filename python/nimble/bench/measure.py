"""One workload: prepares every competitor, lets them take turns, and sums up."""

import math
import statistics
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from nimble.bench import competitors, kinds
from nimble.bench.process import Child, ChildFailed

#: For everything but `prepare`: long enough for any that is still alive.
_ANSWER_LIMIT_S = 600.0

#: How long to wait for whole cores before a turn, and how many rounds may be played for one in
#: which every turn began and ended with them.
_CORES_LIMIT_S = 2.0
_MOST_TRIES = 3


@dataclass(frozen=True)
class Options:
    threads: int
    rounds: int = 20
    slice_s: float = 0.3  # one turn of one competitor
    prepare_limit_s: float = 300.0
    tune_s: float = 120.0
    max_autotune: bool = False
    kind: str = "inference"
    degrees: bool = False  # of concurrency, which takes recordings of their own
    competitors: tuple = competitors.NAMES


def steps_of(options):
    """How often `measure_workload` calls `progress.step`."""
    return len(options.competitors) + 2


def measure_workload(workload, options, progress):
    """All results of one workload as plain data; fails only if the workload itself does."""
    with tempfile.TemporaryDirectory(prefix="nimble-bench-") as folder, ExitStack() as cleanup:
        match_ = _Match(workload, options, progress, Path(folder), cleanup)
        return match_.play()


class _Match:
    def __init__(self, workload, options, progress, folder, cleanup):
        self._workload = workload
        self._options = options
        self._progress = progress
        self._folder = folder
        self._cleanup = cleanup
        self._kind = kinds.load(options.kind)
        self._shared = folder / "shared"
        self._shared.mkdir()

    def play(self):
        modules = {name: competitors.load(name) for name in self._options.competitors}
        with_onnx = any(map(self._needs_onnx, modules.values()))
        self._progress.step(f"{self._workload}: eager's results, operations, files")
        referee = self._start("referee")
        self._facts = self._ask(
            referee, "describe", self._options.kind, self._workload, self._shared, with_onnx,
            self._options.degrees,
        )  # fmt: skip
        self._referee = referee
        self._peak = self._ask(referee, "fma_peak")

        rows, children = {}, {}
        for name, module in modules.items():
            self._progress.step(f"{self._workload}: preparing {module.LABEL}")
            self._cores_are_whole()  # some choose by measuring
            rows[name] = {"competitor": name, "label": module.LABEL, "status": "ok"}
            try:
                children[name] = self._prepare(name, module, rows[name])
            except ChildFailed as failure:
                rows[name] |= {"status": "failed", "reason": str(failure)}
            except _Missing as reason:
                rows[name] |= {"status": "missing", "reason": str(reason)}

        self._progress.step(f"{self._workload}: timing {len(children)} competitors in turns")
        rounds, whole = self._take_turns(rows, children)
        self._peak = max(self._peak, self._ask(referee, "fma_peak"))
        return self._sum_up(rows, rounds, whole)

    def _needs_onnx(self, module):
        able = competitors.is_available(module) and hasattr(module, self._kind.PREPARE)
        return able and module.FROM_ONNX

    def _start(self, name):
        folder = self._folder / name
        folder.mkdir()
        child = Child(folder, self._options.threads)
        self._cleanup.callback(child.close)
        self._ask(child, "ready")  # what follows does not wait for imports
        return child

    def _ask(self, child, command, *arguments, limit_s=_ANSWER_LIMIT_S):
        return child.ask(command, *arguments, limit_s=limit_s)

    def _prepare(self, name, module, row):
        if lacking := competitors.missing(module):
            raise _Missing(f"not installed: {', '.join(lacking)}")
        if not hasattr(module, self._kind.PREPARE):
            raise _Missing(f"does not do {self._options.kind}")
        if module.FROM_ONNX and self._facts["onnx_error"]:
            raise ChildFailed(self._facts["onnx_error"])
        child = self._start(name)
        options = self._options
        setting = competitors.Setting(
            threads=options.threads,
            prepare_limit_s=options.prepare_limit_s,
            tune_s=options.tune_s,
            max_autotune=options.max_autotune,
            folder=self._folder / name,
        )
        question = "prepare", options.kind, self._workload, name, setting, self._shared
        row |= self._ask(child, *question, limit_s=options.prepare_limit_s)
        if module.FROM_ONNX:
            row["prepare_s"] += self._facts["onnx_s"]
        row |= self._ask(child, "check", self._shared)
        if not row["difference"] <= row["tolerance"]:
            row["status"] = "wrong"
            row["reason"] = f"differs from eager by {row['difference']:.1e}, more than "
            row["reason"] += f"{row['tolerance']:.1e}"
        return child

    def _cores_are_whole(self, wait_s=_CORES_LIMIT_S):
        threads = self._options.threads
        return self._ask(self._referee, "wait_for_cores", threads, self._peak, wait_s)

    def _take_turns(self, rows, children):
        """Seconds of every sample of every round, of those who came through, and which rounds had
        the machine to themselves."""
        rounds = {name: [] for name in children}
        whole = []
        wanted = self._options.rounds
        while sum(whole) < wanted and len(whole) < _MOST_TRIES * wanted:
            self._progress.part(sum(whole), wanted)
            whole.append(True)
            for name in list(rounds):
                whole[-1] &= self._cores_are_whole()
                try:
                    rounds[name].append(self._ask(children[name], "run", self._options.slice_s))
                except ChildFailed as failure:
                    rows[name] |= {"status": "failed", "reason": str(failure)}
                    del rounds[name]
                whole[-1] &= self._cores_are_whole(wait_s=0)
        for name in list(rounds):
            rows[name]["run_peak_mib"] = self._ask(children[name], "run_peak_mib")
        return rounds, whole

    def _sum_up(self, rows, rounds, whole):
        """By the rounds with whole cores; by all, if there are too few of these."""
        facts, threads = self._facts, self._options.threads
        enough = sum(whole) >= min(3, self._options.rounds)
        counted = {
            name: [r for r, good in zip(of_rounds, whole) if good or not enough]
            for name, of_rounds in rounds.items()
        }
        for name, of_rounds in counted.items():
            rows[name] |= _statistics(of_rounds, counted.get("eager"))
            seconds = rows[name]["median_ms"] / 1e3
            rows[name]["share_of_peak"] = facts["flops"] / seconds / (threads * self._peak * 1e9)
        return {
            "name": self._workload,
            **{name: fact for name, fact in facts.items() if not name.startswith("onnx_")},
            "fma_peak_gflops_per_thread": self._peak,
            "rounds_played": len(whole),
            "rounds_with_whole_cores": sum(whole),
            "rounds_counted": sum(whole) if enough else len(whole),
            "paper_speedup": self._kind.PAPER_SPEEDUP.get(self._workload),
            "results": list(rows.values()),
            **_against_fastest_peer(rows),
        }


class _Missing(Exception):
    pass


def _statistics(rounds, eager_rounds):
    """Medians over all samples; the ratio's spread is that of the rounds, each for itself."""
    samples = sorted(sample for of_round in rounds for sample in of_round)
    row = {
        "best_ms": samples[0] * 1e3,
        "median_ms": statistics.median(samples) * 1e3,
        "p10_ms": _quantile(samples, 0.1) * 1e3,
        "p90_ms": _quantile(samples, 0.9) * 1e3,
        "samples": len(samples),
    }
    if eager_rounds:
        eager = statistics.median(sample for of_round in eager_rounds for sample in of_round)
        ratios = sorted(
            statistics.median(theirs) / statistics.median(ours)
            for theirs, ours in zip(eager_rounds, rounds)
        )
        row["speedup"] = eager * 1e3 / row["median_ms"]
        row["speedup_p10"] = _quantile(ratios, 0.1)
        row["speedup_p90"] = _quantile(ratios, 0.9)
    return row


def _quantile(ordered, share):
    """Of sorted values, between the two nearest."""
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


def _against_fastest_peer(rows):
    """How many times as fast Nimble is as the fastest of the others whose results are right."""
    right = {name: row["median_ms"] for name, row in rows.items() if row["status"] == "ok"}
    peers = {name: ms for name, ms in right.items() if name not in competitors.OURS}
    fastest = min(peers, key=peers.get, default=None)
    against = {"fastest_peer": fastest}
    for name in competitors.OURS:
        known = fastest is not None and name in right
        against[f"{name}_to_fastest_peer"] = peers[fastest] / right[name] if known else None
    return against
