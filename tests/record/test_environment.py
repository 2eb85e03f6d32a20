"""What a run records of where it came from: command line, processor, instruction set, and a hash of each series."""

from __future__ import annotations

import hashlib
import json
import platform
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fairtrial.core.command_line import carrying_out
from fairtrial.jobs.run_session import run_cell
from fairtrial.record import environment
from fairtrial.record.environment import of_this_machine, processor, recorded_command_line
from fairtrial.record.metadata import has_usual_shape, load_run, parse_metadata
from fairtrial.record.series import read_series, verify_series
from fairtrial.record.store import Store
from tests.conftest import Answer
from tests.harness import edit_metadata, make, request_for

INTEL = """processor\t: 0
vendor_id\t: GenuineIntel
cpu family\t: 6
model\t\t: 143
model name\t: Intel Xeon Processor
stepping\t: 8
flags\t\t: fpu avx avx2 fma avx512f amx_tile

processor\t: 1
model name\t: never read
"""
ARM = "processor\t: 0\nFeatures\t: fp asimd sve bf16\nCPU implementer\t: 0x41\nCPU architecture: 8\nCPU part\t: 0xd40\n"


def described(cpuinfo: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    read = Path.read_text

    def replaced(path: Path, *arguments: Any, **settings: Any) -> str:
        return cpuinfo if str(path) == "/proc/cpuinfo" else read(path, *arguments, **settings)

    monkeypatch.setattr(Path, "read_text", replaced)
    return processor()


def test_a_processor_is_told_by_more_than_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    assert described(INTEL, monkeypatch) == {
        "cpu": "Intel Xeon Processor",
        "cpu_model": "GenuineIntel family 6 model 143 stepping 8",
        "cpu_features": ["avx", "fma", "avx2", "avx512f", "amx_tile"],
    }
    found = described(ARM, monkeypatch)
    assert found["cpu_model"] == "0x41 architecture 8 part 0xd40"
    assert found["cpu_features"] == ["asimd", "bf16", "sve"]
    assert described("", monkeypatch)["cpu_features"] is None


def test_the_command_line_is_recorded_without_secrets(store: Store, cli: Callable[..., Answer]) -> None:
    token = "ghp_" + "a1" * 20
    words = ["launch", "command", "--seeds", "1,", "--base-run-name", "s", "--", "sh", "-c", "true {seed}", token]
    assert cli(*words).code == 0
    run = store.run("s", "default.seed1")
    assert run is not None
    line = run.metadata["environment"]["command_line"]
    assert line[:4] == ["fairtrial", "launch", "command", "--seeds"] and line[-4:-1] == ["sh", "-c", "true {seed}"]
    assert line[-1].startswith("{env:")
    assert token not in run.path.joinpath("metadata.json").read_text()


def test_a_long_command_line_is_cut() -> None:
    with carrying_out(["fairtrial", "analyze", *(f"study/run-{number}" for number in range(5000))]):
        line = recorded_command_line()
    assert line[:3] == ["fairtrial", "analyze", "study/run-0"] and sum(map(len, line)) < 4100
    assert line[-1] == f"… and {5002 - (len(line) - 1)} more"


def test_a_resumed_run_keeps_the_command_that_began_it(store: Store) -> None:
    job = request_for(store, "fake", steps=4)
    begun = type(job)(job.spec, job.store, {"command_line": ["fairtrial", "first"]})
    assert run_cell(begun, should_stop=lambda: True).status == "interrupted"
    again = type(job)(job.spec, job.store, {"command_line": ["fairtrial", "second"]})
    assert run_cell(again).status == "completed"
    run = store.run("s", "v.seed1")
    assert run is not None and run.metadata["environment"]["command_line"] == ["fairtrial", "first"]


def test_a_run_on_another_machine_records_that_machine() -> None:
    known = {"hostname": "elsewhere", "cpu": "of the launcher", "git_commit": "c" * 40, "command_line": ["fairtrial"]}
    found = of_this_machine(known)
    assert found["hostname"] == platform.node() and found["cpu"] == environment.cpu_name()
    assert found["git_commit"] == "c" * 40 and found["command_line"] == ["fairtrial"]
    here = {"hostname": platform.node(), "cpu": "as given"}
    assert of_this_machine(here) == here


def test_the_instruction_set_of_torch_is_recorded_where_torch_was_used(store: Store) -> None:
    import torch

    make(store, "fake", steps=2)  # torch is loaded in this process
    run = store.run("s", "v.seed1")
    assert run is not None
    assert run.metadata["environment"]["torch_instruction_set"] == torch.backends.cpu.get_cpu_capability()


def test_the_instruction_set_is_null_without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(environment.sys.modules, "torch", raising=False)
    assert environment.torch_instruction_set() is None


def test_each_series_has_a_hash_of_its_steps_and_values(store: Store) -> None:
    make(store, "fake", steps=30, log_every=1)
    paths = store.paths.run("s", "v.seed1")
    recorded = json.loads(paths.metadata.read_bytes())["series_sha256"]
    for name, (steps, values) in read_series(paths).items():
        points = b"".join(struct.pack("<qd", s, v) for s, v in zip(steps.tolist(), values.tolist(), strict=True))
        assert recorded.pop(name) == hashlib.sha256(points).hexdigest()
    assert not recorded


def test_equal_runs_have_equal_hashes_and_other_seeds_do_not(store: Store) -> None:
    for variant, seed in (("v", 1), ("w", 1), ("v", 2)):
        make(store, "fake", steps=5, variant=variant, seed=seed)
    one, same, other = (
        json.loads(store.paths.run("s", run).metadata.read_bytes())["series_sha256"]
        for run in ("v.seed1", "w.seed1", "v.seed2")
    )
    assert one["report_accuracy"] == same["report_accuracy"] != other["report_accuracy"]


def test_a_series_that_reads_differently_is_damage(store: Store) -> None:
    make(store, "fake", steps=5)
    paths = store.paths.run("s", "v.seed1")
    assert verify_series(paths) is None
    hashes = json.loads(paths.metadata.read_bytes())["series_sha256"]
    edit_metadata(paths, series_sha256={**hashes, "train_loss": "0" * 64})
    assert "train_loss do not match their recorded hashes" in str(verify_series(paths))


def test_metadata_of_earlier_versions_is_still_read(store: Store) -> None:
    make(store, "fake", steps=5)
    paths = store.paths.run("s", "v.seed1")
    old = json.loads(paths.metadata.read_bytes())
    del old["series_sha256"], old["checksum"]
    for key in ("command_line", "cpu_model", "cpu_features", "torch_instruction_set"):
        old["environment"].pop(key, None)
    paths.metadata.write_text(json.dumps(old))
    assert has_usual_shape(parse_metadata(paths.metadata.read_bytes(), "old"))
    assert load_run(paths) is not None and verify_series(paths) is None
