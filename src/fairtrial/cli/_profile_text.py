"""Text output of `profile`: the headline, the time per phase and lane, waiting times, caches and device."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fairtrial.cli._pieces import show_cautions
from fairtrial.cli._tables import plain_table
from fairtrial.core.formatting import counted, shown_memory

if TYPE_CHECKING:
    from rich.console import Console

    from fairtrial.api.benchmarking.profile_diff import ProfileDiff
    from fairtrial.core.conditions import ConditionResult

UNKNOWN = "–"
LAST = ("residual_ms", "idle")


def show_profile(console: Console, document: Mapping[str, Any]) -> None:
    """Print a profile: lanes, inference requests, lag and buffer, quality, caches and device."""
    console.print(_headline(document), style="bold", markup=False)
    _show_tracks(console, document)
    if document["inference"]:
        _show_answers(console, document["inference"])
    if document["mode"] == "e2e":
        _show_lines(console, "Lag and buffer", _waiting(document))
    if document.get("quality"):
        _show_lines(console, "Quality of play, on the positions of the seed", _quality_lines(document["quality"]))
    _show_lines(console, "Caches and device", _device(document))
    console.print()
    show_cautions(console, document["cautions"])
    console.print(f"Snapshot: {document['snapshot']}", markup=False)
    console.print(f"Trace: {document['trace']}", markup=False)


def _show_title(console: Console, title: str) -> None:
    console.print()
    console.print(title, style="bold", markup=False)


def _show_lines(console: Console, title: str, lines: Iterable[str]) -> None:
    _show_title(console, title)
    for line in lines:
        console.print(line, markup=False)


def _headline(document: Mapping[str, Any]) -> str:
    times = document["step_ms"]
    interval = "" if times["low"] is None else f" [{times['low']:,.1f}, {times['high']:,.1f}]"
    pace = f"{times['mean']:,.1f} ms per step{interval}, {counted(document['steps'], 'step')}"
    rates = {name: value for name, value in document["tokens_per_second"].items() if value is not None}
    return f"{document['name']}: {pace}; tokens per second: {_listed(rates, ',.0f')}."


def _show_tracks(console: Console, document: Mapping[str, Any]) -> None:
    """Print the time per phase with one column per lane. Phases, residual and idle time add up to the window."""
    tracks, window = document["lanes"], document["bubbles"]["window_ms"]
    _show_title(console, f"Where the {window:,.0f} ms went")
    table = plain_table("Phase", *(f"{name}, ms" for name in tracks))
    spent = [{**track["phases_ms"], "idle": track["idle_ms"]} for track in tracks.values()]
    names = dict.fromkeys(name for track in spent for name in track)
    for name in [*(each for each in names if each not in LAST), *LAST]:
        cells = [
            f"{track[name]:,.1f} ({100 * track[name] / window:4.1f} %)" if name in track else UNKNOWN for track in spent
        ]
        table.add_row(name.removesuffix("_ms"), *cells)
    console.print(table)


def _show_answers(console: Console, inference: Mapping[str, Any]) -> None:
    _show_title(console, "Inference requests: total tokens and ms per request")
    table = plain_table("Decision", "n", "Prompts", "Written", "Queue", "Prefill", "Decode", "p95")
    for kind, each in inference.items():
        p95 = each["latency_ms"]["p95"]
        numbers = [f"{each[name]:,}" for name in ("requests", "prompt_tokens", "completion_tokens")]
        times = [f"{each[name]:.2f}" for name in ("queue_ms", "prefill_ms", "decode_ms")]
        table.add_row(kind, *numbers, *times, UNKNOWN if p95 is None else f"{p95:.1f}")
    console.print(table)


def _waiting(document: Mapping[str, Any]) -> Iterator[str]:
    bubbles = document["bubbles"]
    shares = {
        name.removesuffix("_ms").replace("_", " "): 100 * value / bubbles["window_ms"]
        for name, value in bubbles.items()
        if name not in ("window_ms", "training_waited_ms")
    }
    waited = 100 * bubbles["training_waited_ms"] / bubbles["window_ms"]
    yield f"Share of time: {', '.join(f'{name} {share:.1f} %' for name, share in shares.items())}."
    yield (
        f"Training waited {waited:.1f} % of the time for rollouts; the table above shows how long generation was idle."
    )
    yield f"Policy lag: {_listed(document['policy_lag_steps'], '.3g')} of {document['max_policy_lag_steps']} allowed."
    yield from _buffer_lines(document["buffer_depth"], document.get("buffer_limit"))


def _buffer_lines(depth: Mapping[str, Any], limit: Mapping[str, str] | None) -> Iterator[str]:
    """Describe the buffer depth and what limited it. Snapshots of earlier versions lack the limit."""
    shown = ", ".join(f"{name} {_form(depth[name], '.3g')}" for name in ("min", "mean", "max"))
    allowed = f", {depth['allowed']} allowed" if depth.get("allowed") is not None else ""
    yield f"Buffer: {shown} waiting rollouts; configured {depth['configured']}{allowed}."
    if limit is not None:
        yield f"Buffer is limited by {limit['by'].replace('_', ' ')}: {limit['reason']}."


def _quality_lines(quality: Mapping[str, Any]) -> Iterator[str]:
    n = counted(len(quality["legal"]), "position")
    yield f"Legal orders with unconstrained decoding: {100 * quality['legal_share']:.1f} % of {n}."
    yield f"Reward of {counted(quality['decisions'], 'decision')}: {quality['reward_mean']:.3g} on average."


def _device(document: Mapping[str, Any]) -> Iterator[str]:
    if document["cache"]:
        caches = {name.replace("_", " "): value for name, value in document["cache"].items()}
        yield f"Caches: {_listed(caches, ',')}."
    yield f"Tokens per busy second: {_listed(document['tokens_per_busy_second'], ',.0f')}."
    memory, gpu = document["memory"], document["hardware"]["gpu"]
    playing = memory["peak_player_bytes"]
    extra = "" if playing is None else f", {shown_memory(playing / 1e9)} per rollout process"
    yield f"Peak memory: {shown_memory(memory['peak_process_bytes'] / 1e9)}{extra}."
    if isinstance(gpu, dict):
        yield f"GPU: unavailable, {gpu['unavailable']}."
    else:
        yield "GPU: " + ", ".join(f"{each['name']} {each['load_percent']:.0f} %" for each in gpu) + "."


def _listed(values: Mapping[str, float | None], form: str) -> str:
    return ", ".join(f"{name} {_form(value, form)}" for name, value in values.items())


def _form(value: float | None, form: str) -> str:
    return UNKNOWN if value is None else format(value, form)


def show_diff(console: Console, profile_diff: ProfileDiff) -> None:
    console.print(str(profile_diff.compared), style="bold", markup=False)
    table = plain_table("Per step", *profile_diff.names, "B / A")
    for name, (a, b) in profile_diff.per_step.items():
        table.add_row(name.replace("_", " "), f"{a:,.1f}", f"{b:,.1f}", f"{b / a:.3f}" if a else UNKNOWN)
    for name, (a, b) in profile_diff.tokens_per_second.items():
        table.add_row(f"{name} tokens per second", f"{a:,.0f}", f"{b:,.0f}", f"{b / a:.3f}")
    console.print(table)
    for line in _changes(profile_diff):
        console.print(line, markup=False)
    for name, (a, b) in profile_diff.settings.items():
        console.print(f"{name}: {a} → {b}", markup=False)
    show_cautions(console, profile_diff.cautions)


def _changes(profile_diff: ProfileDiff) -> Iterator[str]:
    """Describe the change of legality and reward on the same positions, and whether it is a significant drop."""
    from fairtrial.api.benchmarking.profile_diff import shown_change

    for each in (profile_diff.quality or {}).values():
        verdict = "significant drop" if each.falls else "no significant drop"
        change = f"{each.a:.3g} → {each.b:.3g}, {shown_change(each)}"
        yield f"{each.name[0].upper()}{each.name[1:]}: {change} on {each.n} positions: {verdict}."


def show_checks(console: Console, condition_results: Sequence[ConditionResult]) -> None:
    for each in condition_results:
        mark, style = ("✓", "green") if each.holds else ("✗", "red")
        console.print(f"{mark} {each.text}", style=style, markup=False)
