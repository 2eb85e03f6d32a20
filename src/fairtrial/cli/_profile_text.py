"""Profiles for people: the headline, where the time goes on each lane, what was waited for, and what the caches did."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fairtrial.cli._lab import plain_table
from fairtrial.cli._pieces import show_cautions
from fairtrial.core.words import counted, shown_memory

if TYPE_CHECKING:
    from rich.console import Console

    from fairtrial.api.profile_diff import ProfileDiff
    from fairtrial.core.expressions import Outcome

UNKNOWN = "–"


def show_profile(console: Console, document: Mapping[str, Any]) -> None:
    console.print(_headline(document), style="bold", markup=False)
    console.print()
    _show_lanes(console, document)
    console.print()
    _show_answers(console, document["inference"])
    console.print()
    for line in _lines(document):
        console.print(line, markup=False)
    show_cautions(console, document["cautions"])
    console.print(f"Snapshot: {document['snapshot']}", markup=False)
    console.print(f"Trace: {document['trace']}", markup=False)


def _headline(document: Mapping[str, Any]) -> str:
    rates = document["tokens_per_second"]
    told = [f"{name} {value:,.0f}" for name, value in rates.items() if value is not None]
    times = document["step_ms"]
    interval = "" if times["low"] is None else f" [{times['low']:,.1f}, {times['high']:,.1f}]"
    steps = counted(document["steps"], "step")
    pace = f"{times['mean']:,.1f} ms per step{interval}, {steps}"
    return f"{document['name']}: {pace}; tokens per second: {', '.join(told)}."


def _show_lanes(console: Console, document: Mapping[str, Any]) -> None:
    """A column per lane. Phases, residual and idle time add up to the window."""
    lanes = document["lanes"]
    names = list(dict.fromkeys(name for lane in lanes.values() for name in lane["phases_ms"]))
    table = plain_table("Phase", *(f"{name}, ms" for name in lanes), "Share of the window")
    window = document["bubbles"]["window_ms"]
    for name in names:
        taken = [lane["phases_ms"].get(name) for lane in lanes.values()]
        share = sum(each or 0.0 for each in taken) / window / len(lanes) if len(lanes) == 1 else None
        shown = [UNKNOWN if each is None else f"{each:,.1f}" for each in taken]
        shares = " + ".join(f"{100 * each / window:.1f} %" for each in taken if each is not None)
        table.add_row(name.removesuffix("_ms"), *shown, shares if share is None else f"{100 * share:.1f} %")
    idle = [lane["idle_ms"] for lane in lanes.values()]
    shares = " + ".join(f"{100 * each / window:.1f} %" for each in idle)
    table.add_row("idle", *(f"{each:,.1f}" for each in idle), shares)
    console.print(table)


def _show_answers(console: Console, inference: Mapping[str, Any]) -> None:
    table = plain_table(
        "Decision", "Requests", "Prompt tokens", "Written", "Queue ms", "Prefill ms", "Decode ms", "p95 ms"
    )
    for kind, each in inference.items():
        p95 = each["latency_ms"]["p95"]
        numbers = [f"{each[name]:,}" for name in ("requests", "prompt_tokens", "completion_tokens")]
        times = [f"{each[name]:.2f}" for name in ("queue_ms", "prefill_ms", "decode_ms")]
        table.add_row(kind, *numbers, *times, UNKNOWN if p95 is None else f"{p95:.2f}")
    console.print(table)


def _lines(document: Mapping[str, Any]) -> Iterator[str]:
    busy = document["tokens_per_busy_second"]
    yield "Tokens per busy second: " + _listed(busy, ",.0f") + "."
    bubbles = document["bubbles"]
    parts = {
        name.removesuffix("_ms").replace("_", " "): value for name, value in bubbles.items() if name != "window_ms"
    }
    yield "Of the window: " + ", ".join(f"{n} {100 * v / bubbles['window_ms']:.1f} %" for n, v in parts.items()) + "."
    lag, depth = document["policy_lag_steps"], document["buffer_depth"]
    yield f"Policy lag: {_listed(lag, 'g')} of {document['max_policy_lag_steps']} allowed."
    yield f"Buffer: {_listed(depth, '.3g')}."
    yield (
        "Caches: " + ", ".join(f"{name.replace('_', ' ')} {value:,}" for name, value in document["cache"].items()) + "."
    )
    memory = document["memory"]
    playing = memory["peak_player_bytes"]
    extra = "" if playing is None else f", {shown_memory(playing / 1e9)} per process that plays"
    yield f"Memory: {shown_memory(memory['peak_process_bytes'] / 1e9)} at most{extra}."
    gpu = document["hardware"]["gpu"]
    if isinstance(gpu, dict):
        yield f"GPU: unavailable, {gpu['unavailable']}."
    else:
        yield "GPU: " + ", ".join(f"{each['name']} {each['load_percent']:.0f} %" for each in gpu) + "."


def _listed(values: Mapping[str, float | None], form: str) -> str:
    return ", ".join(f"{name} {UNKNOWN if value is None else format(value, form)}" for name, value in values.items())


def show_diff(console: Console, found: ProfileDiff) -> None:
    console.print(str(found.compared), style="bold", markup=False)
    table = plain_table("Per step", *found.names, "B / A")
    for name, (a, b) in found.per_step.items():
        table.add_row(name.replace("_", " "), f"{a:,.1f}", f"{b:,.1f}", f"{b / a:.3f}" if a else UNKNOWN)
    console.print(table)
    for name, (a, b) in found.settings.items():
        console.print(f"{name}: {a} → {b}", markup=False)
    show_cautions(console, found.cautions)


def show_checks(console: Console, found: Sequence[Outcome]) -> None:
    for each in found:
        mark, style = ("✓", "green") if each.holds else ("✗", "red")
        console.print(f"{mark} {each}", style=style, markup=False)
