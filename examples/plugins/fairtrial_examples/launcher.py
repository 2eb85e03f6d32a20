"""A launcher: at most two processes at a time, which survive the launch. `fairtrial launch … --on processes`

The engine is this machine, used like a queue. For a cluster, `hand_over`, `states` and `cancel` would call its API.
"""

import contextlib
import os
from pathlib import Path

from fairtrial.plugins import LauncherOptions, jobs

SUMMARY = "Processes on this machine that outlive the launch."
REQUIRES = ()
EXTRA = None


class Options(LauncherOptions):
    at_once: int = 2


class Processes:
    word = "processes"
    ask_s = 0.1

    def __init__(self, home):
        self.home, self.codes = home, {}

    def hand_over(self, remote_jobs):
        programs = [jobs.job_program(self.home, name) for name in remote_jobs]
        return [str(os.posix_spawn(program[0], program, jobs.one_thread(), setsid=True)) for program in programs]

    def states(self, pids):
        return {pid: self.state(pid) for pid in pids}

    def state(self, pid):
        with contextlib.suppress(ChildProcessError):  # started by an earlier launch, or already reaped
            ended, status = os.waitpid(int(pid), os.WNOHANG)
            if ended:
                self.codes[pid] = os.waitstatus_to_exitcode(status)
        if pid not in self.codes and Path("/proc", pid).exists():
            return jobs.JobState(jobs.JobStage.RUNNING)
        return jobs.JobState(jobs.JobStage.GONE, self.codes.get(pid), "its process ended")

    def cancel(self, pids):
        for pid in pids:
            jobs.kill_session(int(pid))

    def last_words(self, _pid):
        return ""

    def clear(self, _pid):
        pass

    def close(self):
        pass


def open_launcher(request):
    return jobs.launcher_of(Processes(request.home), request, slots=request.options.at_once)
