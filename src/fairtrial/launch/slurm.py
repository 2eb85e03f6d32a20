"""Run tasks on a Slurm cluster through submitit, with one job array for the tasks that are submitted together.

Slurm itself requeues a preempted job and a job whose node it considers down. It does not requeue a job that reached its
time limit: the launcher reports such a job as lost, and the schedule submits it again. Before the limit, Slurm signals
the run to save.
"""

from __future__ import annotations

import contextlib
import math
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from pydantic import Field

from fairtrial.launch.jobs import JobStage, JobState, RemoteJobLauncher, job_program, launcher_of, one_thread
from fairtrial.launch.surroundings import SUBMITTED, is_url
from fairtrial.plugins import Described, LauncherOptions, LaunchRequest, UserError, errors

SUMMARY = "Jobs on a Slurm cluster."
REQUIRES = ("submitit",)
EXTRA = "slurm"

LARGEST_ARRAY = 1000
"""The largest job array with Slurm's default configuration."""
PATIENCE_S = 60.0
HURRY_S = 10.0
WORDS = 300
_FIELDS = ("JobArrayID", "State", "NodeList", "TimeLimit", "TimeUsed", "exit_code", "Reason")
_WIDTH = 200
_ONE_WORD = r"^\S+$"
_ONE_LINE = r"^[^\n]+$"


class Options(LauncherOptions):
    """Settings with Slurm's own names. The cluster's defaults apply to those that are not set."""

    partition: str | None = Field(None, pattern=_ONE_WORD, description="Partition, or several separated by commas.")
    account: str | None = Field(None, pattern=_ONE_WORD, description="Account to charge.")
    qos: str | None = Field(None, pattern=_ONE_WORD, description="Quality of service.")
    time: int | None = Field(None, ge=1, description="Time limit of a job, in minutes.")
    warning: int = Field(60, ge=1, description="Seconds before the time limit at which runs are told to save.")
    constraint: str | None = Field(None, pattern=_ONE_LINE, description="Features that a node must have.")
    nodelist: str | None = Field(None, pattern=_ONE_WORD, description="Nodes to use.")
    exclude: str | None = Field(None, pattern=_ONE_WORD, description="Nodes to exclude.")
    reservation: str | None = Field(None, pattern=_ONE_WORD, description="Reservation.")
    gres: str | None = Field(None, pattern=_ONE_WORD, description="Generic resources, such as gpu:a100:1.")
    comment: str | None = Field(None, pattern=_ONE_LINE, description="Comment for every job.")
    setup: str | None = Field(None, description="Shell commands to run before each run, such as: module load cuda.")
    ask: float = Field(2.0, gt=0, description="Seconds between queries of Slurm.")


def check(request: LaunchRequest) -> None:
    """Raise an error if Slurm is not available or would reject such a job, which `sbatch --test-only` tells."""
    options = _options(request)
    missing = [program for program in ("sbatch", "squeue", "srun", "scancel", "sinfo") if not shutil.which(program)]
    if missing:
        raise UserError(f"--on slurm: {missing[0]} is not on the PATH", hint="Launch from a login node of the cluster.")
    if "://" in request.home:
        raise UserError(
            f"--on slurm: the store {request.store} is not a folder", hint="Use a store on the cluster's file system."
        )
    partitions = _call("sinfo", "--noheader", "--format=%R")
    if partitions.returncode:
        raise UserError(f"--on slurm: Slurm does not respond: {_said(partitions)}", hint="Try: sinfo")
    for partition in (options.partition or "").split(","):
        if partition and partition not in (known := partitions.stdout.split()):
            raise UserError("--on slurm: " + errors.unknown("partition", partition, known), hint="See: sinfo")
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in _parameters(request).items()]
    would_take = _call("sbatch", "--test-only", *flags, "--wrap=:")
    if would_take.returncode:
        raise UserError(
            f"--on slurm: Slurm would reject such a job: {_said(would_take)}",
            hint="Change --cpus, --gpus, --memory or the --with settings.",
        )


