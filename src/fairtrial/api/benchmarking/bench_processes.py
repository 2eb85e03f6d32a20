"""Measure in a separate process, so that the result includes the variation between processes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fairtrial.api.benchmarking.bench_runs import STOPPED, BenchTerms
from fairtrial.api.running.launch import option_words
from fairtrial.core.errors import EXIT_CHECK, Interrupted, RunsFailed
from fairtrial.core.paths import is_url
from fairtrial.core.registry import LoadedRecipe
from fairtrial.record.store_location import store_address


def step_seconds(
    recipe: LoadedRecipe,
    options: Mapping[str, Any],
    terms: BenchTerms,
    *,
    file: Path | None = None,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> float:
    """Return the mean time of a steady step. `file`, `cwd` and `env` select other code than the current one."""
    command = _command(recipe, options, terms, file)
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)
    if terms.should_stop():  # Ctrl-C reaches the child process as well
        raise Interrupted(STOPPED)
    if done.returncode not in (0, EXIT_CHECK):
        message = (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[0].removeprefix("Error: ")
        raise RunsFailed(f"{recipe.name} could not be measured: {message}")
    try:
        value = json.loads(done.stdout)["step_time"]["mean"]["value"]
    except (ValueError, KeyError):
        raise RunsFailed(f"{recipe.name} could not be measured: its output cannot be parsed") from None
    if value is None:
        raise RunsFailed(f"{recipe.name} could not be measured: no steady step", hint="Raise --max-batches.")
    return float(value)


def _command(recipe: LoadedRecipe, options: Mapping[str, Any], terms: BenchTerms, file: Path | None) -> list[str]:
    words, _ = option_words(options, recipe)
    own = ["--max-batches", str(terms.steps), "--seed", str(terms.seed), "--no-trials", "--quiet"]
    own += ["--whole-steps"] * terms.whole_steps + ["--run-validation"] * terms.validation
    address = store_address(terms.store)
    place = ["--store", address if is_url(address) else str(Path(address).resolve())]
    word = str(file or recipe.file or recipe.name)
    return [sys.executable, "-m", "fairtrial", "bench", word, *words, *own, *place, "--format", "json"]
