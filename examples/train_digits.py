#!/usr/bin/env python3
"""Trains a small convolutional network on scikit-learn's handwritten digits.

    examples/train_digits.py              # with Nimble and in eager mode, from the same seed
    examples/train_digits.py --nimble     # one of the two
    examples/train_digits.py --eager
"""

import argparse
import sys

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import cross_entropy

import nimble

BATCH = 64  # the last batch of an epoch is smaller; it is recorded for itself


def data():
    digits = load_digits()
    x = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
    y = torch.tensor(digits.target)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    return (x[order[:1400]], y[order[:1400]]), (x[order[1400:]], y[order[1400:]])


def network():
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Dropout(0.2), nn.Linear(32 * 16, 10),
    )  # fmt: skip


def eager_step(model, loss_fn, optimizer):
    def step(x, y):
        optimizer.zero_grad()
        loss = loss_fn(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def train(make_step, epochs, label):
    """Returns the accuracy on the test set, and all losses."""
    torch.manual_seed(0)
    (x, y), (test_x, test_y) = data()
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
    steps = epochs * -(-len(x) // BATCH)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    step = make_step(model, cross_entropy, optimizer)  # the one line that differs
    losses = []
    for _ in range(epochs):
        for chosen in torch.randperm(len(x)).split(BATCH):
            losses.append(step(x[chosen], y[chosen]))
            schedule.step()
            show_progress(label, len(losses), steps, losses[-1])
    model.eval()
    with torch.no_grad():
        accuracy = (model(test_x).argmax(1) == test_y).float().mean().item()
    return accuracy, torch.stack(losses)


def show_progress(label, done, of, loss):
    if sys.stderr.isatty():
        bar = "#" * (30 * done // of)
        end = "\n" if done == of else ""
        print(f"\r{label:<7}[{bar:<30}] loss {loss:.4f}", end=end, file=sys.stderr, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--nimble", action="store_true", help="with Nimble only")
    only.add_argument("--eager", action="store_true", help="without Nimble only")
    only.add_argument("--compare", action="store_true", help="both; the default")
    parser.add_argument("--epochs", type=int, default=10)
    arguments = parser.parse_args()

    results = {}
    if not arguments.nimble:
        results["eager"] = train(eager_step, arguments.epochs, "eager")
    if not arguments.eager:
        results["nimble"] = train(nimble.TrainStep, arguments.epochs, "nimble")
    for name, (accuracy, losses) in results.items():
        print(f"{name:<7} test accuracy {accuracy:.4f}, last loss {losses[-1]:.5f}")
    if len(results) == 2:
        (_, eager), (_, ours) = results.values()
        print(f"largest difference of a loss: {(eager - ours).abs().max():.1e}")


if __name__ == "__main__":
    main()
