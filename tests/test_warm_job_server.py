"""A warm job server behaves as the one that a launch starts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fairtrial.jobs.processes import one_thread
from tests.harness import eventually, is_alive
from tests.warm_job_server import JOB_SERVER, WarmJobServer, WarmJobServers, warm_job_servers


def opened(servers: WarmJobServers, *preload: str) -> WarmJobServer | subprocess.Popen[bytes]:
    argv = [sys.executable, "-m", JOB_SERVER, "serve", *preload]
    settings: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "start_new_session": True}
    return servers.popen(argv, env=one_thread(), **settings)


def ended(server: WarmJobServer | subprocess.Popen[bytes]) -> int:
    assert server.stdin and server.stdout
    server.stdin.close()
    code = server.wait()
    server.stdout.close()
    return code


def test_a_warm_server_has_the_folder_and_a_session_of_its_own(tmp_path: Path) -> None:
    with warm_job_servers() as servers:
        server = opened(servers, "fake")
        assert isinstance(server, WarmJobServer) and server.stdout
        assert json.loads(server.stdout.readline()) == {"ready": server.pid}
        assert Path(f"/proc/{server.pid}/cwd").readlink() == tmp_path and os.getsid(server.pid) == server.pid
        assert ended(server) == 0 and not is_alive(server.pid)


def test_what_a_library_reads_once_gets_a_real_server(monkeypatch: pytest.MonkeyPatch) -> None:
    with warm_job_servers() as servers:
        monkeypatch.setenv("PYTHONHASHSEED", "7")
        server = opened(servers)
        assert isinstance(server, subprocess.Popen)
        assert ended(server) == 0


def test_a_server_that_is_killed_is_told_as_by_popen() -> None:
    with warm_job_servers() as servers:
        server = opened(servers)
        assert server.stdout and server.stdout.readline()
        os.kill(server.pid, 9)
        assert ended(server) == -9
        eventually(lambda: not is_alive(server.pid), what="the end of the server")
