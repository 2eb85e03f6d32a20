"""Runs tasks on a Ray cluster: one actor per slot, placed by Ray, each with a job server of its own.

Ray knows the machines, places the actors by what a run needs, and says when one is gone. The cells run in processes
that the actor's job server forks, as on one machine: starting one takes milliseconds, a kill ends it whole, and when
the actor is gone in any way its job is asked to save and stop. A machine that Ray gave up may live on; what it still
writes is kept out by the token of its claim.
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
"""Variables that say where a store at a URL is, and who may use it."""
_AUTHENTICATION = "RAY_AUTH_MODE"
_NAMESPACE = "fairtrial"
_on_disconnect = ExitStack()
"""What ends our connection, if it is ours, and leaves things as they were."""
_SETTINGS = 4
_GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, _SETTINGS, 0, 0, 0, 0, 0))


class Options(LauncherOptions):
    """`address`: HOST:PORT of the cluster's head, ray://HOST:PORT of its client server, or `auto` for one here."""

    address: str | None = None


def check(request: LaunchRequest) -> None:
    """Connect now: an address that is wrong must be told before anything is written."""
    assert isinstance(request.options, Options)
    _connect(request.options.address)
    _require_room(request.resources)


def describe(request: LaunchRequest, runs: Sequence[Sequence[str]]) -> Described:
    """Where the runs would go, and what each needs. No connection is made: neither Ray nor a cluster need be there."""
    assert isinstance(request.options, Options)
    address = request.options.address or os.environ.get("RAY_ADDRESS") or None
    wanted = _wanted(request.resources)
    at_once = f"at most {request.jobs} at once" if request.jobs else "as many at once as there is room for"
    head = f"On {_where(address)}, {at_once}, each with {_spelled(wanted)}:"
    said = ["No connection was made; a launch checks first whether the cluster has room for such a run."]
    document = {"address": address, "resources": wanted, "jobs": request.jobs, "runs": [list(names) for names in runs]}
    return Described("\n".join([head, *(", ".join(names) for names in runs)]), {**document, "notes": said}, said)


def _where(address: str | None) -> str:
    if address is None:
        return "the Ray cluster that runs here, or one that is started here"
    if address == "auto":
        return "the Ray cluster that runs here"
    _host_and_port(address)
    return f"the Ray cluster at {address}"


def open_launcher(request: LaunchRequest) -> RayLauncher:
    assert isinstance(request.options, Options)
    _connect(request.options.address)
    return RayLauncher(request)


def _connect(address: str | None) -> None:
    """Unless this program is connected already: then it is its own business to leave the cluster again."""
    ray = _ray()
    if ray.is_initialized():
        return
    # It reports how it is used to its makers unless it is told not to; nothing may leave this machine unasked.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    asked = address or os.environ.get("RAY_ADDRESS")
    address = _running_here() if asked in (None, "", "auto") else asked
    if asked == "auto" and address is None:
        raise _refusal(None, ConnectionError("none was started on this machine"))
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
    """Ray itself looks for a token only where it was given no address.

    A cluster that wants none must not be given one: it then takes this program for dead, whose answers it cannot get.
    """
    path = Path(os.environ.get("RAY_AUTH_TOKEN_PATH") or Path.home() / ".ray" / "auth_token")
    if _AUTHENTICATION in os.environ or not (os.environ.get("RAY_AUTH_TOKEN") or path.is_file()):
        return
    if _wants_token(ray, address):
        _set_authentication(ray, "token")


def _set_authentication(ray: Any, mode: str | None) -> None:
    """For one cluster only, as also what Ray itself sets where it starts one: the next may want it otherwise."""
    os.environ.pop(_AUTHENTICATION, None)
    if mode is not None:
        os.environ[_AUTHENTICATION] = mode
    with suppress(AttributeError):
        ray._raylet.Config.initialize("")  # it read the environment when it was loaded, and the token when it had to
        ray._raylet.AuthenticationTokenLoader.instance().reset_cache()


def _wants_token(ray: Any, address: str) -> bool:
    """Whether a cluster refuses whoever has no token. Its client server (ray://) cannot be asked."""
    try:
        with _silence():
            ray._raylet.GcsClient(address=address).get_all_node_info(timeout=ANSWER_S)
    except ray.exceptions.AuthenticationError:
        return True
    except Exception:  # noqa: BLE001 — what else is wrong is found when it is joined
        return False
    return False


@contextmanager
def _silence() -> Iterator[None]:
    """Ray prints what it thinks of a refusal past Python."""
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
    """Ray sets handlers of signals, also below Python's; those that were there decide how a launcher ends."""
    kept = {number: signal.getsignal(number) for number in (signal.SIGINT, *ENDING)}
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            for number, handler in kept.items():
                signal.signal(number, handler) if handler is not None else None


