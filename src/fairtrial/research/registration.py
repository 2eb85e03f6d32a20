"""A registration: the full plan of a study, its hash, and who signed it. One file, named by the hash.

The file is spelled in one way only, so that any byte that is changed in it is found.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from fairtrial.core.canonical import content_hash
from fairtrial.core.errors import CheckFailed, UserError
from fairtrial.core.paths import is_name
from fairtrial.core.schema import REGISTRATION_SCHEMA
from fairtrial.research.seeds import SEEDS, derive_seeds

KIND = "registration"
TEXT_ONLY = "text only"
KEYS = {"fairtrial", "schema", "plan", "sha256", "signature"}
PLAN_KEYS = {
    "amends", "analysis", "artifact", "basis", "code", "command", "exclusions", "hypothesis", "late", "methods",
    "seeds", "signer", "stopping_rule", "study", "time",
}  # fmt: skip
STUDY_KEYS = {"arms", "name", "recipe", "recipe_sha256"}
ARM_KEYS = {"data", "declared", "identity", "options"}
SEEDS_KEYS = {"count", "derived", "given", "list"}
ANALYSIS_KEYS = {
    "alpha", "candidates", "control", "direction", "family", "method", "metrics", "resamples", "seed", "sesoi", "side",
    "summary", "unpaired",
}  # fmt: skip
SUMMARY_KEYS = {"percent", "percent_window", "points", "threshold", "type", "window"}
LAST_MOMENT = 253402300800.0
"""The year 10000, which calendars here do not know."""
_SHA256 = re.compile(r"[0-9a-f]{64}")
_SIGNATURE = re.compile(r"[0-9a-f]{128}")

Plan = Mapping[str, Any]


@dataclass(frozen=True)
class Registration:
    """A registration as it stands in its file. Whether it is intact is for `verify_registration` to say."""

    path: Path
    plan: Plan
    sha256: str
    signature: str

    @property
    def name(self) -> str:
        """Enough of the hash for people to tell registrations apart."""
        return self.sha256[:12]

    @property
    def study(self) -> str | None:
        return self.plan["study"]["name"] if self.plan["study"] else None

    @property
    def is_text_only(self) -> bool:
        return bool(self.plan["basis"] == TEXT_ONLY)

    @property
    def late(self) -> list[Mapping[str, Any]]:
        """The runs that were there already when this was registered."""
        return list(self.plan["late"])

    @property
    def derives_seeds(self) -> bool:
        return bool(self.plan["seeds"] and self.plan["seeds"]["derived"])

    @property
    def seeds(self) -> list[int]:
        """The registered seeds; derived ones follow from the hash."""
        told = self.plan["seeds"]
        if told is None:
            return []
        return self.derived(SEEDS, told["count"]) if told["derived"] else list(told["list"])

    def derived(self, stream: str, count: int) -> list[int]:
        return derive_seeds(self.sha256, stream, count)


def signed_text(sha256: str) -> bytes:
    """What is signed: the hash, and what it is the hash of."""
    return f"fairtrial registration {REGISTRATION_SCHEMA}\n{sha256}\n".encode()


def plan_hash(plan: Plan) -> str:
    return content_hash(plan)


def spell(plan: Plan, sha256: str, signature: str) -> bytes:
    """The one way to write a registration down."""
    document = {
        "fairtrial": KIND, "schema": REGISTRATION_SCHEMA, "plan": plan, "sha256": sha256, "signature": signature,
    }  # fmt: skip
    return (json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n").encode()


class NotARegistration(UserError):
    """The bytes are none, or are not spelled as they were written."""


def parse(content: bytes, path: Path) -> Registration:
    """The registration that these bytes spell, or one sentence on why they spell none."""
    document = _document(content, path)
    plan = document["plan"]
    signed = _SHA256.fullmatch(str(document["sha256"])) and _SIGNATURE.fullmatch(str(document["signature"]))
    if not signed or not _is_plan(plan):
        raise NotARegistration(f"{path.name} is damaged: it has not the parts of a registration")
    found = Registration(path, plan, document["sha256"], document["signature"])
    if spell(found.plan, found.sha256, found.signature) != content:
        raise NotARegistration(f"{path.name} was changed: it is not spelled as it was written")
    return found


def _is_plan(plan: Any) -> bool:
    """Whether it has the parts that readers rely on, each of its kind."""
    if not isinstance(plan, dict) or plan.keys() != PLAN_KEYS:
        return False
    executable = (plan["study"], plan["seeds"], plan["analysis"])
    fits = executable == (None, None, None) if plan["basis"] == TEXT_ONLY else _is_executable(*executable)
    return (
        bool(_SHA256.fullmatch(str(plan["signer"]))) and fits
        and _is_moment(plan["time"]) and isinstance(plan["late"], list) and isinstance(plan["exclusions"], list)
        and all(isinstance(run, dict) and run.keys() == {"run", "began"} and _is_moment(run["began"])
                for run in plan["late"])
        and all(isinstance(plan[key], dict) for key in ("artifact", "code"))
    )  # fmt: skip


def _is_executable(study: Any, seeds: Any, analysis: Any) -> bool:
    if not all(isinstance(part, dict) for part in (study, seeds, analysis)):
        return False
    keys = (study.keys(), seeds.keys(), analysis.keys()) == (STUDY_KEYS, SEEDS_KEYS, ANALYSIS_KEYS)
    if not keys or not isinstance(study["arms"], dict) or not isinstance(analysis["summary"], dict):
        return False
    listed = seeds["list"]
    return (
        all(is_name(name) for name in (study["name"], *study["arms"]))
        and all(isinstance(arm, dict) and arm.keys() == ARM_KEYS for arm in study["arms"].values())
        and analysis["summary"].keys() == SUMMARY_KEYS and type(seeds["count"]) is int and seeds["count"] > 0
        and (listed is None if seeds["derived"] is True else isinstance(listed, list) and len(listed) == seeds["count"])
        and all(type(seed) is int for seed in listed or ())
    )  # fmt: skip


def _is_moment(value: Any) -> bool:
    return isinstance(value, float) and 0 <= value < LAST_MOMENT


def _document(content: bytes, path: Path) -> dict[str, Any]:
    try:
        document = json.loads(content.decode(), parse_constant=_refuse)
    except (ValueError, RecursionError):
        cut = content.startswith(b'{\n  "fairtrial"') and not content.endswith(b"}\n")
        why = "is cut off: its end is missing" if cut else "is not a registration: it cannot be read as JSON"
        raise NotARegistration(f"{path.name} {why}") from None
    if not isinstance(document, dict) or document.get("fairtrial") != KIND:
        raise NotARegistration(f"{path.name} is not a registration")
    if document.get("schema") != REGISTRATION_SCHEMA or document.keys() != KEYS:
        raise NotARegistration(
            f"{path.name} has schema {document.get('schema')!r} or parts that this Fairtrial does not know"
        )
    return document


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)


def read_registration(path: Path) -> Registration:
    """An intact registration, for those who are to act on it; who signed it is not asked here."""
    found = parse(read_bytes(path), path)
    if plan_hash(found.plan) != found.sha256:
        raise CheckFailed(f"{path.name} was changed: its content has another hash than it states")
    return found


def read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise UserError(f"no registration {path}", hint="They are listed in registrations/ledger.jsonl.") from None
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from None
