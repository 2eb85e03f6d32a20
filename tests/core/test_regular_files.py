"""Files that somebody else may have put there are opened only where they are regular files."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from fairtrial.core.regular_files import open_regular, open_unbuffered, read_regular


@pytest.mark.parametrize("opened", [open_regular, open_unbuffered])
@pytest.mark.parametrize("kind", ["pipe", "device", "folder", "link to a pipe"])
def test_only_regular_files_are_opened(tmp_path: Path, kind: str, opened: object) -> None:
    path = tmp_path / "file"
    if kind == "folder":
        path.mkdir()
    elif kind == "device":
        path.symlink_to(os.devnull)
    else:
        os.mkfifo(tmp_path / "pipe")
        path.symlink_to(tmp_path / "pipe")
    with pytest.raises(OSError, match="not a file") as raised:
        opened(path)  # type: ignore[operator]
    assert raised.value.filename == str(path)


def test_a_socket_is_not_opened(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        with pytest.raises(OSError, match="No such device"):
            open_regular(path)


def test_regular_files_are_read_whole_and_missing_ones_are_missing(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    assert read_regular(tmp_path / "file") == b"content"
    with pytest.raises(FileNotFoundError):
        read_regular(tmp_path / "other")
