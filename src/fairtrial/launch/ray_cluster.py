"""Run tasks on a Ray cluster: one actor per slot, each with its own job server.

Ray places the actors by the resources that a run needs, and reports when one dies. Cells run in processes that the
actor's job server forks, as on a single machine: a start takes milliseconds, a kill includes child processes, and when
the actor dies, its job is asked to save and stop. A machine that Ray considers dead may still be running; the token of
its claim prevents its later writes from taking effect.
"""

from __future__ import annotations

import importlib
import os
import queue
import signal
import socket
import tempfile
import threading
import time
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fairtrial.launch.contract import ResourceRequest
from fairtrial.launch.jobs import kill_with_children
from fairtrial.launch.local import LocalLauncher
from fairtrial.launch.surroundings import ENDING, __version__, counted, is_trusted_note, is_url
from fairtrial.plugins import Described, Exit, LauncherOptions, LaunchRequest, Outcome, UserError, errors

SUMMARY = "A Ray cluster, or one that is started on this machine."
REQUIRES = ("ray",)
EXTRA = "ray"

ANSWER_S = 5.0
COUNT_S = 2.0
KILL_S = 5.0
REACHES_STORES = (
    "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE", "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "GOOGLE_APPLICATION_CREDENTIALS",
)  # fmt: skip
"""Environment variables with the endpoint and credentials of a store at a URL."""
_AUTHENTICATION = "RAY_AUTH_MODE"
_NAMESPACE = "fairtrial"
_on_disconnect = ExitStack()
"""Callbacks that close the connection, if Fairtrial opened it, and restore the previous settings."""
_SETTINGS = 4
_GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, _SETTINGS, 0, 0, 0, 0, 0))


class Options(LauncherOptions):
    """`address`: HOST:PORT of the head node, ray://HOST:PORT of its client server, or `auto` for a local cluster."""

    address: str | None = None


def check(request: LaunchRequest) -> None:
    """Connect now, so that a wrong address is reported before anything is written."""
    assert isinstance(request.options, Options)
    _connect(request.options.address)
    _require_room(request.resources)


def describe(request: LaunchRequest, runs: Sequence[Sequence[str]]) -> Described:
    """Describe where the runs would go and what each needs. This needs neither Ray nor a cluster."""
    assert isinstance(request.options, Options)
    address = request.options.address or os.environ.get("RAY_ADDRESS") or None
    wanted = _wanted(request.resources)
    at_once = f"at most {request.jobs} at once" if request.jobs else "as many at once as fit"
    head = f"On {_where(address)}, {at_once}, each with {_spelled(wanted)}:"
    said = ["No connection was made; a launch first checks whether such a run fits on the cluster."]
    document = {"address": address, "resources": wanted, "jobs": request.jobs, "runs": [list(names) for names in runs]}
    return Described("\n".join([head, *(", ".join(names) for names in runs)]), {**document, "notes": said}, said)


def _where(address: str | None) -> str:
    if address is None:
        return "the Ray cluster on this machine, which is started if there is none"
    if address == "auto":
        return "the Ray cluster on this machine"
    _host_and_port(address)
    return f"the Ray cluster at {address}"


def open_launcher(request: LaunchRequest) -> RayLauncher:
    assert isinstance(request.options, Options)
    _connect(request.options.address)
    return RayLauncher(request)


def _connect(address: str | None) -> None:
    """Connect to the cluster. If the calling program is already connected, it remains responsible for disconnecting."""
    ray = _ray()
    if ray.is_initialized():
        return
    # Ray sends usage statistics by default; Fairtrial must not send anything without the user's consent.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    asked = address or os.environ.get("RAY_ADDRESS")
    address = _running_here() if asked in (None, "", "auto") else asked
    if asked == "auto" and address is None:
        raise _refusal(None, ConnectionError("no cluster was started on this machine"))
    if asked and address:
        _require_answer(address)
    with ExitStack() as undone:
        undone.callback(_set_authentication, ray, os.environ.get(_AUTHENTICATION))
        if address:
            _bring_token(ray, address)
        _join(ray, address)
        undone.callback(ray.shutdown)
        _on_disconnect.push(undone.pop_all())
    _hush(ray)