def describe(request: LaunchRequest, runs: Sequence[Sequence[str]]) -> Described:
    """Describe the `sbatch` command of each job array. Slurm need not be available."""
    submission = SlurmQueue(request).submission()
    arrays = [runs[first : first + LARGEST_ARRAY] for first in range(0, len(runs), LARGEST_ARRAY)]
    commands = [shlex.join(_sbatch_words(submission, len(array))) for array in arrays]
    lines = []
    for command, array in zip(commands, arrays, strict=True):
        lines += [command, *(f"# {number}: {', '.join(names)}" for number, names in enumerate(array))]
    lines += [f"# before each run: {line}" for line in submission["setup"] or ()]
    said = ["Slurm was not asked whether it would accept such jobs; a launch asks first."]
    said += [f"A launch needs another --store: {request.store} is not a folder."] if is_url(request.store) else []
    handed = [{"command": each, "runs": list(map(list, array))} for each, array in zip(commands, arrays, strict=True)]
    return Described("\n".join(lines), {"submissions": handed, "setup": submission["setup"], "notes": said}, said)


def _sbatch_words(submission: Mapping[str, Any], count: int) -> list[str]:
    own = ("setup", "array_parallelism", "additional_parameters")
    flags = {name: value for name, value in submission.items() if name not in own}
    flags |= submission["additional_parameters"]
    if count > 1:
        flags["array"] = f"0-{count - 1}%{min(count, submission['array_parallelism'])}"
    given = {name.replace("_", "-"): value for name, value in flags.items() if value is not None}
    return ["sbatch", *(f"--{name}" if value is True else f"--{name}={value}" for name, value in given.items())]


def open_launcher(request: LaunchRequest) -> RemoteJobLauncher:
    return launcher_of(SlurmQueue(request), request)


def _options(request: LaunchRequest) -> Options:
    assert isinstance(request.options, Options)
    return request.options


def _parameters(request: LaunchRequest) -> dict[str, Any]:
    """Return the resources and settings of a job, by the names of sbatch's options."""
    own = ("partition", "account", "qos", "time", "constraint", "nodelist", "exclude", "reservation", "gres", "comment")
    needs = request.resources
    wanted = {
        **{name: getattr(request.options, name) for name in own},
        "cpus_per_task": needs.cpus or 1,
        "gpus_per_node": needs.gpus,
        "mem": f"{math.ceil(needs.memory_gb * 1e9 / 2**20)}M" if needs.memory_gb else None,
    }
    return {name: value for name, value in wanted.items() if value is not None}


