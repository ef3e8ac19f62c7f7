"""Microseconds for one Python call of an MLP 64-64-64-8, eager and prepared, in turns."""

import statistics
import time

import torch

import nimble

CALLS = 2000
ROUNDS = 15


def microseconds(call, x):
    start = time.perf_counter()
    for _ in range(CALLS):
        call(x)
    return (time.perf_counter() - start) / CALLS * 1e6


def main():
    layers = [torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64), torch.nn.ReLU()]
    model = torch.nn.Sequential(*layers, torch.nn.Linear(64, 8)).eval()
    x = torch.randn(1, 64)
    competitors = {"eager": model, "nimble": nimble.Nimble(model).prepare(x)}
    times = {name: [] for name in competitors}
    with torch.no_grad():
        for _ in range(ROUNDS):
            for name, call in competitors.items():
                times[name].append(microseconds(call, x))
    for name, values in times.items():
        low, middle, high = statistics.quantiles(values, n=4)
        ratio = statistics.median(times["eager"]) / middle
        print(f"{name:<8} {middle:7.2f} us a call (quartiles {low:.2f} {high:.2f}), {ratio:.2f}x eager")


if __name__ == "__main__":
    main()