def _hush(ray: Any) -> None:
    """Ray prints pages about a node that is gone into our output, whatever it is told: we say it in a sentence."""
    worker = ray._private.worker
    if hasattr(worker, "print_to_stdstream"):
        worker.print_to_stdstream = lambda *_, **__: None


def _ray() -> Any:
    """Loaded when it is needed, and without its types, which say little."""
    return importlib.import_module("ray")


def _running_here() -> str | None:
    """The cluster that was started on this machine last, if it is still there. Ray alone would wait for it for ever."""
    note = Path(os.environ.get("RAY_TMPDIR", tempfile.gettempdir())) / "ray" / "ray_current_cluster"
    if not is_trusted_note(note):  # another user could name a cluster of theirs there, and be handed our code
        return None
    with suppress(OSError, UserError):
        address = note.read_text().strip()
        _require_answer(address)
        return address
    return None


def _require_answer(address: str) -> None:
    """Ray tries a wrong address for minutes. Whoever speaks HTTP/2, as its servers do, answers a greeting at once."""
    try:
        with socket.create_connection(_host_and_port(address), timeout=ANSWER_S) as connection:
            connection.settimeout(ANSWER_S)
            connection.sendall(_GREETING)
            answer = connection.recv(9)
    except OSError as error:
        raise _refusal(address, error) from None
    if len(answer) < 4 or answer[3] != _SETTINGS:
        raise _refusal(address, ConnectionError("what listens there is not Ray"))


def _host_and_port(address: str) -> tuple[str, int]:
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdecimal() or int(port) >= 1 << 16:
        raise UserError(f"'{address}' is not the address of a Ray cluster", hint="Write it like HOST:6379.")
    return host, int(port)


def _not_let_in(address: str, error: BaseException) -> UserError:
    """Something answers there that speaks as Ray does."""
    if "ersion mismatch" in str(error):
        versions = " ".join(line.strip() for line in str(error).splitlines()[:6])
        return UserError(
            f"this machine and the Ray cluster do not fit together: {versions}",
            hint="Ray and Python must have the same versions on all machines.",
        )
    return UserError(
        f"the Ray cluster at {address} did not let this program in: {_first_line(error)}",
        hint="If it uses token authentication, copy ~/.ray/auth_token from its head to here, or set $RAY_AUTH_TOKEN.",
    )


def _first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__


def _refusal(address: str | None, error: BaseException) -> UserError:
    where = f"at {address}" if address else "here"
    return UserError(
        f"no Ray cluster answers {where}: {_first_line(error)}",
        hint="Start one with 'ray start --head', or leave out --address to have one started on this machine.",
    )


def _require_room(resources: ResourceRequest) -> None:
    """Ray waits for ever for a machine that nobody has; say at once that there is none."""
    wanted, machines = _wanted(resources), _machines()
    if not any(_fit(machine, wanted) for machine in machines):
        largest = max(machines, key=lambda machine: machine.get("CPU", 0), default={})
        raise UserError(
            f"no machine of the Ray cluster has what a run needs: {_spelled(wanted)}",
            hint=f"The largest has {_spelled(largest)}." if largest else "The cluster has no machine yet.",
        )


def _machines() -> list[dict[str, float]]:
    return [node["Resources"] for node in _ray().nodes() if node["Alive"]]