class SlurmQueue:
    """Submits remote jobs to Slurm and queries their states. submitit's files are stored next to those of the jobs."""

    word = "slurm"

    def __init__(self, request: LaunchRequest) -> None:
        self._request = request
        self._options = _options(request)
        self._folder = Path(request.home) / SUBMITTED
        self._hurried: dict[str, float] = {}
        self.ask_s = self._options.ask

    def hand_over(self, remote_jobs: Sequence[str]) -> list[str] | None:
        from submitit import SlurmExecutor
        from submitit.core.utils import FailedJobError, FailedSubmissionError

        executor = SlurmExecutor(folder=self._folder)
        executor.update_parameters(**self.submission())
        jobs = []
        try:
            for first in range(0, len(remote_jobs), LARGEST_ARRAY):
                names = remote_jobs[first : first + LARGEST_ARRAY]
                jobs += executor.map_array(become_errand, [self._request.home] * len(names), names)
        except (FailedJobError, FailedSubmissionError) as error:
            if not jobs and "Unable to contact" in str(error):
                return None
            raise errors.FairtrialError(
                f"Slurm rejected a job: {str(error).strip().splitlines()[-1]}",
                hint="Finished runs are kept; launch again to run the others.",
            ) from None
        return [job.job_id for job in jobs]

    def submission(self) -> dict[str, Any]:
        """Return submitit's parameters for a job array."""
        parameters = _parameters(self._request)
        further: dict[str, Any] = {name: parameters.pop(name, None) for name in ("mem", "reservation")}
        # Without "B:", Slurm sends the signal to the run and not to the batch shell, which would not pass it on.
        further |= {"signal": f"TERM@{self._warning_s}", "requeue": True}
        return {
            "job_name": f"fairtrial {self._request.study}",
            "nodes": 1,
            "ntasks_per_node": 1,
            "time": None,  # submitit's default is five minutes
            **parameters,
            "array_parallelism": self._request.jobs or LARGEST_ARRAY,
            "setup": self._options.setup.splitlines() if self._options.setup else None,
            "additional_parameters": {name: value for name, value in further.items() if value is not None},
        }

    @property
    def _warning_s(self) -> int:
        """Seconds before the time limit at which to signal: at most a quarter of the limit, to leave time to train."""
        limit = self._options.time
        return self._options.warning if limit is None else min(self._options.warning, limit * 15)

    def states(self, jobs: Collection[str]) -> Mapping[str, JobState] | None:
        arrays = sorted({job.partition("_")[0] for job in jobs})
        if not arrays:
            return {}
        layout = ",".join(f"{name}:{_WIDTH}|" for name in _FIELDS)
        known = _call(
            "squeue", "--array", "--states=all", "--noheader", f"--jobs={','.join(arrays)}", f"--Format={layout}"
        )
        if known.returncode and "Invalid job id" not in known.stderr:
            return None
        job_states = self._read(known.stdout, jobs)
        return {**self._accounted(set(jobs) - set(job_states)), **job_states}

    def _read(self, table: str, jobs: Collection[str]) -> dict[str, JobState]:
        rows = [dict(zip(_FIELDS, map(str.strip, line.split("|")), strict=False)) for line in table.splitlines()]
        return {row["JobArrayID"]: self._state(row) for row in rows if row.get("JobArrayID") in jobs}

    def _accounted(self, jobs: Collection[str]) -> dict[str, JobState]:
        """Return the states of jobs that Slurm has already purged, from sacct if it is available."""
        if not jobs or not shutil.which("sacct"):
            return {}
        fields = "JobID,State,NodeList,Timelimit,Elapsed,ExitCode,Reason"
        known = _call(
            "sacct", "-X", "--noheader", "--parsable2", f"--jobs={','.join(sorted(jobs))}", "--format", fields
        )
        return self._read(known.stdout, jobs)

    def _state(self, row: Mapping[str, str]) -> JobState:
        state, job = row["State"].partition(" ")[0], row["JobArrayID"]
        if state in _ON_THE_WAY:
            if row["Reason"] == "BeginTime":
                self._hurry(job)
            if "requeued held" in row["Reason"]:
                self.cancel([job])  # a held job would wait until an administrator releases it
                return JobState(JobStage.GONE, why=f"Slurm could not start its job {job}")
            return JobState(JobStage.QUEUED)
        if state in _AT_WORK:
            return JobState(JobStage.RUNNING)
        return self._end(state, job, row)

    def _end(self, state: str, job: str, row: Mapping[str, str]) -> JobState:
        node = row["NodeList"] or "its node"
        if state == "OUT_OF_MEMORY":
            why = f"it needed more memory than it requested on {node}"
            return JobState(JobStage.GONE, why=why, failed=True, hint="Request more with --memory GB.")
        why = _WHY.get(state, f"Slurm ended its job {job} on {node} ({state.lower()})")
        code = _exit_status(row["exit_code"]) if state in ("COMPLETED", "FAILED") else None
        if code == -signal.SIGTERM and _seconds(row["TimeUsed"]) >= _seconds(row["TimeLimit"]) - self._warning_s - 60:
            why = "Slurm's time limit of {limit} was near on {node}"  # Slurm may send the signal up to a minute early
        return JobState(JobStage.GONE, code, why.format(job=job, node=node, limit=_minutes(row["TimeLimit"])))

    def _hurry(self, job: str) -> None:
        """Ask Slurm to start a requeued job now instead of after its delay of two minutes, if the user may do so."""
        now = time.monotonic()
        if now - self._hurried.get(job, float("-inf")) > HURRY_S:
            self._hurried[job] = now
            _call("scontrol", "update", f"jobid={job}", "StartTime=now")

    def cancel(self, jobs: Collection[str]) -> None:
        _call("scancel", *sorted(jobs))

    def last_words(self, job: str) -> str:
        """Return the last lines that Slurm or Python printed before the run had its own log."""
        from submitit.core.utils import JobPaths

        with contextlib.suppress(OSError):
            said = JobPaths(self._folder, job, 0).stderr.read_text(errors="replace").splitlines()
            lines = [line.strip() for line in said if line.strip()]
            own = [line for line in lines if not line.startswith(("submitit ", "srun: "))]
            return " … ".join((own or lines)[-2:])[-WORDS:]
        return ""

    def clear(self, job: str) -> None:
        """Delete the job's files and, if it was the last job of its array, those of the array."""
        array = job.partition("_")[0]
        for path in self._folder.glob(f"{job}_*"):
            path.unlink(missing_ok=True)
        if not list(self._folder.glob(f"{array}_*.pkl")):
            for path in self._folder.glob(f"{array}_*"):
                path.unlink(missing_ok=True)
        for link in self._folder.glob(".*"):
            if not link.exists():  # submitit creates a symbolic link to each script
                link.unlink(missing_ok=True)

    def close(self) -> None:
        with contextlib.suppress(OSError):  # other launchers may have files there
            self._folder.rmdir()
            self._folder.parent.rmdir()