def _join(ray: Any, address: str | None) -> None:
    here = {} if address else {"include_dashboard": False}
    try:
        with _handlers_kept():
            ray.init(
                address=address or "local", namespace=_NAMESPACE, log_to_driver=False, logging_level="ERROR", **here
            )
    except (TimeoutError, ValueError, OSError, RuntimeError, ray.exceptions.RayError) as error:
        raise _not_let_in(address, error) if address else _refusal(None, error) from error


def _bring_token(ray: Any, address: str) -> None:
    """Enable token authentication if the cluster requires it. Ray itself looks for a token only without an address.

    A cluster without authentication must not be sent a token: it then fails to reach this program and considers it
    dead.
    """
    path = Path(os.environ.get("RAY_AUTH_TOKEN_PATH") or Path.home() / ".ray" / "auth_token")
    if _AUTHENTICATION in os.environ or not (os.environ.get("RAY_AUTH_TOKEN") or path.is_file()):
        return
    if _wants_token(ray, address):
        _set_authentication(ray, "token")


def _set_authentication(ray: Any, mode: str | None) -> None:
    """Set or unset the authentication mode of this process, including what Ray set itself when it started a cluster.

    It must be restored after each cluster, because the next one may need another mode.
    """
    os.environ.pop(_AUTHENTICATION, None)
    if mode is not None:
        os.environ[_AUTHENTICATION] = mode
    with suppress(AttributeError):
        ray._raylet.Config.initialize("")  # Ray cached the environment at import, and the token at first use
        ray._raylet.AuthenticationTokenLoader.instance().reset_cache()


def _wants_token(ray: Any, address: str) -> bool:
    """Return whether a cluster requires a token. A client server (ray://) cannot be queried for this."""
    try:
        with _silence():
            ray._raylet.GcsClient(address=address).get_all_node_info(timeout=ANSWER_S)
    except ray.exceptions.AuthenticationError:
        return True
    except Exception:  # noqa: BLE001 — other errors are reported on connecting
        return False
    return False


@contextmanager
def _silence() -> Iterator[None]:
    """Discard what Ray's C++ code prints to stderr."""
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


@contextmanager
def _handlers_kept() -> Iterator[None]:
    """Restore the signal handlers that Ray replaces, also below Python's: the launcher needs its own to end cleanly."""
    kept = {number: signal.getsignal(number) for number in (signal.SIGINT, *ENDING)}
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            for number, handler in kept.items():
                signal.signal(number, handler) if handler is not None else None


def _hush(ray: Any) -> None:
    """Suppress Ray's long messages about lost nodes, which no setting disables. Fairtrial reports them in one line."""
    worker = ray._private.worker
    if hasattr(worker, "print_to_stdstream"):
        worker.print_to_stdstream = lambda *_, **__: None


def _ray() -> Any:
    """Import Ray on first use, as `Any`, because its types are incomplete."""
    return importlib.import_module("ray")


def _running_here() -> str | None:
    """Return the address of the last cluster started on this machine, if it still responds. Ray would wait forever."""
    note = Path(os.environ.get("RAY_TMPDIR", tempfile.gettempdir())) / "ray" / "ray_current_cluster"
    if not is_trusted_note(note):  # another user could put the address of their cluster there, and receive our code
        return None
    with suppress(OSError, UserError):
        address = note.read_text().strip()
        _require_answer(address)
        return address
    return None


def _require_answer(address: str) -> None:
    """Raise an error unless an HTTP/2 server, such as Ray's, responds. Ray would retry a wrong address for minutes."""
    try:
        with socket.create_connection(_host_and_port(address), timeout=ANSWER_S) as connection:
            connection.settimeout(ANSWER_S)
            connection.sendall(_GREETING)
            answer = connection.recv(9)
    except OSError as error:
        raise _refusal(address, error) from None
    if len(answer) < 4 or answer[3] != _SETTINGS:
        raise _refusal(address, ConnectionError("the server there is not Ray"))


