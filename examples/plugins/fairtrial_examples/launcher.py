"""A launcher: at most two processes at once, which go on when the launch is killed. `fairtrial launch … --on processes`

The engine is this machine, asked through a queue. A cluster differs in how the three methods ask it.
"""

import subprocess

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
        self.home, self.processes = home, {}

    def hand_over(self, remote_jobs):
        started = []
        for name in remote_jobs:
            command = jobs.job_program(self.home, name)
            process = subprocess.Popen(command, env=jobs.one_thread(), start_new_session=True)
            self.processes[str(process.pid)] = process
            started.append(str(process.pid))
        return started

    def states(self, pids):
        known = {pid: self.processes[pid].poll() for pid in pids if pid in self.processes}
        running = jobs.JobState(jobs.JobStage.RUNNING)
        return {
            pid: running if code is None else jobs.JobState(jobs.JobStage.GONE, code, "its process ended")
            for pid, code in known.items()
        }

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
