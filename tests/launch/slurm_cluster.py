"""A real Slurm of three nodes on this machine, in a folder of its own and on ports of its own."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

NODES = ("n1", "n2", "n3")
START_S = 60.0
_PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scontrol")
_CONFIGURATION = """\
ClusterName=fairtrial
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={home}/munge.socket
CredType=cred/munge
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0
ReturnToService=2
SlurmctldTimeout=10
SlurmdTimeout=10
KillWait=10
MinJobAge=3600
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
StateSaveLocation={home}/state
SlurmdSpoolDir={home}/spool-%n
SlurmctldPidFile={home}/slurmctld.pid
SlurmdPidFile={home}/slurmd-%n.pid
SlurmctldLogFile={home}/slurmctld.log
SlurmdLogFile={home}/slurmd-%n.log
{nodes}
PartitionName=main Nodes=ALL Default=YES PriorityTier=1 State=UP
PartitionName=high Nodes=ALL PriorityTier=10 State=UP
"""


def why_not() -> str | None:
    """What keeps this machine from running a Slurm of its own; it is installed where that is possible."""
    if os.geteuid() != 0:
        return "a Slurm of our own needs root"
    if all(map(shutil.which, _PROGRAMS)):
        return None
    if not shutil.which("apt-get"):
        return "Slurm is not installed, and there is no apt-get"
    install = ["apt-get", "install", "-y", "--no-install-recommends", "slurm-wlm", "munge"]
    for command in (["apt-get", "update"], install):
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        if done.returncode:
            return f"Slurm could not be installed: {done.stderr.strip()[-200:]}"
    return None


@dataclass
class Cluster:
    """The daemons, by name. `variables` is what makes `sbatch` and the rest speak to this cluster."""

    home: Path
    _daemons: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def variables(self) -> dict[str, str]:
        return {"SLURM_CONF": str(self.home / "slurm.conf")}

    def start(self) -> None:
        self._write_configuration()
        self._start_munge()
        self._daemon("slurmctld", "slurmctld", "-D", "-i")
        for node in NODES:
            self.start_node(node)
        self._await(lambda: self.node_states() == dict.fromkeys(NODES, "idle"), "three idle nodes")

    def start_node(self, node: str) -> None:
        self._daemon(node, "slurmd", "-D", "-N", node)

    def cut_off(self, node: str) -> None:
        """End its daemon alone: what runs on the node lives on, as it does where only the network is gone."""
        daemon = self._daemons.pop(node)
        daemon.kill()
        daemon.wait()

    def lose_node(self, node: str) -> None:
        """Cut it off, and have Slurm take it for dead at once instead of after a while."""
        self.cut_off(node)
        self.call("scontrol", "update", f"nodename={node}", "state=down", "reason=test")

    def preempt(self, node: str, cpus: int = 2) -> None:
        """A job that goes before all others takes the node, or a part of it, for a moment."""
        self.call(
            "sbatch", "--partition=high", f"--nodelist={node}", f"--cpus-per-task={cpus}", "--output=/dev/null",
            "--wrap=sleep 1",
        )  # fmt: skip

    def node_states(self) -> dict[str, str]:
        listed = self.call("sinfo", "--Node", "--noheader", "--partition=main", "--format=%N %t", check=False)
        return dict(line.split() for line in listed.splitlines())

    def call(self, *command: str, check: bool = True) -> str:
        done = subprocess.run(
            command, env={**os.environ, **self.variables}, capture_output=True, text=True, check=False, timeout=60
        )
        if check and done.returncode:
            raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
        return done.stdout

    def stop(self) -> None:
        """Every job, then every daemon, by its own process id."""
        self.call("scancel", "--user=root", check=False)
        with contextlib.suppress(RuntimeError):
            self._await(lambda: not self.call("squeue", "--noheader", check=False).strip(), "the end of all jobs", 20)
        for daemon in reversed(self._daemons.values()):
            daemon.terminate()
        for daemon in self._daemons.values():
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        self._daemons.clear()
        for pid in self._left_behind():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _left_behind(self) -> Iterator[int]:
        """What slurmd started and nobody ended: it names our configuration or our folder in its environment."""
        ours = f"SLURM_CONF={self.home / 'slurm.conf'}".encode()
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                words = (entry / "cmdline").read_bytes()
                if (
                    int(entry.name) != os.getpid()
                    and ours in (entry / "environ").read_bytes().split(b"\0")
                    and (b"slurmstepd" in words or b"fairtrial.jobserver\0errand" in words)
                ):
                    yield int(entry.name)

    def _write_configuration(self) -> None:
        host = socket.gethostname().partition(".")[0]
        (self.home / "state").mkdir()
        lines = [
            f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={_free_port()} CPUs=2 RealMemory=2000"
            for node in NODES
        ]
        text = _CONFIGURATION.format(host=host, port=_free_port(), home=self.home, nodes="\n".join(lines))
        (self.home / "slurm.conf").write_text(text)

    def _start_munge(self) -> None:
        key = self.home / "munge.key"
        key.touch(mode=0o600)
        key.write_bytes(os.urandom(128))
        socket_file = self.home / "munge.socket"
        self._daemon(
            "munged", "munged", "--foreground", "--force", f"--socket={socket_file}", f"--key-file={key}",
            f"--pid-file={self.home / 'munged.pid'}", f"--log-file={self.home / 'munged.log'}",
            f"--seed-file={self.home / 'munged.seed'}",
        )  # fmt: skip
        self._await(socket_file.exists, "munged")

    def _daemon(self, name: str, *command: str) -> None:
        with (self.home / f"{name}.out").open("ab") as said:
            self._daemons[name] = subprocess.Popen(
                command, env={**os.environ, **self.variables}, stdin=subprocess.DEVNULL, stdout=said, stderr=said,
                start_new_session=True,
            )  # fmt: skip

    def _await(self, condition: Callable[[], bool], what: str, limit: float = START_S) -> None:
        deadline = time.monotonic() + limit
        while not condition():
            if time.monotonic() > deadline:
                said = "".join(path.read_text()[-500:] for path in sorted(self.home.glob("*.out")))
                raise RuntimeError(f"no {what} within {limit:g} s: {said}")
            time.sleep(0.1)


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
