"""What bench found, for people: the headline first, then where the time goes, what it costs, and what would help."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fairtrial.cli._lab import plain_table
from fairtrial.cli._pieces import show_cautions
from fairtrial.core.formatting import counted, shown_hours, shown_memory, shown_value

if TYPE_CHECKING:
    from rich.console import Console

    from fairtrial.api.benchmarking.baselines import AgainstBaseline
    from fairtrial.api.benchmarking.bench import Bench
    from fairtrial.api.benchmarking.bench_noise import NoiseScale
    from fairtrial.api.benchmarking.bench_pairs import SpeedPair
    from fairtrial.api.benchmarking.bench_rates import LearningRates
    from fairtrial.api.benchmarking.bench_sizes import BatchSizes
    from fairtrial.core.findings import Estimate
    from fairtrial.probe.monitor import Monitored


def show_bench(console: Console, found: Bench, against: AgainstBaseline | None) -> None:
    console.print(_headline(found), style="bold", markup=False)
    if against:
        console.print(str(against.compared), style="red" if against.regressed else None, markup=False)
        then, now = against.code
        console.print(f"Commits: baseline {then}, now {now}.", markup=False)
    if found.steady:
        console.print(f"Step time: {', '.join(_times(found))}.", markup=False)
    console.print()
    _show_phases(console, found)
    console.print()
    for line in _expenses(found):
        console.print(line, markup=False)
    if found.sizes:
        _show_sizes(console, found.sizes)
    if found.rates:
        _show_rates(console, found.rates)
    if found.suggestions:
        console.print()
        console.print("What would be faster:", style="bold")
        for each in found.suggestions:
            console.print(f"  {each}", markup=False)
    show_cautions(console, [*found.cautions, *(against.cautions if against else ())])


def show_pair(console: Console, found: SpeedPair) -> None:
    console.print(str(found.compared), style="bold", markup=False)
    table = plain_table("Round", *found.seconds, "Ratio")
    for number, times in enumerate(zip(*found.seconds.values(), strict=True)):
        table.add_row(str(number + 1), *(f"{1e3 * each:.4g} ms" for each in times), f"{times[1] / times[0]:.3f}")
    console.print(table)
    console.print(f"Milliseconds per {found.unit}, in turns A B B A.", markup=False)
    show_cautions(console, found.cautions)


def _headline(found: Bench) -> str:
    rate = found.throughput
    if rate.value is None or not found.sufficient:
        return f"Insufficient: {counted(len(found.steps), 'step')} of {found.recipe}, too few to measure."
    decimals = 0 if rate.value >= 100 else 3
    shown = f"{rate.value:,.{decimals}f} {rate.unit}{_limits(rate, decimals)}"
    return f"{found.recipe}: {shown}, {counted(len(found.steady), 'steady step')}."


def _limits(estimate: Estimate, decimals: int, factor: float = 1.0) -> str:
    if estimate.low is None and estimate.high is None:
        return ""
    ends = ["…" if end is None else f"{factor * end:,.{decimals}f}" for end in (estimate.low, estimate.high)]
    return f" [{ends[0]}, {ends[1]}]"


def _ends(estimate: Estimate) -> tuple[float | None, float | None]:
    return estimate.low, estimate.high


def _times(found: Bench) -> list[str]:
    quantiles = {f"p{100 * share:g}": found.quantile(share) for share in (0.5, 0.95, 0.99)}
    named = {"mean": found.times.mean(found.alpha), **quantiles}
    return [
        f"{name} {1000 * each.value:.3f} ms{_limits(each, 3, 1000)}"
        for name, each in named.items()
        if each.value is not None
    ]


def _show_phases(console: Console, found: Bench) -> None:
    from rich.text import Text

    several = found.breakdown is not None and found.breakdown.batches not in (None, 1)
    table = plain_table("Phase", "ms per step", *(["ms per batch"] if several else []), "Share", "")
    for row in found.phase_rows():
        share = "" if row["share"] is None else f"{100 * row['share']:.1f} %"
        per_batch = [f"{row['ms_per_batch']:.3f}"] if several else []
        near = "near the timer" if row["near_timer"] else ""
        table.add_row(*(Text(cell) for cell in (row["phase"], f"{row['ms_per_step']:.3f}", *per_batch, share, near)))
    console.print(table)


def _expenses(found: Bench) -> Iterator[str]:
    resources = found.resources
    if found.epoch is not None and found.epoch.value is not None:
        value, *ends = (None if x is None else shown_hours(x / 3600) for x in (found.epoch.value, *_ends(found.epoch)))
        limits = f" [{ends[0]}, {ends[1]}]" if None not in ends else ""
        yield f"An epoch of {resources['steps_per_epoch']:,} steps: {value}{limits}."
    if resources.get("tensor_bytes"):
        kinds = ", ".join(f"{name} {_memory(size)}" for name, size in resources["tensor_bytes"].items() if size)
        yield f"Memory of tensors: {_memory(resources['peak_tensor_bytes'])} ({kinds})."
    if resources.get("peak_process_bytes"):
        yield f"Memory of the process: {_memory(resources['peak_process_bytes'])} at most."
    if resources.get("flops_per_step"):
        yield _arithmetic(found)
    if resources.get("parameters"):
        trained = resources["trainable_parameters"]
        part = "" if trained == resources["parameters"] else f", of which {trained:,} are trained"
        yield f"Parameters: {resources['parameters']:,}{part}."
    if found.monitored:
        yield from _monitored(found.monitored)
    if found.noise:
        yield _noise(found.noise)
    yield f"Timer: {1e6 * found.event_seconds:.2f} µs per event."
    if found.trace:
        yield f"Trace of {counted(len(found.traced), 'step')}: {found.trace} (open it in Perfetto)."


def _memory(size: float) -> str:
    return shown_memory(size / 1e9)


def _arithmetic(found: Bench) -> str:
    flops, mean = found.resources["flops_per_step"], found.times.mean(found.alpha).value
    rate = f", {flops / mean / 1e9:.3g} GFLOP/s" if mean else ""
    part = found.utilisation
    used = ""
    if part is not None and part.value is not None and found.peak is not None:
        used = f": {100 * part.value:.0f} % of the {found.peak.best:.3g} that were seen here"
    return f"Arithmetic: {flops / 1e6:,.3g} MFLOP per step{rate}{used}."


def _monitored(found: Monitored) -> Iterator[str]:
    busy = "" if found.cpu_percent is None else f"{found.cpu_percent:.0f} % of one core, "
    switches = f"{found.voluntary_switches:,} waits, {found.involuntary_switches:,} times pushed aside"
    yield f"Processor: {busy}{switches} in {counted(found.steps, 'step')}."
    if found.rss_bytes:
        yield f"Resident memory: {_memory(max(found.rss_bytes))} at most in {counted(len(found.rss_bytes), 'look')}."
    if found.gpu_unavailable:
        yield f"GPU: unavailable: {found.gpu_unavailable}."
    for card in found.cards():
        yield f"GPU {card['name']}: {card['load_percent']:.0f} % busy, {_memory(card['memory_bytes'])} at most."


def _noise(found: NoiseScale) -> str:
    scale = found.scale
    if scale.value is None:
        return f"Gradient noise scale: unknown ({scale.reason})."
    return (
        f"Gradient noise scale: {scale.value:,.0f} examples{_limits(scale, 0)}, from {found.measurements} measurements "
        f"of {found.pieces} × {found.batch} after {counted(found.step, 'step')}."
    )


def _show_sizes(console: Console, found: BatchSizes) -> None:
    console.print()
    table = plain_table("Batch size", "ms per step", "Examples/s", "Tensors", "")
    for row in found.rows:
        if row.reason is not None or row.throughput is None or row.throughput.value is None or row.step_s is None:
            table.add_row(f"{row.size:,}", "", "", "", "out of memory" if row.out_of_memory else "not measured")
            continue
        rate = f"{row.throughput.value:,.0f}{_limits(row.throughput, 0)}"
        size = "" if row.tensor_bytes is None else _memory(row.tensor_bytes)
        table.add_row(f"{row.size:,}", f"{1000 * row.step_s:.3f}", rate, size, "")
    console.print(table)
    if found.knee and found.knee.knee.value is not None:
        console.print(
            f"Knee: {found.knee.knee.value:,.0f} examples{_limits(found.knee.knee, 0)}: there a step's fixed "
            f"{1000 * found.knee.fixed:.3g} ms are half of its time.",
            markup=False,
        )
    if found.largest is not None:
        console.print(f"Largest by memory: {found.largest:,} at most ({found.largest_basis}).", markup=False)


def _show_rates(console: Console, found: LearningRates) -> None:
    console.print()
    table = plain_table("Learning rate", "Applied", f"Loss after {found.steps} steps", "Diverged")
    for row in found.rows:
        applied = "" if row.applied is None else f"{row.applied:.3g}" + ("" if row.verified else " (not as asked)")
        loss = f"{shown_value(row.loss.value)}{_limits(row.loss, 3)}"
        table.add_row(f"{row.rate:g}", applied, loss, f"{row.diverged} of {row.runs}")
    console.print(table)
    if found.lowest:
        console.print(f"Lowest loss after {found.steps} steps: {found.lowest.rate:g}.", markup=False)
