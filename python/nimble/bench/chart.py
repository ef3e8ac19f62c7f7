"""The bar chart, in the manner of figure 7 of the paper: speed against PyTorch, per network.

    python -m nimble.bench.chart docs/bench.json docs/results     # draws it again
"""

import json
import sys

_COLOURS = {
    "eager": "#9a9a9a",
    "torch_compile": "#e8a33d",
    "onnxruntime": "#c96f4a",
    "openvino": "#8b6bb1",
    "executorch": "#5aa08c",
    "tvm": "#b7b13c",
    "nimble_one_stream": "#8fb8e0",
    "nimble_many_streams": "#1f5fa8",
}


def draw(results, prefix):
    """Writes PREFIX.svg and PREFIX.png."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    workloads = [w for w in results["workloads"] if any("speedup" in r for r in w["results"])]
    labels = {r["competitor"]: r["label"] for w in workloads for r in w["results"]}
    width = 0.86 / max(1, len(labels))
    figure, axes = pyplot.subplots(figsize=(max(4.0, 1.25 * len(workloads) + 1.5), 4.2))
    for place, (name, label) in enumerate(labels.items()):
        offset = (place - (len(labels) - 1) / 2) * width
        bars = {
            group + offset: row
            for group, workload in enumerate(workloads)
            for row in workload["results"]
            if row["competitor"] == name and row["status"] == "ok" and "speedup" in row
        }
        heights = [row["speedup"] for row in bars.values()]
        spread = [
            [max(0, row["speedup"] - row["speedup_p10"]) for row in bars.values()],
            [max(0, row["speedup_p90"] - row["speedup"]) for row in bars.values()],
        ]
        axes.bar(
            list(bars),
            heights,
            width * 0.95,
            label=label,
            color=_COLOURS.get(name),
            yerr=spread,
            error_kw={"elinewidth": 0.6, "ecolor": "#444444"},
        )
        if name == "nimble_many_streams":
            for x, row in bars.items():
                axes.annotate(
                    f"{row['speedup']:.1f}",
                    (x, max(row["speedup"], row["speedup_p90"])),
                    textcoords="offset points",
                    xytext=(0, 2),
                    ha="center",
                    fontsize=7,
                )
    machine = results["machine"]
    axes.axhline(1, color="#555555", linewidth=0.8, zorder=0)
    axes.set_xticks(range(len(workloads)), [w["name"] for w in workloads], rotation=20, ha="right")
    axes.set_ylabel("times the speed of PyTorch eager")
    kind = results.get("options", {}).get("kind", "inference")
    what = "Whole steps of training" if kind == "training" else "Batch 1"
    axes.set_title(
        f"{what}, float32, {machine['threads']} threads, {machine['processor']}", fontsize=10
    )
    axes.spines[["top", "right"]].set_visible(False)
    axes.margins(x=0.01)
    axes.legend(
        ncols=4 if len(workloads) > 5 else 2,
        fontsize=8,
        frameon=False,
        loc="upper left",
        bbox_to_anchor=(0, -0.28),
    )
    for kind in ("svg", "png"):
        figure.savefig(f"{prefix}.{kind}", dpi=150, bbox_inches="tight", metadata=_undated(kind))
    pyplot.close(figure)


def _undated(kind):
    """Drawing the same results again gives the same file."""
    return {"Date": None} if kind == "svg" else {}


if __name__ == "__main__":
    with open(sys.argv[1]) as file:
        draw(json.load(file), sys.argv[2])
