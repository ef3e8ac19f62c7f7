"""Tables for the terminal."""

from nimble.bench.competitors import OURS

_COLUMNS = (
    f"  {'':<21} {'median ms':>10} {'10-90 %':>17} {'x eager':>8} {'10-90 %':>13} {'check':>8}"
    f" {'prepare s':>10} {'MiB prepare/run':>16} {'of peak':>8}"
)


def of_workload(workload):
    """One line per competitor."""
    if "reason" in workload:
        return f"\n{workload['name']}: {workload['reason']}\n"
    lines = ["", _title(workload), _COLUMNS]
    lines += [_line(row) for row in workload["results"]]
    if degrees := workload.get("degrees"):
        text = ", ".join(f"{name.replace('_', ' + ')} {d or 'refused'}" for name, d in degrees.items())
        lines.append(f"  degree of concurrency: {text}")
    if moves := workload.get("moves_of_losses"):
        text = ", ".join(f"{name.replace('_', ' ')} {move:.0e}" for name, move in moves.items())
        lines.append(f"  check: losses; what moves eager's by how much: {text}")
    if workload["fastest_peer"]:
        ratios = [
            f"{name} {ratio:.2f}x that"
            for name in OURS
            if (ratio := workload[f"{name}_to_fastest_peer"])
        ]
        lines.append("; ".join([f"  fastest peer: {workload['fastest_peer']}", *ratios]))
    whole, played = workload["rounds_with_whole_cores"], workload["rounds_played"]
    line = f"  {whole} of {played} rounds had every core to themselves"
    counted = workload["rounds_counted"]
    lines.append(line + ("; only those count" if counted == whole else "; too few, so ALL count"))
    return "\n".join(lines) + "\n"


def of_all(results):
    """How many times as fast as eager, one line per workload."""
    workloads = [w for w in results["workloads"] if w["results"]]
    labels = {r["competitor"]: r["label"] for w in workloads for r in w["results"]}
    if not labels:
        return ""
    widths = {name: max(9, len(label)) for name, label in labels.items()}
    head = "".join(f"  {label:>{widths[name]}}" for name, label in labels.items())
    lines = [f"\n{'x eager':<20}{'eager ms':>9}{head}  {'x best peer':>11}  {'paper':>6}"]
    for workload in workloads:
        rows = {row["competitor"]: row for row in workload["results"]}
        cells = "".join(f"  {_speedup(rows[name]):>{widths[name]}}" for name in labels)
        ours = workload["nimble_many_streams_to_fastest_peer"]
        eager_ms = rows.get("eager", {}).get("median_ms")
        lines.append(
            f"{workload['name']:<20}{_number(eager_ms, '9.3f')}{cells}"
            f"  {_number(ours, '11.2f')}  {_number(workload['paper_speedup'], '6.2f')}"
        )
    machine = results["machine"]
    lines.append(f"{machine['threads']} threads, {machine['processor']}; paper: on a V100")
    return "\n".join(lines)


def _title(workload):
    shapes = ", ".join("x".join(map(str, shape)) for shape in workload["inputs"])
    title = f"{workload['name']}: {shapes}, {workload['flops'] / 1e9:.4g} GFLOP"
    title += f", {workload['parameters'] / 1e6:.3g} M parameters"
    title += f", FMA peak {workload['fma_peak_gflops_per_thread']:.1f} GFLOP/s a thread"
    if paper := workload["paper_speedup"]:
        title += f"; the paper has {paper}x on a V100"
    return title


def _line(row):
    name = f"  {row['label']:<21} "
    if "median_ms" not in row:
        return f"{name}{row['status']}: {row['reason']}"
    spread = f"{row['p10_ms']:.3f}-{row['p90_ms']:.3f}"
    ratio, ratio_spread = "", ""
    if "speedup" in row:
        ratio = f"{row['speedup']:.2f}"
        ratio_spread = f"{row['speedup_p10']:.2f}-{row['speedup_p90']:.2f}"
    check = "WRONG" if row["status"] == "wrong" else f"{row['difference']:.0e}"
    memory = f"{row['prepare_peak_mib']:.0f}/{row['run_peak_mib']:.0f}"
    share = f"{100 * row['share_of_peak']:.0f} %"
    line = f"{name}{row['median_ms']:>10.3f} {spread:>17} {ratio:>8} {ratio_spread:>13} {check:>8}"
    line += f" {row['prepare_s']:>10.2f} {memory:>16} {share:>8}  {row['settings']}"
    return line + (f"  ({row['reason']})" if "reason" in row else "")


def _speedup(row):
    if row["status"] != "ok":
        return row["status"]
    return f"{row['speedup']:.2f}" if "speedup" in row else f"{row['median_ms']:.3f} ms"


def _number(value, form):
    return format(value, form) if value is not None else format("-", ">" + form.split(".")[0])