def _host_and_port(address: str) -> tuple[str, int]:
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdecimal() or int(port) >= 1 << 16:
        raise UserError(f"'{address}' is not a valid Ray cluster address", hint="Write it like HOST:6379.")
    return host, int(port)


def _not_let_in(address: str, error: BaseException) -> UserError:
    """Return the error for a server that responds like Ray but rejects the connection."""
    if "ersion mismatch" in str(error):
        versions = " ".join(line.strip() for line in str(error).splitlines()[:6])
        return UserError(
            f"this machine and the Ray cluster have different versions: {versions}",
            hint="Install the same versions of Ray and Python on all machines.",
        )
    return UserError(
        f"the Ray cluster at {address} rejected the connection: {_first_line(error)}",
        hint="If it uses token authentication, copy ~/.ray/auth_token from its head node, or set $RAY_AUTH_TOKEN.",
    )


def _first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__


def _refusal(address: str | None, error: BaseException) -> UserError:
    where = f"at {address}" if address else "here"
    return UserError(
        f"no Ray cluster responds {where}: {_first_line(error)}",
        hint="Start one with 'ray start --head', or omit the address to have one started on this machine.",
    )


def _require_room(resources: ResourceRequest) -> None:
    """Raise an error if a run fits on no machine of the cluster. Ray would wait forever for a larger one."""
    wanted, machines = _wanted(resources), _machines()
    if not any(_fit(machine, wanted) for machine in machines):
        largest = max(machines, key=lambda machine: machine.get("CPU", 0), default={})
        raise UserError(
            f"no machine of the Ray cluster has the resources for a run: {_spelled(wanted)}",
            hint=f"The largest has {_spelled(largest)}." if largest else "The cluster has no machines yet.",
        )


def _machines() -> list[dict[str, float]]:
    return [node["Resources"] for node in _ray().nodes() if node["Alive"]]


