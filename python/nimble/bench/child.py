"""The process that one competitor sits in: does what it is told over a pipe.

    python -m nimble.bench.child FILE_DESCRIPTOR
"""

import ctypes
import gc
import importlib
import math
import os
import signal
import sys
import time
import traceback
from multiprocessing.connection import Connection

import torch

import nimble
from nimble.bench import competitors, inference, kinds

#: A call shorter than this is timed together with its neighbours: reading the clock costs 50 ns.
_SAMPLE_S = 200e-6

#: A core that gives less than this share of its peak is shared with somebody.
_WHOLE_CORE = 0.9


class Commands:
    """What the parent may ask for; each answer is plain data."""

    def ready(self):
        """Once everything is imported."""

    def describe(self, kind, workload, shared, with_onnx, with_degrees):
        return kinds.load(kind).describe(workload, shared, with_onnx, with_degrees)

    def fma_peak(self, threads=1):
        """GFLOP/s of each of the threads, all of them at work."""
        return nimble._C.measure_fma_peak_gflops(threads)

    def wait_for_cores(self, threads, peak, limit_s):
        """Loads all cores until each gives its peak; False if they do not in time.

        Virtual cores that were idle may be put on the same real one, and stay there for a while.
        """
        end = time.perf_counter() + limit_s
        while self.fma_peak(threads) < _WHOLE_CORE * peak:
            if time.perf_counter() > end:
                return False
        return True

    def prepare(self, kind, workload, competitor, setting, shared):
        self._kind = kinds.load(kind)
        competitor = competitors.load(competitor)
        for name in competitor.REQUIRES:
            importlib.import_module(name)
        if competitor.FROM_ONNX:
            subject, inputs = inference.onnx_path(shared), inference.saved_inputs(shared)
            before = _memory("VmRSS")
        else:
            before = _memory("VmRSS")
            subject, inputs = self._kind.load(workload)

        start = time.perf_counter()
        self._prepared = getattr(competitor, self._kind.PREPARE)(subject, inputs, setting)
        self._call = self._kind.timed(self._prepared, inputs)
        with self._prepared.mode():
            self._call()
        prepare_s = self._prepared.prepare_s
        if prepare_s is None:
            prepare_s = time.perf_counter() - start

        self._memory_before = before
        # A model that is only needed to prepare is freed; what is trained is looked at later.
        self._subject = subject if self._kind is not inference else None
        return {
            "settings": self._prepared.settings,
            "details": self._prepared.details,
            "prepare_s": prepare_s,
            "prepare_peak_mib": _memory("VmHWM") - before,
        }

    def check(self, shared):
        """Against eager; nothing that is timed has run before."""
        answer = self._kind.check(self._prepared, self._subject, shared)
        self._subject = None
        gc.collect()
        _reset_memory_peak()
        return answer

    def run(self, slice_s):
        """Seconds of each call, for about `slice_s`, after some that wake threads and caches."""
        call, clock = self._call, time.perf_counter
        with self._prepared.mode():
            one = _repeat(call, 1, clock, slice_s / 5, 2, slice_s)[-1]
            calls = max(1, math.ceil(_SAMPLE_S / one))
            return _repeat(call, calls, clock, slice_s, 3, 10 * slice_s)

    def run_peak_mib(self):
        return _memory("VmHWM") - self._memory_before


def _repeat(call, calls, clock, seconds, samples_at_least, seconds_at_most):
    samples, end = [], clock() + seconds
    last = end - seconds + seconds_at_most
    while (start := clock()) < end or (len(samples) < samples_at_least and start < last):
        for _ in range(calls):
            call()
        samples.append((clock() - start) / calls)
    return samples


def _memory(field):
    """MiB, of the lines of /proc/self/status."""
    with open("/proc/self/status") as status:
        line = next(line for line in status if line.startswith(field + ":"))
    return int(line.split()[1]) / 1024


def _reset_memory_peak():
    with open("/proc/self/clear_refs", "w") as control:
        control.write("5")


def _die_with_parent():
    """Also when stopped, and so unable to see that the pipe is closed."""
    parent_death_signal = 1  # PR_SET_PDEATHSIG
    ctypes.CDLL(None).prctl(parent_death_signal, signal.SIGKILL)


def main():
    _die_with_parent()
    connection = Connection(int(sys.argv[1]))
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    commands = Commands()
    while True:
        try:
            name, arguments = connection.recv()
        except EOFError:
            return
        try:
            answer = ("done", getattr(commands, name)(*arguments))
        except Exception as error:
            traceback.print_exc()
            answer = ("failed", f"{type(error).__name__}: {error}")
        connection.send(answer)


if __name__ == "__main__":
    main()