def _fit(machine: Mapping[str, float], wanted: Mapping[str, float]) -> int:
    """How many runs fit on a machine at once."""
    return int(min(machine.get(name, 0) // amount for name, amount in wanted.items()))


def _spelled(amounts: Mapping[str, float]) -> str:
    words = [counted(int(amounts["CPU"]), "core")] if "CPU" in amounts else []
    words += [counted(int(amounts["GPU"]), "card")] if "GPU" in amounts else []
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
    """What runs in an actor: a job server for one task at a time. `stop` comes while `run` waits."""

    def __init__(self, preload: Sequence[str], fresh: bool, environment: Mapping[str, str]) -> None:
        os.environ.update(environment)
        self._launcher = LocalLauncher(1, preload, fresh=fresh)
        self._launcher.wait_until_ready()
        self._to_stop: queue.SimpleQueue[tuple[str, bool]] = queue.SimpleQueue()

    def about(self) -> dict[str, Any]:
        """Where it is, for the launcher to compare and to find its process."""
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
    """An actor as the launcher sees it, and what it works on."""

    actor: Any
    about: Any
    requests: Requests = field(default_factory=dict)
    task: Any = None
    ready: dict[str, Any] | None = None

    def take(self, requests: Requests) -> None:
        self.requests = requests
        self.task = self.actor.run.remote(requests)


class RayLauncher:
    """Keeps an actor per slot, and makes a new one where Ray has lost one."""

    def __init__(self, request: LaunchRequest) -> None:
        self._request = request
        self._seats: list[_Seat] = []
        self._waiting: deque[Requests] = deque()
        self._stops: dict[str, bool] = {}
        self._never_begun: list[Exit] = []
        self._counted, self._capacity = 0.0, 1

    @property
    def slots(self) -> int:
        """As many as were asked for, or as the cluster has room for now: machines come and go."""
        if self._request.jobs:
            return self._request.jobs
        if time.monotonic() - self._counted > COUNT_S:
            self._counted = time.monotonic()
            wanted = _wanted(self._request.resources)
            self._capacity = sum(_fit(machine, wanted) for machine in _machines())
        return max(1, min(self._capacity, self._request.cells))

    def adopt(self, keys: Collection[str]) -> list[list[str]]:  # noqa: ARG002 — actors end with their launcher
        return []

    def submit(self, requests: Mapping[str, Mapping[str, Any]]) -> None:
        self._waiting.append(dict(requests))
        self._place()

    def _place(self) -> None:
        """Give what waits to whoever is free, or to a new actor while there may be more of them."""
        free = [seat for seat in self._seats if not seat.requests]
        while self._waiting and (free or len(self._seats) < self.slots):
            (free.pop() if free else self._new_seat()).take(self._waiting.popleft())
        for late in [seat for seat in self._seats if seat.ready is None and seat.requests]:
            if not free:
                break
            self._drop_unless_started(late)
            if late.ready is None:  # Ray has no room for that actor yet, and here is one that has nothing to do
                free.pop().take(late.requests)

    def _drop_unless_started(self, seat: _Seat) -> None:
        """An actor that has started works on its task, even where nobody has read its greeting yet."""
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
        """The actor is there: is it one of us, and was its task stopped before it had begun?"""
        ray = _ray()
        try:
            seat.ready = ray.get(seat.about)
        except ray.exceptions.RayError:
            seat.ready = {}  # its task comes back with the reason
            return
        if seat.ready["version"] != __version__:
            raise errors.FairtrialError(
                f"Fairtrial is {__version__} here and {seat.ready['version']} on a machine of the Ray cluster",
                hint="Install the same version on all of them. Finished runs are kept.",
            )
        for key in seat.requests:
            if key in self._stops:
                seat.actor.stop.remote(key, self._stops.pop(key))

    def _take_back(self, seat: _Seat) -> list[Exit]:
        ray = _ray()
        keys, seat.requests = list(seat.requests), {}
        try:
            answers = ray.get(seat.task)
        except ray.exceptions.RayTaskError as error:  # such as a job server that was killed: others have theirs
            self._drop(seat)
            return [Exit(key, 1, None, lost=f"its place on the Ray cluster failed: {_cause(error)}") for key in keys]
        except ray.exceptions.RayError as error:
            self._drop(seat)
            if "creation task" in str(error):  # it would be so on every machine, or for ever on that one
                raise _slot_failed(error) from error
            return [Exit(key, 1, None, lost="its place on the Ray cluster is gone") for key in keys]
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
        """The actor itself no longer answers: it is ended from outside, and its cells are given up."""
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
    """What runs must see on every machine as they would here; what reaches the store only where it is a URL."""
    ours = {name: value for name, value in os.environ.items() if name.startswith("FAIRTRIAL_")}
    reaching = (*request.environment, *(REACHES_STORES if is_url(request.store) else ()))
    return {**ours, **{name: os.environ[name] for name in reaching if name in os.environ}}


def _kill_on(node: str, pid: int) -> None:
    """Ray asks a process to end itself, which a frozen one cannot: its own machine ends it."""
    ray = _ray()
    there = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(node_id=node, soft=False)
    ray.remote(kill_with_children).options(num_cpus=0, max_retries=0, scheduling_strategy=there).remote(pid)


def _cause(error: Any) -> str:
    """What went wrong there, in a line."""
    cause = getattr(error, "cause", None)
    if isinstance(cause, errors.FairtrialError):
        return cause.message
    return f"{type(cause).__name__}: {_first_line(cause)}" if isinstance(cause, Exception) else _first_line(error)


def _slot_failed(error: BaseException) -> errors.FairtrialError:
    lines = [line for line in str(error).strip().splitlines() if line.strip()]
    return errors.FairtrialError(
        f"a machine of the Ray cluster cannot run jobs: {lines[-1] if lines else type(error).__name__}",
        hint="Fairtrial and what its recipe needs must be installed on every machine.",
    )
