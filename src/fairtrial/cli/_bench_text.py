"""Text output of `bench`: the headline, the time per phase, the resources used, and suggested speed-ups."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fairtrial.cli._pieces import show_cautions
from fairtrial.cli._tables import Column, plain_table
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


def show_bench(console: Console, bench: Bench, against: AgainstBaseline | None) -> None:
    console.print(_headline(bench), style="bold", markup=False)
    if against:
        console.print(str(against.compared), style="red" if against.regressed else None, markup=False)
        then, now = against.code
        console.print(f"Commits: baseline {then}, now {now}.", markup=False)
    if bench.steady:
        console.print(f"Step time: {', '.join(_times(bench))}.", markup=False)
    console.print()
    _show_phases(console, bench)
    console.print()
    for line in _expenses(bench):
        console.print(line, markup=False)
    if bench.sizes:
        _show_sizes(console, bench.sizes)
    if bench.rates:
        _show_rates(console, bench.rates)
    if bench.suggestions:
        console.print()
        console.print("Suggested speed-ups:", style="bold")
        for each in bench.suggestions:
            console.print(f"  {each}", markup=False)
    show_cautions(console, [*bench.cautions, *(against.cautions if against else ())])


def show_pair(console: Console, speed_pair: SpeedPair) -> None:
    console.print(str(speed_pair.compared), style="bold", markup=False)
    table = plain_table("Round", *speed_pair.seconds, "Ratio")
    for number, times in enumerate(zip(*speed_pair.seconds.values(), strict=True)):
        table.add_row(str(number + 1), *(f"{1e3 * each:.4g} ms" for each in times), f"{times[1] / times[0]:.3f}")
    console.print(table)
    console.print(f"Milliseconds per {speed_pair.unit}; the order of runs is A B B A.", markup=False)
    show_cautions(console, speed_pair.cautions)


def _headline(bench: Bench) -> str:
    rate = bench.throughput
    if rate.value is None or not bench.sufficient:
        return f"Insufficient: {counted(len(bench.steps), 'step')} of {bench.recipe} are too few to measure."
    decimals = 0 if rate.value >= 100 else 3
    shown = f"{rate.value:,.{decimals}f} {rate.unit}{_limits(rate, decimals)}"
    return f"{bench.recipe}: {shown}, {counted(len(bench.steady), 'steady step')}."


def _limits(estimate: Estimate, decimals: int, factor: float = 1.0) -> str:
    if estimate.low is None and estimate.high is None:
        return ""
    ends = ["…" if end is None else f"{factor * end:,.{decimals}f}" for end in (estimate.low, estimate.high)]
    return f" [{ends[0]}, {ends[1]}]"


def _ends(estimate: Estimate) -> tuple[float | None, float | None]:
    return estimate.low, estimate.high


def _times(bench: Bench) -> list[str]:
    quantiles = {f"p{100 * share:g}": bench.quantile(share) for share in (0.5, 0.95, 0.99)}
    named = {"mean": bench.times.mean(bench.alpha), **quantiles}
    return [
        f"{name} {1000 * each.value:.3f} ms{_limits(each, 3, 1000)}"
        for name, each in named.items()
        if each.value is not None
    ]


def _show_phases(console: Console, bench: Bench) -> None:
    several = bench.breakdown is not None and bench.breakdown.batches not in (None, 1)
    table = plain_table("Phase", "ms per step", *(["ms per batch"] if several else []), "Share", Column("", left=True))
    for row in bench.phase_rows():
        share = "" if row["share"] is None else f"{100 * row['share']:.1f} %"
        per_batch = [f"{row['ms_per_batch']:.3f}"] if several else []
        near = "near timer overhead" if row["near_timer"] else ""
        table.add_row(row["phase"], f"{row['ms_per_step']:.3f}", *per_batch, share, near)
    console.print(table)


def _expenses(bench: Bench) -> Iterator[str]:
    resources = bench.resources
    if bench.epoch is not None and bench.epoch.value is not None:
        value, *ends = (None if x is None else shown_hours(x / 3600) for x in (bench.epoch.value, *_ends(bench.epoch)))
        limits = f" [{ends[0]}, {ends[1]}]" if None not in ends else ""
        yield f"An epoch of {resources['steps_per_epoch']:,} steps: {value}{limits}."
    if resources.get("tensor_bytes"):
        kinds = ", ".join(f"{name} {_memory(size)}" for name, size in resources["tensor_bytes"].items() if size)
        yield f"Peak tensor memory: {_memory(resources['peak_tensor_bytes'])} ({kinds})."
    if resources.get("peak_process_bytes"):
        yield f"Peak process memory: {_memory(resources['peak_process_bytes'])}."
    if resources.get("flops_per_step"):
        yield _arithmetic(bench)
    if resources.get("parameters"):
        trained = resources["trainable_parameters"]
        part = "" if trained == resources["parameters"] else f", {trained:,} of them trainable"
        yield f"Parameters: {resources['parameters']:,}{part}."
    if bench.monitored:
        yield from _monitored(bench.monitored)
    if bench.noise:
        yield _noise(bench.noise)
    yield f"Timer overhead: {1e6 * bench.event_seconds:.2f} µs per event."
    if bench.trace:
        yield f"Trace of {counted(len(bench.traced), 'step')}: {bench.trace} (open it in Perfetto)."


def _memory(size: float) -> str:
    return shown_memory(size / 1e9)


def _arithmetic(bench: Bench) -> str:
    flops, mean = bench.resources["flops_per_step"], bench.times.mean(bench.alpha).value
    rate = f", {flops / mean / 1e9:.3g} GFLOP/s" if mean else ""
    part = bench.utilisation
    used = ""
    if part is not None and part.value is not None and bench.peak is not None:
        used = f": {100 * part.value:.0f} % of the {bench.peak.best:.3g} GFLOP/s measured on this machine"
    return f"Arithmetic: {flops / 1e6:,.3g} MFLOP per step{rate}{used}."


def _monitored(monitored: Monitored) -> Iterator[str]:
    busy = "" if monitored.cpu_percent is None else f"{monitored.cpu_percent:.0f} % of one core, "
    switches = (
        f"{monitored.voluntary_switches:,} voluntary and "
        f"{monitored.involuntary_switches:,} involuntary context switches"
    )
    yield f"CPU: {busy}{switches} in {counted(monitored.steps, 'step')}."
    if monitored.rss_bytes:
        yield (
            f"Peak resident memory: {_memory(max(monitored.rss_bytes))} in "
            f"{counted(len(monitored.rss_bytes), 'sample')}."
        )
    if monitored.gpu_unavailable:
        yield f"GPU: unavailable: {monitored.gpu_unavailable}."
    for card in monitored.cards():
        yield f"GPU {card['name']}: {card['load_percent']:.0f} % busy, peak memory {_memory(card['memory_bytes'])}."


def _noise(noise_scale: NoiseScale) -> str:
    scale = noise_scale.scale
    if scale.value is None:
        return f"Gradient noise scale: unknown ({scale.reason})."
    return (
        f"Gradient noise scale: {scale.value:,.0f} examples{_limits(scale, 0)}, from "
        f"{counted(noise_scale.measurements, 'measurement')} "
        f"of {noise_scale.pieces} × {noise_scale.batch} after {counted(noise_scale.step, 'step')}."
    )


def _show_sizes(console: Console, batch_sizes: BatchSizes) -> None:
    console.print()
    table = plain_table("Batch size", "ms per step", "Examples/s", "Tensors", Column("", left=True))
    for row in batch_sizes.rows:
        if row.reason is not None or row.throughput is None or row.throughput.value is None or row.step_s is None:
            table.add_row(f"{row.size:,}", "", "", "", "out of memory" if row.out_of_memory else "not measured")
            continue
        rate = f"{row.throughput.value:,.0f}{_limits(row.throughput, 0)}"
        size = "" if row.tensor_bytes is None else _memory(row.tensor_bytes)
        table.add_row(f"{row.size:,}", f"{1000 * row.step_s:.3f}", rate, size, "")
    console.print(table)
    if batch_sizes.knee and batch_sizes.knee.knee.value is not None:
        console.print(
            f"Knee: {batch_sizes.knee.knee.value:,.0f} examples{_limits(batch_sizes.knee.knee, 0)}: "
            "at this size the fixed cost of a step, "
            f"{1000 * batch_sizes.knee.fixed:.3g} ms, is half of its time.",
            markup=False,
        )
    if batch_sizes.largest is not None:
        console.print(
            f"Memory limits the batch size to {batch_sizes.largest:,} ({batch_sizes.largest_basis}).", markup=False
        )


def _show_rates(console: Console, learning_rates: LearningRates) -> None:
    console.print()
    table = plain_table("Learning rate", "Applied", f"Loss after {counted(learning_rates.steps, 'step')}", "Diverged")
    for row in learning_rates.rows:
        applied = "" if row.applied is None else f"{row.applied:.3g}" + ("" if row.verified else " (not as given)")
        loss = f"{shown_value(row.loss.value)}{_limits(row.loss, 3)}"
        table.add_row(f"{row.rate:g}", applied, loss, f"{row.diverged} of {row.runs}")
    console.print(table)
    if learning_rates.lowest:
        console.print(
            f"Lowest loss after {counted(learning_rates.steps, 'step')}: {learning_rates.lowest.rate:g}.", markup=False
        )
