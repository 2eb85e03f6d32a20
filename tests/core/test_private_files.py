"""Two users of one machine: what one puts under a predictable name must not make the other's processes misbehave."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fairtrial.core.errors import StoreError, UserError
from fairtrial.record.claims import Claim, launching
from fairtrial.record.store import Store
from tests.conftest import Answer
from tests.recipes.test_command import WRITER

SOMEBODY = 54321
PRECIOUS = b"years of work\nand a line without an end"

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as two users")


@pytest.fixture
def precious(tmp_path: Path) -> Iterator[Path]:
    """A file that a planted link points to; no test may change it."""
    path = tmp_path / "precious"
    path.write_bytes(PRECIOUS)
    yield path
    assert path.read_bytes() == PRECIOUS


@pytest.fixture
def for_all() -> Iterator[Path]:
    """A folder that every user reaches; those of pytest are their owner's alone."""
    folder = Path(tempfile.mkdtemp(prefix="fairtrial-test-", dir="/tmp"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def temporary(for_all: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A temporary folder as all users share it: everybody may write, nobody may remove what others have."""
    folder = for_all / "tmp"
    folder.mkdir()
    folder.chmod(0o1777)
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr("tempfile.tempdir", None)
    return folder


def as_user(user: int, act: Callable[[], object], *, umask: int = 0o022) -> str:
    """Act in a process of another user; returns what was raised, as text."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        told = ""
        try:
            os.umask(umask)
            os.setgroups([])
            os.setgid(user)
            os.setuid(user)
            act()
        except BaseException as error:  # noqa: BLE001 — the other process tells it
            told = f"{type(error).__name__}: {error}"
        finally:
            os.write(write, told.encode())
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        told = pipe.read()
    os.waitpid(pid, 0)
    return told


def lock_name(metrics: Path) -> str:
    return hashlib.sha256(str(metrics.absolute()).encode()).hexdigest()[:20]


# The lock of programs that share a metrics file


def launch_shared(cli: Callable[..., Answer], tmp_path: Path) -> Answer:
    (tmp_path / "train.py").write_text(WRITER)
    return cli(
        "train", "command", "--study", "shared", "--variant", "base", "--values", "lr=0.1", "--metrics", "out.jsonl",
        "--", sys.executable, "train.py", "{lr}", "{seed}", "out.jsonl",
    )  # fmt: skip


def test_a_link_at_the_name_of_the_lock_truncates_nothing(
    cli: Callable[..., Answer], tmp_path: Path, temporary: Path, precious: Path
) -> None:
    """The name of the lock is predictable, so that anybody can put a link there first."""
    name = lock_name(tmp_path / "out.jsonl")
    (temporary / f"fairtrial-{os.getuid()}-{name}.lock").symlink_to(precious)
    (temporary / f"fairtrial-{os.getuid()}").mkdir(mode=0o700)
    (temporary / f"fairtrial-{os.getuid()}" / f"{name}.lock").symlink_to(precious)
    launch_shared(cli, tmp_path)
    assert precious.read_bytes() == PRECIOUS


def test_programs_of_one_user_take_turns_in_a_folder_of_that_user_alone(
    cli: Callable[..., Answer], tmp_path: Path, temporary: Path
) -> None:
    old = os.umask(0)
    try:
        assert launch_shared(cli, tmp_path).code == 0
    finally:
        os.umask(old)
    [folder] = temporary.glob("fairtrial-*[0-9]")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert [stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()] == [0o600]


def plant_link(folder: Path, precious: Path) -> None:
    (precious.parent / "elsewhere").mkdir(mode=0o700)
    folder.symlink_to(precious.parent / "elsewhere")


def plant_file(folder: Path, _precious: Path) -> None:
    folder.write_text("")


def plant_open_folder(folder: Path, _precious: Path) -> None:
    folder.mkdir()
    folder.chmod(0o777)


def plant_folder_of_somebody(folder: Path, _precious: Path) -> None:
    folder.mkdir(mode=0o700)
    os.chown(folder, SOMEBODY, SOMEBODY)


@needs_root
@pytest.mark.parametrize(
    ("plant", "why"),
    [
        (plant_link, "is not a folder"),
        (plant_file, "is not a folder"),
        (plant_open_folder, "other users have access to"),
        (plant_folder_of_somebody, "belongs to another user"),
    ],
)
def test_a_folder_that_is_not_this_users_alone_is_refused_in_one_sentence(
    cli: Callable[..., Answer],
    tmp_path: Path,
    temporary: Path,
    precious: Path,
    plant: Callable[[Path, Path], None],
    why: str,
) -> None:
    plant(temporary / f"fairtrial-{os.geteuid()}", precious)
    answer = launch_shared(cli, tmp_path)
    assert answer.code == 4
    assert why in answer.err
    assert "Traceback" not in answer.out + answer.err
    assert not list(precious.parent.glob("elsewhere/*"))


@needs_root
@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_two_users_have_locks_of_their_own(temporary: Path, umask: int) -> None:
    from fairtrial.core.private_files import open_private_lock

    assert as_user(SOMEBODY, lambda: open_private_lock("x.lock"), umask=umask) == ""
    os.close(open_private_lock("x.lock"))
    assert as_user(SOMEBODY, lambda: (temporary / "fairtrial-0" / "x.lock").read_bytes()).startswith("PermissionError")


def test_a_new_file_takes_no_name_that_is_taken(tmp_path: Path, precious: Path) -> None:
    from fairtrial.core.private_files import create

    (tmp_path / "link").symlink_to(precious)
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    for name in ("link", "dangling", "precious"):
        with pytest.raises(FileExistsError):
            create(tmp_path / name, b"x")
    assert not (tmp_path / "nowhere").exists()


def test_only_one_module_knows_the_shared_temporary_folder() -> None:
    """Files in it under names of our choice are opened by `core/private_files.py` alone; Ray's note is only read."""
    import fairtrial

    root = Path(fairtrial.__file__).parent
    using = {path.relative_to(root).as_posix() for path in root.rglob("*.py") if "gettempdir" in path.read_text()}
    assert using == {"core/private_files.py", "launch/ray_cluster.py"}


# Locks and logs of a store


LOCKS = (".lock", ".taking-over")


@pytest.mark.parametrize("name", LOCKS)
def test_a_link_at_a_lock_of_a_run_is_refused(store: Store, precious: Path, name: str) -> None:
    paths = store.paths.run("study", "base.seed1")
    paths.root.mkdir(parents=True)
    (paths.root / name).symlink_to(precious)
    with pytest.raises(StoreError, match="symbolic link"):
        Claim(paths)


def test_a_link_at_the_lock_of_a_launcher_is_refused(store: Store, tmp_path: Path) -> None:
    path = store.paths.launching("study")
    path.parent.mkdir(parents=True)
    path.symlink_to(tmp_path / "made elsewhere")
    with pytest.raises(StoreError, match="symbolic link"), launching(store.paths, "study"):
        pass
    assert not (tmp_path / "made elsewhere").exists()


def test_a_pipe_at_a_lock_is_refused(store: Store) -> None:
    paths = store.paths.run("study", "base.seed1")
    paths.root.mkdir(parents=True)
    os.mkfifo(paths.lock)
    with pytest.raises(StoreError, match="not a regular file"):
        Claim(paths)


@pytest.mark.parametrize("name", ["log.txt", "metrics.jsonl", "events.jsonl", ".lock"])
def test_nothing_is_written_through_a_link_in_a_run(
    cli: Callable[..., Answer], store: Store, precious: Path, name: str
) -> None:
    """Whoever may write to a shared store could otherwise have a victim's launch append to a file of the victim."""
    paths = store.paths.run("study", "base.seed1072")
    paths.root.mkdir(parents=True)
    (paths.root / name).symlink_to(precious)
    answer = cli("train", "fake", "--steps", "3", "--study", "study", "--variant", "base")
    assert precious.read_bytes() == PRECIOUS
    assert answer.code != 0
    assert "symbolic link" in answer.err
    assert "Traceback" not in answer.err


def test_a_link_at_the_lock_of_a_plan_or_of_the_cache_truncates_nothing(
    cli: Callable[..., Answer], store: Store, precious: Path
) -> None:
    folder = store.paths.study_plan("study").parent
    folder.mkdir(parents=True)
    (folder / ".plan.lock").symlink_to(precious)
    answer = cli("launch", "fake", "--steps", "3", "--seeds", "1", "--base-run-name", "study")
    assert "symbolic link" in answer.err
    assert precious.read_bytes() == PRECIOUS


def test_the_probe_for_a_writable_store_follows_no_link(store: Store, precious: Path) -> None:
    store.root.mkdir(parents=True)
    (store.root / f".probe-{os.getpid()}").symlink_to(precious)
    store.check_writable()
    assert precious.read_bytes() == PRECIOUS


TRAIN = ("train", "fake", "--steps", "3", "--study", "s", "--variant", "base")


@needs_root
@pytest.mark.parametrize(("umask", "readable"), [(0o022, True), (0o077, False)])
def test_a_store_of_another_user_is_read_or_refused_in_one_sentence(
    cli: Callable[..., Answer], for_all: Path, umask: int, readable: bool
) -> None:
    """User A made the store with this umask; user B lists it and then tries to add to it."""
    cli(*TRAIN)  # brings in all modules: another user may not be allowed to read them
    cli("runs", "list", "--study", "s")
    place = str(for_all / "runs")
    old = os.umask(umask)
    made = cli(*TRAIN, "--store", place)
    os.umask(old)
    assert made.code == 0, made.err
    listed = command_as(SOMEBODY, "runs", "list", "--study", "s", "--store", place)
    if readable:
        assert (listed.code, "base.seed1072" in listed.out) == (0, True), listed.err
    else:
        assert (listed.code, listed.err.count("\n") <= 2) == (1, True), listed.err
        assert "ermission denied" in listed.err
    again = command_as(SOMEBODY, *TRAIN, "--store", place, umask=0)
    assert again.code == 1
    assert "ermission denied" in again.err
    assert "Traceback" not in again.err + listed.err
    assert "completed" in cli("runs", "list", "--study", "s", "--store", place).out


def command_as(user: int, *arguments: str, umask: int = 0o022) -> Answer:
    """The command line in a process of another user."""
    from fairtrial.cli.app import run

    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:

        def act() -> None:
            sys.stdout, sys.stderr = out, err
            code = run(arguments)
            out.flush()
            err.flush()
            raise SystemExit(code)

        os.chdir("/")
        told = as_user(user, act, umask=umask)
        out.seek(0)
        err.seek(0)
        return Answer(int(told.removeprefix("SystemExit: ")), out.read(), err.read())


@needs_root
def test_a_local_copy_that_another_user_made_is_refused(
    cli: Callable[..., Answer], temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever owns the folder could change what is read from it, and what is pushed from it."""
    from fairtrial.record.store_location import mirror_folder

    monkeypatch.setenv("FAIRTRIAL_MIRRORS", str(temporary / "mirrors"))
    folder = mirror_folder("s3://bucket/store")
    folder.mkdir(parents=True)
    os.chown(folder, SOMEBODY, SOMEBODY)
    answer = cli("runs", "list", "--store", "s3://bucket/store")
    assert answer.code == 1
    assert "belongs to another user" in answer.err


# Keys


@pytest.fixture
def key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FAIRTRIAL_KEY", str(tmp_path / "open" / "key.pem"))
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o1777)
    return tmp_path / "open" / "key.pem"


@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_a_new_key_is_its_owners_alone_under_any_umask(key: Path, umask: int) -> None:
    from fairtrial.research.keys import load_signer

    old = os.umask(umask)
    try:
        load_signer()
    finally:
        os.umask(old)
    assert stat.S_IMODE(key.stat().st_mode) == 0o600


def test_a_link_at_the_name_of_the_public_key_is_not_followed(key: Path, precious: Path) -> None:
    from fairtrial.core.paths import public_key
    from fairtrial.research.keys import load_signer

    public_key(key).symlink_to(precious)
    signer = load_signer()
    assert precious.read_bytes() == PRECIOUS
    assert public_key(key).read_text().strip() == signer.public


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o602])
def test_a_key_that_others_may_use_is_refused(key: Path, mode: int) -> None:
    from fairtrial.research.keys import load_signer

    load_signer()
    key.chmod(mode)
    with pytest.raises(UserError, match="other users can read"):
        load_signer()


@needs_root
def test_a_key_of_another_user_is_refused(key: Path) -> None:
    """Whoever can put a key where ours is looked for would know what we sign with."""
    from fairtrial.research.keys import load_signer

    load_signer()
    os.chown(key, SOMEBODY, SOMEBODY)
    with pytest.raises(UserError, match="belongs to another user"):
        load_signer()


# The note of a running Ray cluster


@needs_root
def test_a_cluster_that_another_user_names_is_not_joined(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fairtrial.launch import ray_cluster

    monkeypatch.delenv("RAY_TMPDIR", raising=False)
    monkeypatch.setattr(ray_cluster, "_require_answer", lambda _: None)
    note = temporary / "ray" / "ray_current_cluster"
    note.parent.mkdir()
    note.write_text("10.0.0.1:6379\n")
    assert ray_cluster._running_here() == "10.0.0.1:6379"
    os.chown(note, SOMEBODY, SOMEBODY)
    assert ray_cluster._running_here() is None
