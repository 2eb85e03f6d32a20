"""A reader turns files of another tool into runs: nothing is guessed, and what it gives is looked at."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from fairtrial import analyze
from fairtrial.api.comparing.analysis import Question
from fairtrial.core import readers
from fairtrial.core.errors import UserError
from fairtrial.core.readers import Columns, ImportedRun, ImportedRuns, Reader, find_reader, open_runs
from fairtrial.record.tables import TABLE_READER


class Notes(Reader):
    """Reads whatever a test has put into `runs`, from files called *.notes."""

    def __init__(self, *runs: Any) -> None:
        self.runs = runs

    def recognize(self, path: Path) -> str | None:
        return "notes" if path.suffix == ".notes" else None

    def read(self, path: Path) -> Iterator[Any]:
        yield from self.runs


@pytest.fixture
def offer(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Readers as if other packages had brought them."""

    def put(**found: Reader) -> None:
        monkeypatch.setattr(readers, "load_others", lambda _kind: iter(found.items()))

    return put


def run(variant: str | None, seed: int | None, loss: float, **more: Any) -> ImportedRun:
    return ImportedRun(f"{variant}-{seed}", {"loss": ([1, 2], [9.0, loss])}, variant, seed, **more)


EIGHT = [run(v, s, base + 0.1 * s * (s + base)) for v, base in (("a", 2.0), ("b", 0.5)) for s in range(1, 5)]


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    path = tmp_path / "some.notes"
    path.write_text("")
    return path


def test_an_analysis_reads_through_the_reader_that_recognizes_the_file(offer: Callable[..., None], notes: Path) -> None:
    offer(notes=Notes(*EIGHT))
    found = analyze(source=notes, question=Question(direction="min"))
    assert [arm.variant for arm in found.arms] == ["a", "b"] and found.metric == "loss"
    assert found.comparisons[0].n_control == 4 and found.comparisons[0].pairing == "paired"


def test_a_table_is_read_by_the_built_in_reader(offer: Callable[..., None], tmp_path: Path) -> None:
    offer(notes=Notes(*EIGHT))
    table = tmp_path / "table.csv"
    table.write_text("variant,seed,loss\na,1,2\nb,1,3\n")
    assert find_reader(table) == ("table", TABLE_READER)
    assert {(each.variant, each.seed) for each in TABLE_READER.read(table)} == {("a", "1"), ("b", "1")}


def test_a_file_that_does_not_exist_is_left_to_the_table_reader(offer: Callable[..., None], tmp_path: Path) -> None:
    offer(notes=Notes(*EIGHT))
    with pytest.raises(UserError, match="no file"):
        open_runs([tmp_path / "absent.notes"])


def test_two_readers_for_one_file_are_an_error(offer: Callable[..., None], notes: Path) -> None:
    offer(first=Notes(), second=Notes())
    with pytest.raises(UserError, match="is recognized by 2 readers: first, second"):
        find_reader(notes)


def test_files_of_two_kinds_are_an_error(offer: Callable[..., None], notes: Path, tmp_path: Path) -> None:
    offer(notes=Notes(*EIGHT))
    (tmp_path / "table.csv").write_text("variant,seed,loss\na,1,2\n")
    with pytest.raises(UserError, match="different readers: notes and table"):
        open_runs([notes, tmp_path / "table.csv"])


def test_a_key_of_the_configuration_can_name_variant_and_seed() -> None:
    runs = [run(None, None, 0.1, config={"algo": algo, "s": seed}) for algo in ("ppo", "dqn") for seed in (1, 2.0)]
    plain = ImportedRuns("x", runs, Columns())
    assert plain.lacking == ["variant"] and plain.text_columns() == ["algo", "s"]
    assert {(trace.variant, trace.seed) for trace in plain.traces(["loss"])} == {("all", None)}
    named = ImportedRuns("x", runs, Columns(variant="algo", seed="s"))
    assert named.lacking == []
    assert [(trace.variant, trace.seed) for trace in named.traces(["loss"])] == [
        ("ppo", "1"), ("ppo", "2"), ("dqn", "1"), ("dqn", "2"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        (Columns(variant="alg"), "unknown key of the configuration 'alg'; did you mean 'algo'?"),
        (Columns(step="epoch"), "--step-column applies to tables only"),
    ],
)
def test_a_column_that_the_source_does_not_have_is_an_error(columns: Columns, said: str) -> None:
    with pytest.raises(UserError) as caught:
        ImportedRuns("x", [run("a", 1, 0.1, config={"algo": "ppo"})], columns)
    assert said in caught.value.message


@pytest.mark.parametrize(
    ("runs", "said"),
    [
        ([("a", 1)], "returned a tuple instead of an ImportedRun"),
        ([ImportedRun("r", {"loss": ([1, 2], [0.5])})], "returned run r with 2 steps and 1 values of loss"),
        (
            [ImportedRun("r", {"loss": ([float("nan")], [0.5])})],
            "returned run r with a step of loss that is not a finite number",
        ),
        ([ImportedRun("r", {}, status="over")], "returned run r with an unknown status, 'over'"),
    ],
)
def test_what_is_not_a_run_is_refused_with_the_readers_name(
    offer: Callable[..., None], notes: Path, runs: Sequence[Any], said: str
) -> None:
    offer(notes=Notes(*runs))
    with pytest.raises(UserError) as caught:
        open_runs([notes])
    assert caught.value.message == f"reader 'notes' {said}"


def test_a_reader_that_fails_is_one_sentence(offer: Callable[..., None], notes: Path) -> None:
    class Failing(Notes):
        def read(self, path: Path) -> Iterator[Any]:
            raise KeyError("loss")

    offer(notes=Failing())
    with pytest.raises(UserError, match="reader 'notes' failed: KeyError: 'loss'") as caught:
        open_runs([notes])
    assert "--debug" in (caught.value.hint or "")


def test_a_seed_that_is_a_list_is_refused() -> None:
    with pytest.raises(UserError, match="run r: seed is a list"):
        ImportedRuns("x", [ImportedRun("r", {"loss": ([1], [1.0])}, seed=[1])], Columns()).traces(["loss"])  # type: ignore[arg-type]


def test_a_source_without_runs_says_so() -> None:
    with pytest.raises(UserError, match="x has no runs"):
        ImportedRuns("x", [], Columns())
