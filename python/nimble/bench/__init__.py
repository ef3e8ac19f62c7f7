"""`nimble bench`: Nimble and its peers on the same models, in turns, on this machine.

Every competitor sits in a process of its own, and only one of them runs at any time. Weights and
inputs come from a seed, results are compared with eager PyTorch's, times are medians of many
rounds in which all competitors take turns.

    kinds.py          the two kinds of workload: inference.py and training.py, and what they check
    workloads.py      what is run for inference;  training_workloads.py: what is trained
    competitors/      who runs it, one file each
    child.py          a competitor's process;  process.py: the parent's end of it
    measure.py        one workload: prepare, take turns, sum up
    report.py         tables;  chart.py: the bar chart
"""

import json

from nimble.bench import machine, report
from nimble.bench.measure import Options, measure_workload, steps_of
from nimble.bench.process import ChildFailed

__all__ = ["Options", "run", "steps"]


def steps(names, options):
    return len(names) * steps_of(options)


def run(names, options, progress, json_path=None, chart_prefix=None):
    """Measures, prints a table per workload and one of all, writes files; returns the results."""
    results = {"machine": machine.describe(options.threads), "options": _plain(options)}
    results["workloads"] = []
    for name in names:
        try:
            results["workloads"].append(measure_workload(name, options, progress))
        except ChildFailed as failure:
            results["workloads"].append({"name": name, "reason": str(failure), "results": []})
        progress.finish()
        print(report.of_workload(results["workloads"][-1]), flush=True)
        if json_path:  # after each, so that a run that is cut short leaves something
            with open(json_path, "w") as file:
                json.dump(results, file, indent=1)
                file.write("\n")
    print(report.of_all(results), flush=True)
    if chart_prefix:
        from nimble.bench import chart

        chart.draw(results, chart_prefix)
    return results


def _plain(options):
    return {name: value for name, value in vars(options).items() if name != "threads"}