def _fit(machine: Mapping[str, float], wanted: Mapping[str, float]) -> int:
    """Return how many runs fit on a machine at once."""
    return int(min(machine.get(name, 0) // amount for name, amount in wanted.items()))


def _spelled(amounts: Mapping[str, float]) -> str:
    words = [counted(int(amounts["CPU"]), "core")] if "CPU" in amounts else []
    words += [counted(int(amounts["GPU"]), "GPU")] if "GPU" in amounts else []
    words += [f"{amounts['memory'] / 1e9:.0f} GB of memory"] if "memory" in amounts else []
    return ", ".join(words)


def _wanted(resources: ResourceRequest) -> dict[str, float]:
    wanted = {"CPU": float(resources.cpus or 1)}
    if resources.gpus:
        wanted["GPU"] = float(resources.gpus)
    if resources.memory_gb:
        wanted["memory"] = resources.memory_gb * 1e9
    return wanted


class Slot:
    """The Ray actor: a job server for one task at a time. `stop` is called concurrently with `run`."""

    def __init__(self, preload: Sequence[str], fresh: bool, environment: Mapping[str, str]) -> None:
        os.environ.update(environment)
        self._launcher = LocalLauncher(1, preload, fresh=fresh)
        self._launcher.wait_until_ready()
        self._to_stop: queue.SimpleQueue[tuple[str, bool]] = queue.SimpleQueue()

    def about(self) -> dict[str, Any]:
        """Return the version, process id and node, which let the launcher check the actor and kill its process."""
        ray = _ray()
        return {"version": __version__, "pid": os.getpid(), "node": ray.get_runtime_context().get_node_id()}

    def run(self, requests: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, int, dict[str, Any] | None]]:
        self._launcher.submit(requests)
        ends: list[Exit] = []
        while len(ends) < len(requests):
            ends += self._launcher.poll(0.1)
            with suppress(queue.Empty):
                key, kill = self._to_stop.get_nowait()
                self._launcher.stop(key, kill=kill)
        return [(end.key, end.code, end.outcome.to_dict() if end.outcome else None) for end in ends]

    def stop(self, key: str, kill: bool) -> None:
        self._to_stop.put((key, kill))

    def close(self) -> None:
        self._launcher.close()


Requests = dict[str, Mapping[str, Any]]


@dataclass
class _Seat:
    """The launcher's handle of an actor, and the task that it works on."""

    actor: Any
    about: Any
    requests: Requests = field(default_factory=dict)
    task: Any = None
    ready: dict[str, Any] | None = None

    def take(self, requests: Requests) -> None:
        self.requests = requests
        self.task = self.actor.run.remote(requests)


class RayLauncher:
    """Keeps one actor per slot, and creates a new one when Ray loses one."""

    def __init__(self, request: LaunchRequest) -> None:
        self._request = request
        self._seats: list[_Seat] = []
        self._waiting: deque[Requests] = deque()
        self._stops: dict[str, bool] = {}
        self._never_begun: list[Exit] = []
        self._counted, self._capacity = 0.0, 1

    @property
    def slots(self) -> int:
        """The requested number of jobs, or as many as fit on the cluster now: machines can join and leave."""
        if self._request.jobs:
            return self._request.jobs
        if time.monotonic() - self._counted > COUNT_S:
            self._counted = time.monotonic()
            wanted = _wanted(self._request.resources)
            self._capacity = sum(_fit(machine, wanted) for machine in _machines())
        return max(1, min(self._capacity, self._request.cells))

    def adopt(self, keys: Collection[str]) -> list[list[str]]:  # noqa: ARG002 — actors exit with their launcher
        return []

    def submit(self, requests: Mapping[str, Mapping[str, Any]]) -> None:
        self._waiting.append(dict(requests))
        self._place()

    def _place(self) -> None:
        """Assign waiting tasks to free actors, or to new ones while slots are left."""
        free = [seat for seat in self._seats if not seat.requests]
        while self._waiting and (free or len(self._seats) < self.slots):
            (free.pop() if free else self._new_seat()).take(self._waiting.popleft())
        for late in [seat for seat in self._seats if seat.ready is None and seat.requests]:
            if not free:
                break
            self._drop_unless_started(late)
            if late.ready is None:  # Ray has not placed that actor yet, so a free one takes its task
                free.pop().take(late.requests)

    def _drop_unless_started(self, seat: _Seat) -> None:
        """Drop an actor that has not started. One that has may already be working on its task."""
        started, _ = _ray().wait([seat.about], timeout=0)
        if started:
            self._greet(seat)
        else:
            self._drop(seat)

    def _new_seat(self) -> _Seat:
        ray = _ray()
        wanted = _wanted(self._request.resources)
        actor_class = ray.remote(Slot).options(
            num_cpus=wanted["CPU"],
            num_gpus=wanted.get("GPU", 0),
            memory=wanted.get("memory"),
            max_concurrency=2,
            max_restarts=0,
        )
        environment = _environment(self._request)
        actor = actor_class.remote(list(self._request.preload), self._request.fresh, environment)
        seat = _Seat(actor, actor.about.remote())
        self._seats.append(seat)
        return seat

    def poll(self, timeout: float) -> list[Exit]:
        ray = _ray()
        waited = {seat.task: seat for seat in self._seats if seat.requests}
        starting = {seat.about: seat for seat in self._seats if seat.ready is None}
        exits, self._never_begun = self._never_begun, []
        if exits or not waited:
            time.sleep(0 if exits else timeout)
            return exits
        done, _ = ray.wait([*waited, *starting], num_returns=1, timeout=timeout)
        for reference in done:
            if reference in starting:
                self._greet(starting[reference])
        for reference in done:
            if reference in waited:
                exits += self._take_back(waited[reference])
        self._place()
        return exits

    def _greet(self, seat: _Seat) -> None:
        """Handle the start of an actor: check its version, and pass on stops that were requested before it started."""
        ray = _ray()
        try:
            seat.ready = ray.get(seat.about)
        except ray.exceptions.RayError:
            seat.ready = {}  # the result of its task will contain the reason
            return
        if seat.ready["version"] != __version__:
            raise errors.FairtrialError(
                f"Fairtrial has version {__version__} here and {seat.ready['version']} on a machine of the Ray cluster",
                hint="Install the same version on all machines. Finished runs are kept.",
            )
        for key in seat.requests:
            if key in self._stops:
                seat.actor.stop.remote(key, self._stops.pop(key))

    def _take_back(self, seat: _Seat) -> list[Exit]:
        ray = _ray()
        keys, seat.requests = list(seat.requests), {}
        try:
            answers = ray.get(seat.task)
        except ray.exceptions.RayTaskError as error:  # such as a killed job server, which affects only this actor
            self._drop(seat)
            return [Exit(key, 1, None, lost=f"its actor on the Ray cluster failed: {_cause(error)}") for key in keys]
        except ray.exceptions.RayError as error:
            self._drop(seat)
            if "creation task" in str(error):  # it would fail again, on every machine or on that one
                raise _slot_failed(error) from error
            return [Exit(key, 1, None, lost="its actor on the Ray cluster died") for key in keys]
        return [
            Exit(key, code, Outcome.from_dict(outcome) if outcome else None)
            for key, code, outcome in answers
            if key in keys
        ]

    def _seat_of(self, key: str) -> _Seat | None:
        return next((seat for seat in self._seats if key in seat.requests), None)

    def has_started(self, key: str) -> bool:
        seat = self._seat_of(key)
        return bool(seat and seat.ready)

    def stop(self, key: str, *, kill: bool) -> None:
        seat = self._seat_of(key)
        if seat is None:
            self._take_from_queue(key, kill=kill)
        elif seat.ready:
            seat.actor.stop.remote(key, kill)
        else:
            self._stops[key] = kill

    def _take_from_queue(self, key: str, *, kill: bool) -> None:
        for requests in self._waiting:
            if requests.pop(key, None) is not None:
                self._never_begun.append(Exit(key, -(signal.SIGKILL if kill else signal.SIGTERM), None))
        self._waiting = deque(requests for requests in self._waiting if requests)

    def forget(self, key: str) -> None:
        """Abandon a cell. An actor without other cells no longer responds and is killed from outside."""
        seat = self._seat_of(key)
        if seat is not None:
            del seat.requests[key]
            if not seat.requests:
                self._drop(seat)

    def _drop(self, seat: _Seat) -> None:
        ray = _ray()
        self._seats = [other for other in self._seats if other is not seat]
        if seat.ready:
            _kill_on(seat.ready["node"], seat.ready["pid"])
        ray.kill(seat.actor)

    def close(self) -> None:
        ray = _ray()
        closing = [seat.actor.close.remote() for seat in self._seats if seat.ready]
        ray.wait(closing, num_returns=len(closing), timeout=KILL_S) if closing else None
        for seat in self._seats:
            ray.kill(seat.actor)
        self._seats = []
        _on_disconnect.close()


def _environment(request: LaunchRequest) -> dict[str, str]:
    """Return the environment variables for jobs: Fairtrial's own, requested ones and, for a URL, those of the store."""
    ours = {name: value for name, value in os.environ.items() if name.startswith("FAIRTRIAL_")}
    reaching = (*request.environment, *(REACHES_STORES if is_url(request.store) else ()))
    return {**ours, **{name: os.environ[name] for name in reaching if name in os.environ}}


def _kill_on(node: str, pid: int) -> None:
    """Kill a process from a task on its own node: Ray asks processes to exit, which a frozen one cannot do."""
    ray = _ray()
    there = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(node_id=node, soft=False)
    ray.remote(kill_with_children).options(num_cpus=0, max_retries=0, scheduling_strategy=there).remote(pid)


def _cause(error: Any) -> str:
    """Return the cause of a remote error in one line."""
    cause = getattr(error, "cause", None)
    if isinstance(cause, errors.FairtrialError):
        return cause.message
    return f"{type(cause).__name__}: {_first_line(cause)}" if isinstance(cause, Exception) else _first_line(error)


def _slot_failed(error: BaseException) -> errors.FairtrialError:
    lines = [line for line in str(error).strip().splitlines() if line.strip()]
    return errors.FairtrialError(
        f"a machine of the Ray cluster cannot run jobs: {lines[-1] if lines else type(error).__name__}",
        hint="Install Fairtrial and the packages of the recipe on every machine.",
    )
