"""Identify the run of a script: its seed and config become a cell whose name shows the settings."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fairtrial.core.canonical import content_hash
from fairtrial.core.cells import seed_text
from fairtrial.core.errors import UserError
from fairtrial.core.paths import ADHOC_STUDY, check_name
from fairtrial.core.specs import FIXED_SEEDS, MOST_SEED, RunSpec
from fairtrial.record.metadata import load_metadata
from fairtrial.record.store import Store

RECIPE = "script"
LONGEST_DERIVED = 80
"""Longest derived variant name, in characters: it has to fit into a line of `runs list`."""
_PLAIN_VALUE = re.compile(r"[A-Za-z0-9._+-]{1,24}")
_PLAIN_KEY = re.compile(r"[A-Za-z0-9_.-]{1,30}")


def script_spec(
    seed: int | None, config: Mapping[str, Any], study: str | None, variant: str | None, store: Store
) -> RunSpec:
    """Return the cell of a script. A seed in its config is the run's seed, not a part of its variant.

    Older versions kept the seed in the config and ended the name in a hash. If such a run exists, return its cell.
    """
    own_seed, settings = _apart(seed, config)
    study = check_name("study", study or ADHOC_STUDY)
    name = check_name("variant", variant or derived_name(settings))
    spec = RunSpec(RECIPE, settings, settings, own_seed, study, name)
    earlier_seed = FIXED_SEEDS[0] if seed is None else own_seed
    earlier = RunSpec(RECIPE, config, config, earlier_seed, study, variant or _hashed_name(config))
    return earlier if _is_there(earlier, store) else spec


def _is_there(spec: RunSpec, store: Store) -> bool:
    metadata = load_metadata(store.paths.run(spec.study, spec.run_id))
    return metadata is not None and metadata.fingerprint == spec.fingerprint


def _apart(seed: int | None, config: Mapping[str, Any]) -> tuple[int, dict[str, Any]]:
    """Return the seed of the run and the config without it. Raises if the config has a different seed."""
    given = config.get("seed")
    own = FIXED_SEEDS[0] if seed is None else _checked_seed(seed)
    if given is None:
        return own, {key: value for key, value in config.items() if key != "seed"}
    is_whole = not isinstance(given, list | dict | bool) and seed_text(given).isdigit()
    if seed is not None and (not is_whole or seed_text(given) != str(seed)):
        raise UserError(
            f"config has seed {given!r}, but seed={seed} was passed",
            hint="Pass the seed once, or omit it from config.",
        )
    if not is_whole:
        return own, dict(config)
    return _checked_seed(int(seed_text(given))), {key: value for key, value in config.items() if key != "seed"}


def _checked_seed(seed: Any) -> int:
    if type(seed) is not int or not 0 <= seed <= MOST_SEED:
        raise UserError(f"a seed must be an integer from 0 to 2**63 - 1, not {seed!r}")
    return seed


def derived_name(config: Mapping[str, Any]) -> str:
    """Return the default name of a variant, such as `train-depth=3,lr=0.1`.

    Two configs never share a name: a name that does not show the whole config ends in a hash of it.
    """
    script = _script_name()
    if not config:
        return script
    pairs = {key: _spelled(value) for key, value in sorted(config.items())}
    whole = f"{script}-" + ",".join(f"{key}={text}" for key, text in pairs.items())
    if len(whole) <= LONGEST_DERIVED and all(
        text is not None and _PLAIN_KEY.fullmatch(key) for key, text in pairs.items()
    ):
        return whole
    name, end = script, f"-{content_hash(dict(config))[:8]}"
    mark = "-"
    for key, text in pairs.items():
        part = f"{mark}{key}={text}"
        is_telling = text not in (None, "none", "false") and _PLAIN_KEY.fullmatch(key)
        if is_telling and len(name) + len(part) + len(end) <= LONGEST_DERIVED:
            name, mark = name + part, ","
    return name + end


def _spelled(value: Any) -> str | None:
    """Return a value as part of a name; None if it does not fit or if another value has the same text."""
    if isinstance(value, str):
        is_other = value.lower() in ("true", "false", "none", "null", "nan", "inf") or _is_number(value)
        return value if _PLAIN_VALUE.fullmatch(value) and not is_other else None
    if value is None or isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        text = json.dumps(value)
        return text if len(text) <= 24 else None
    return None


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _hashed_name(config: Mapping[str, Any]) -> str:
    return _script_name() + (f"-{content_hash(dict(config))[:8]}" if config else "")


def _script_name() -> str:
    """Return the script's file name with the characters that are valid in a directory name."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", Path(sys.argv[0]).stem).strip("-._ ")
    return name[:60] or "interactive"