_ON_THE_WAY = {"PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT", "CONFIGURING", "RESV_DEL_HOLD"}
_AT_WORK = {"RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT", "RESIZING"}
_WHY = {
    "TIMEOUT": "Slurm's time limit of {limit} was reached on {node}",
    "DEADLINE": "the deadline of its Slurm job {job} was reached on {node}",
    "NODE_FAIL": "Slurm lost the node {node}",
    "BOOT_FAIL": "the node {node} did not start",
    "PREEMPTED": "Slurm preempted its job {job} on {node}",
    "CANCELLED": "its Slurm job {job} was canceled",
    "COMPLETED": "its Slurm job {job} ended on {node} without reporting a result",
    "FAILED": "its Slurm job {job} ended on {node}",
}


def become_errand(home: str, name: str) -> NoReturn:
    """Run a remote job on the node, called by submitit. `exec` replaces the process and its signal handlers."""
    job = os.environ.get("SLURM_JOB_ID", "")
    os.execve(sys.executable, job_program(home, name, job), one_thread())  # noqa: S606


def _call(*command: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 1, "", f"{command[0]} did not respond within {PATIENCE_S:g} s")


def _said(done: subprocess.CompletedProcess[str]) -> str:
    return " ".join((done.stderr or done.stdout).split()) or f"exit status {done.returncode}"


def _exit_status(spelled: str) -> int:
    """Parse Slurm's exit code: a wait status, or status:signal. Above 128 it is a signal that the shell reported."""
    status, colon, by_signal = spelled.partition(":")
    if colon:
        code = -int(by_signal) if by_signal != "0" else int(status)
    else:
        code = os.waitstatus_to_exitcode(int(status or 0))
    return 128 - code if code > 128 else code


def _seconds(spelled: str) -> float:
    """Parse [days-][hours:]minutes:seconds. A word, such as UNLIMITED, is infinity."""
    days, dash, clock = spelled.rpartition("-")
    if not clock.replace(":", "").isdigit():
        return math.inf
    parts = [int(part) for part in clock.split(":")]
    if dash and len(parts) < 3:
        parts += [0] * (3 - len(parts))
    total = 0
    for part in parts:
        total = total * 60 + part
    return total + int(days or 0) * 86_400


def _minutes(spelled: str) -> str:
    minutes = f"{_seconds(spelled) / 60:.0f}"
    return f"{minutes} minute{'s' if minutes != '1' else ''}"
