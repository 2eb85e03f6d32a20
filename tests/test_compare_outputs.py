"""`tools/compare_outputs.py`: two recordings of one tree are equal, and whatever differs is found and named."""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from tools import compare_outputs
from tools.compare_outputs import Comparison, blanked, compare, read_commands, record

from tests.conftest import Answer

RUN = {"status": "completed", "final": {"accuracy": 0.25}, "hint": "Try 3 seeds.", "checksum": "aa"}


def recording(folder: Path, **files: bytes) -> Path:
    for name, content in {"about.json": b"{}", **files}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder


def difference(before: bytes, after: bytes, *, name: str = "metadata.json", **allowed: bool) -> list[str]:
    result = Comparison(**allowed)
    result.contents(name, before, after)
    return [each.what for each in result.differences]


def as_zip(**members: bytes) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, content in members.items():
            archive.writestr(zipfile.ZipInfo(name), content)
    return packed.getvalue()


@pytest.mark.slow
def test_two_recordings_of_this_tree_are_equal_and_a_planted_digit_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compare_outputs, "WORK", tmp_path / "work")
    source = Path(compare_outputs.__file__).parent.parent
    for name in ("before", "after"):
        assert record(source, tmp_path / name, only=["train.fake", "init.as-json"]) == 0
    before, after = tmp_path / "before", tmp_path / "after"
    assert (before / "commands/train.fake/exit").read_text() == "0\n"
    assert not compare(before, after).differences
    [metadata] = after.glob("files/lab/runs/made-up/*/metadata.json")
    document = json.loads(metadata.read_bytes())
    assert document["environment"]["hostname"] == "fixed-host" and document["timings"]["created"] % 1 == 0.25
    document["final"]["report_accuracy"] += 1e-9
    metadata.write_text(json.dumps(document, indent=2))
    [found] = compare(before, after).differences
    assert found.where.endswith("metadata.json") and found.what.startswith("final.report_accuracy: ")


def test_every_kind_of_difference_is_named() -> None:
    one = json.dumps(RUN).encode()
    assert difference(one, one) == []
    changed = json.dumps({**RUN, "final": {"accuracy": 0.250001}}).encode()
    assert difference(one, changed) == ["final.accuracy: 0.25 → 0.250001"]
    assert difference(b'{"n": 1}', b'{"n": 1.0}') == ["n: 1 → 1.0"]
    renamed = one.replace(b"status", b"state")
    assert difference(one, renamed) == ["status is missing in the second", "state is missing in the first"]
    assert difference(b'{"a": 1, "b": 2}', b'{"b": 2, "a": 1}') == ["document: the order of the keys differs"]
    assert "bytes differ, but not what is in them" in difference(one, json.dumps(RUN, indent=1).encode())[0]
    assert difference(b'{"a":1}\n{"a":2}\n', b'{"a":1}\n{"a":3}\n', name="metrics.jsonl") == ["[1].a: 2 → 3"]
    assert difference(b"\x00\xff1", b"\x00\xff2", name="a.parquet") == ["3 and 3 bytes, which differ from byte 2 on"]
    assert difference(b"mean 0.1\n", b"mean 0.2\n", name="stdout") == ["text\n-mean 0.1\n+mean 0.2"]
    assert difference(as_zip(a=b"1", b=b"x"), as_zip(a=b"2", b=b"x"), name="b.zip") == [": 1 → 2"]
    damaged = as_zip(a=b"weights").replace(b"weights", b"weighty")
    assert difference(as_zip(a=b"weights"), damaged, name="best.pt") == [
        "cannot be read in one of them: its checksum is wrong"
    ]


def test_missing_files_are_differences_and_caches_are_not(tmp_path: Path) -> None:
    before = recording(tmp_path / "a", **{"files/lab/x": b"1", "files/lab/runs/.cache/index.json": b"1"})
    after = recording(tmp_path / "b", **{"files/lab/y": b"1", "files/lab/runs/.cache/index.json": b"2"})
    found = compare(before, after).differences
    assert [each.what for each in found] == [
        "files/lab/x is missing in the second",
        "files/lab/y is missing in the first",
    ]


def test_durations_may_differ_only_when_asked_for() -> None:
    one, other = (json.dumps({"wall_s": seconds, "mean": 0.5, "crc32": seconds}).encode() for seconds in (1, 2))
    assert len(difference(one, other)) == 2 and difference(one, other, allow_durations=True) == []
    assert difference(one, other.replace(b"0.5", b"0.6"), allow_durations=True) == ["mean: 0.5 → 0.6"]


def test_prose_may_differ_only_when_asked_for_and_never_its_numbers() -> None:
    one = json.dumps(RUN).encode()
    reworded = json.dumps({**RUN, "hint": "Use 3 seeds.", "checksum": "bb"}).encode()
    assert len(difference(one, reworded)) == 2
    assert difference(one, reworded, allow_prose=True) == []
    assert difference(one, one.replace(b"3 seeds", b"4 seeds"), allow_prose=True)
    assert difference(one, one.replace(b"completed", b"complete"), allow_prose=True)
    assert difference(b"It is better: 0.1\n", b"Better: 0.1\n", name="stdout", allow_prose=True) == []
    assert difference(b"It is better: 0.1\n", b"Better: 0.2\n", name="stdout", allow_prose=True)


@pytest.mark.parametrize(
    ("where", "one", "other"),
    [
        ("commands/launch.x/stderr", "  ✓ s/a.seed1  completed  0.2 s\n", "  ✓ s/a.seed1  completed  1.4 s\n"),
        ("commands/launch.x/stderr", "  ✗ s/a  failed: E: no 3  0.0 s\n", "  ✗ s/a  failed: E: no 3  12 s\n"),
        ("commands/sync.x/stdout", "Test result: passed in 0.1 s\n", "Test result: passed in 0.3 s\n"),
        ("commands/x/stdout", '"/tmp/fairtrial-verify-88but51a/E: no"', '"/tmp/fairtrial-verify-x_but51b/E: no"'),
        ("files/lab/.pulse", '{"no":"E: no","step":3,"saved":0}', '{"no":"E: no","step":5,"saved":4}'),
        (
            "files/log.txt",
            'Traceback:\n  File "/s/fairtrial/job.py", line 3, in do\n    do()\nE: no\n',
            'Traceback:\n  File "/s/fairtrial/jobs/run.py", line 7, in run\n    go()\n    ^^\nE: no\n',
        ),
    ],
)
def test_only_real_durations_and_frames_of_the_package_are_blanked(where: str, one: str, other: str) -> None:
    assert blanked(where, one.encode()) == blanked(where, other.encode())
    assert blanked(where, one.encode()) != blanked(where, other.replace("E: no", "E: yes").replace("ed", "").encode())


def test_there_are_at_least_forty_commands_and_every_verb_is_among_them(cli: Callable[..., Answer]) -> None:
    commands = read_commands()
    assert len(commands) >= 40 and len({each.name for each in commands}) == len(commands)
    verbs = re.findall(r"^  ([a-z][a-z-]*)  ", cli("--help").out, re.MULTILINE)
    assert len(verbs) >= 20
    assert not set(verbs) - {each.words[1] for each in commands if each.words[0] == "fairtrial"}
