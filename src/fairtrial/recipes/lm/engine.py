"""Batched sampling with a request queue, shared prefills of equal prompts, and a prefix cache.

A completion depends on its request's seed, the policy, and the batch it was in; the other requests of the batch change
at most the last digit of a number. It does not depend on the contents of the caches: a prefix is always processed
separately, so that a cache hit is bit-identical to a miss.
"""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from fairtrial.core.training import Clock
from fairtrial.plugins import UserError
from fairtrial.recipes.lm.llama_numpy import Ints, LlamaReader
from fairtrial.recipes.lm.types import Completion, Floats, SamplingRequest, Timing, Tokens, Values
from fairtrial.recipes.lm.weights import Blueprint

KEEP_ON = 0.75
"""Finished rows are dropped when less than this fraction is unfinished, because dropping copies the other rows."""


KVCache = Any
"""Keys and values of a prefilled text. Each kind of reader has its own type."""


class Writer(Protocol):
    def feed(self, tokens: Ints, counts: Ints) -> Floats: ...

    def keep(self, rows: Ints) -> None: ...


class PolicyReader(Protocol):
    """One policy version: prefills texts of equal length, and decodes rows that continue them."""

    def nothing(self) -> KVCache: ...

    def read(self, tokens: Ints, cache: KVCache | None = None) -> list[KVCache]: ...

    def begin(self, pasts: Sequence[KVCache], sizes: Sequence[int], most: int) -> Writer: ...


@dataclass
class SamplingCounters:
    """Cumulative counts of the engine's work.

    `prompt_tokens` = `prefilled_tokens` + `reused_tokens`. `adapter_lookups` and `prefix_lookups` are hits plus misses.
    `shared_prefills` counts the requests that were not the first with their prompt in a batch. The last token of a
    prompt is processed separately for every request.
    """

    requests: int = 0
    batches: int = 0
    adapter_lookups: int = 0
    adapter_hits: int = 0
    adapter_misses: int = 0
    prefix_lookups: int = 0
    prefix_hits: int = 0
    prefix_misses: int = 0
    shared_prefills: int = 0
    prompt_tokens: int = 0
    prefilled_tokens: int = 0
    reused_tokens: int = 0
    generated_tokens: int = 0
    decided_tokens: int = 0
    decode_steps: int = 0
    queue_s: float = 0.0
    prefill_s: float = 0.0
    decode_s: float = 0.0


@dataclass(frozen=True)
class _Queued:
    request: SamplingRequest
    version: int
    temperature: float
    arrived: float


class SamplingEngine:
    """Samples continuations with any version of a policy.

    `load(version)` returns the weights of a version that is not among the `adapters` most recently used ones. At most
    `batch` requests are sampled together, in order of arrival. `end` is the token that ends an unconstrained
    continuation. On the CPU, a Llama runs in NumPy; on any other `device`, `transformers` runs every model there.
    """

    def __init__(
        self, blueprint: Blueprint, load: Callable[[int], Values], *, batch: int = 32, temperature: float = 1.0,
        end: int | None = None, adapters: int = 2, prefixes: int = 8, share_prompts: bool = True,
        clock: Clock = time.perf_counter, device: str = "cpu",
    ) -> None:  # fmt: skip
        self.blueprint, self.batch, self.temperature, self.end = blueprint, batch, temperature, end
        self.counters = SamplingCounters()
        self._load, self._clock, self._share = load, clock, share_prompts
        self._most_adapters, self._most_prefixes = adapters, prefixes
        self._readers: OrderedDict[int, PolicyReader] = OrderedDict()
        self._prefixes: OrderedDict[tuple[int, Tokens], KVCache] = OrderedDict()
        self._queue: deque[_Queued] = deque()
        self._module: Any = None
        self._device = device

    def complete(
        self, requests: Sequence[SamplingRequest], version: int, *, temperature: float | None = None
    ) -> list[Completion]:
        """Sample continuations of these requests now. The queue must be empty: its requests belong to `run`."""
        if self._queue:
            raise ValueError("the queue contains requests: call run() first")
        for request in requests:
            self.submit(request, version, temperature=temperature)
        return self.run()

    def submit(self, request: SamplingRequest, version: int, *, temperature: float | None = None) -> None:
        """Add a request to the queue. Temperature 0 selects the most likely token."""
        self._check(request)
        chosen = self.temperature if temperature is None else temperature
        self._queue.append(_Queued(request, version, chosen, self._clock()))

    def run(self) -> list[Completion]:
        """Process the whole queue and return the completions in order of arrival."""
        done: list[Completion] = []
        while self._queue:
            done += self._run_batch(self._next_batch())
        return done

    def forget(self, version: int) -> None:
        """Drop the weights and prefixes of a version from the caches."""
        self._readers.pop(version, None)
        for key in [key for key in self._prefixes if key[0] == version]:
            del self._prefixes[key]

    def _check(self, request: SamplingRequest) -> None:
        asked = len(request.prompt) + request.most_tokens
        if not request.prompt or not 0 <= request.prefix < len(request.prompt):
            raise ValueError("a prompt must have at least one token and be longer than its prefix")
        if asked > self.blueprint.longest:
            raise UserError(
                f"a prompt of {len(request.prompt)} tokens and a completion of {request.most_tokens} exceed the "
                f"model's context length of {self.blueprint.longest} tokens",
                hint="Use a shorter prompt or another model.",
            )

    def _next_batch(self) -> list[_Queued]:
        """Take the next requests from the queue: at most `batch`, all of the same version."""
        batch = [self._queue.popleft()]
        while self._queue and len(batch) < self.batch and self._queue[0].version == batch[0].version:
            batch.append(self._queue.popleft())
        return batch

    def _run_batch(self, batch: Sequence[_Queued]) -> list[Completion]:
        start = self._clock()
        version = batch[0].version
        reader = self._reader(version)
        order, sizes = self._group(batch)
        rows = [_Row(batch[number], self.end, self.blueprint.vocabulary) for number in order]
        firsts = [rows[place].request for place in np.cumsum([0, *sizes[:-1]])]
        pasts = self._prefill(reader, version, firsts)
        read = self._clock()
        most = max(row.request.most_tokens for row in rows)
        if most:
            self._decode(reader.begin(pasts, sizes, most), rows)
        wrote = self._clock()
        self._count(batch, rows, sizes)
        times = [Timing(start - queued.arrived, read - start, wrote - read) for queued in batch]
        self._count_times(times, read - start, wrote - read)
        by_number = dict(zip(order, rows, strict=True))
        return [by_number[number].completion(version, times[number]) for number in range(len(batch))]

    def _group(self, batch: Sequence[_Queued]) -> tuple[list[int], list[int]]:
        """Return the order that puts requests with equal prompts next to each other, and the size of each group."""
        groups: dict[object, list[int]] = {}
        for number, queued in enumerate(batch):
            key = (queued.request.prompt, queued.request.prefix) if self._share else number
            groups.setdefault(key, []).append(number)
        return [number for group in groups.values() for number in group], [len(group) for group in groups.values()]

    def _reader(self, version: int) -> PolicyReader:
        self.counters.adapter_lookups += 1
        reader = self._readers.get(version)
        if reader is not None:
            self.counters.adapter_hits += 1
            self._readers.move_to_end(version)
            return reader
        self.counters.adapter_misses += 1
        reader = self._make_reader(self.blueprint.effective(self._load(version)))
        self._readers[version] = reader
        while len(self._readers) > max(1, self._most_adapters):
            self.forget(next(iter(self._readers)))
        if not self._most_adapters:
            self.forget(version)
        return reader

    def _make_reader(self, weights: Values) -> PolicyReader:
        if self.blueprint.llama is not None and self._device == "cpu":
            return LlamaReader(self.blueprint.llama, weights)
        import torch

        from fairtrial.recipes.lm.hugging import TransformersReader
        from fairtrial.recipes.lm.model import make_transformer

        if self._module is None:
            self._module = make_transformer(self.blueprint.config, self._device)
        return TransformersReader(self._module, weights, torch.device(self._device))

    def _prefill(self, reader: PolicyReader, version: int, firsts: Sequence[SamplingRequest]) -> list[KVCache]:
        """Prefill all prompts except for their last token. Prompts of equal prefix and length form one batch."""
        together: dict[tuple[Tokens, int], list[int]] = {}
        for number, request in enumerate(firsts):
            key = request.prompt[: request.prefix], len(request.prompt) - 1 - request.prefix
            together.setdefault(key, []).append(number)
        pasts: dict[int, KVCache] = {}
        for (prefix, length), numbers in together.items():
            *_, before = (self._prefix(reader, version, prefix) for _ in numbers)
            if length == 0:
                pasts |= dict.fromkeys(numbers, before or reader.nothing())
                continue
            rest = np.array([firsts[number].prompt[len(prefix) : -1] for number in numbers], np.int64)
            pasts |= dict(zip(numbers, reader.read(rest, before), strict=True))
            self.counters.prefilled_tokens += rest.size
        return [pasts[number] for number in range(len(firsts))]

    def _prefix(self, reader: PolicyReader, version: int, prefix: Tokens) -> KVCache | None:
        if not prefix:
            return None
        key = (version, prefix)
        self.counters.prefix_lookups += 1
        kv_cache = self._prefixes.get(key)
        if kv_cache is not None:
            self.counters.prefix_hits += 1
            self.counters.reused_tokens += len(prefix)
            self._prefixes.move_to_end(key)
            return kv_cache
        self.counters.prefix_misses += 1
        kv_cache = reader.read(np.array([prefix], np.int64))[0]
        self.counters.prefilled_tokens += len(prefix)
        self._prefixes[key] = kv_cache
        while len(self._prefixes) > self._most_prefixes:
            self._prefixes.popitem(last=False)
        return kv_cache

    def _decode(self, writer: Writer, rows: Sequence[_Row]) -> None:
        if all(row.request.allowed is None and row.end is None for row in rows) and _level(rows):
            self.counters.decode_steps += _write_openly(writer, rows)
            return
        going = list(rows)
        while True:
            places = [place for place, row in enumerate(going) if row.advance()]
            if not places:
                return
            if len(places) < KEEP_ON * len(going):
                writer.keep(np.array(places, np.int64))
                going, places = [going[place] for place in places], list(range(len(places)))
            logits = writer.feed(*_pending(going))
            self.counters.decode_steps += 1
            _draw(logits, going, places)

    def _count(self, batch: Sequence[_Queued], rows: Sequence[_Row], sizes: Sequence[int]) -> None:
        counters = self.counters
        prompts = sum(len(queued.request.prompt) for queued in batch)
        counters.requests += len(batch)
        counters.batches += 1
        counters.shared_prefills += len(batch) - len(sizes)
        counters.prompt_tokens += prompts
        counters.prefilled_tokens += len(batch)
        firsts = np.cumsum([0, *sizes[:-1]])
        contexts = [len(rows[first].request.prompt) - 1 for first in firsts]
        counters.reused_tokens += sum((size - 1) * read for size, read in zip(sizes, contexts, strict=True))
        counters.generated_tokens += sum(len(row.tokens) for row in rows)
        counters.decided_tokens += sum(row.decided for row in rows)

    def _count_times(self, times: Iterable[Timing], prefill: float, decode: float) -> None:
        self.counters.queue_s += sum(each.queue_s for each in times)
        self.counters.prefill_s += prefill
        self.counters.decode_s += decode


@dataclass
class _Row:
    """A continuation that is being generated."""

    queued: _Queued
    end: int | None
    vocabulary: int
    tokens: list[int] = field(default_factory=list)
    behaviour: list[float] = field(default_factory=list)
    policy: list[float] = field(default_factory=list)
    allowed: list[Tokens] = field(default_factory=list)
    pending: list[int] = field(default_factory=list)
    decided: int = 0

    def __post_init__(self) -> None:
        self.request = self.queued.request
        self.node: Any = self.request.allowed
        self.pending = [self.request.prompt[-1]]
        self.draws = np.random.Generator(np.random.PCG64(self.request.seed)).random(self.request.most_tokens)

    @property
    def over(self) -> bool:
        if len(self.tokens) >= self.request.most_tokens:
            return True
        if self.node is None:
            return self.end is not None and bool(self.tokens) and self.tokens[-1] == self.end
        return bool(self.node.done)

    def advance(self) -> bool:
        """Append all tokens without an alternative. Return whether a token is left to sample."""
        while not self.over:
            if self.node is None or len(self.node.allowed) > 1:
                return True
            self.take(self.node.allowed[0], 0.0, 0.0)
        return False

    def take(self, token: int, behaviour: float, policy: float) -> None:
        self.tokens.append(token)
        self.behaviour.append(behaviour)
        self.policy.append(policy)
        self.pending.append(token)
        if self.node is not None:
            self.allowed.append(self.node.allowed)
            self.node = self.node.after(token)

    def open_ids(self) -> Sequence[int]:
        return range(self.vocabulary) if self.node is None else self.node.allowed

    def completion(self, version: int, timing: Timing) -> Completion:
        allowed = None if self.request.allowed is None else tuple(self.allowed)
        behaviour, policy = np.array(self.behaviour, np.float32), np.array(self.policy, np.float32)
        return Completion(tuple(self.tokens), behaviour, policy, allowed, version, timing)


def _level(rows: Sequence[_Row]) -> bool:
    first = rows[0]
    return all(
        row.request.most_tokens == first.request.most_tokens and row.queued.temperature == first.queued.temperature
        for row in rows
    )


def _write_openly(writer: Writer, rows: Sequence[_Row]) -> int:
    """Generate unconstrained rows of equal length together, and return the number of decoding steps."""
    most, temperature = rows[0].request.most_tokens, rows[0].queued.temperature
    draws = np.array([row.draws for row in rows])
    ones = np.ones(len(rows), np.int64)
    tokens = np.empty((len(rows), most), np.int64)
    behaviour, policy = np.empty((2, len(rows), most), np.float32)
    fed = np.array([row.pending for row in rows], np.int64)
    for place in range(most):
        logits = writer.feed(fed, ones)
        tokens[:, place], behaviour[:, place], policy[:, place] = _choose(logits, draws[:, place], temperature)
        fed = tokens[:, place : place + 1]
    for number, row in enumerate(rows):
        row.tokens, row.decided = tokens[number].tolist(), most
        row.behaviour, row.policy = behaviour[number].tolist(), policy[number].tolist()
    return most


def _pending(rows: Sequence[_Row]) -> tuple[Ints, Ints]:
    """Return the tokens that each row has not fed to the model yet; none for a finished row."""
    counts = np.array([0 if row.over else len(row.pending) for row in rows], np.int64)
    tokens = np.zeros((len(rows), counts.max()), np.int64)
    for number, row in enumerate(rows):
        if not row.over:
            tokens[number, : counts[number]] = row.pending
            row.pending = []
    return tokens, counts


def _draw(logits: Floats, rows: Sequence[_Row], places: Sequence[int]) -> None:
    """Sample a token for each unfinished row among its allowed tokens."""
    drawn = [rows[place] for place in places]
    ids = [row.open_ids() for row in drawn]
    sizes = np.array([len(each) for each in ids])
    table = np.zeros((len(drawn), sizes.max()), np.int64)
    shut = np.arange(sizes.max()) >= sizes[:, None]
    table[~shut] = np.concatenate([np.asarray(each, np.int64) for each in ids])
    among = logits[np.array(places)[:, None], table]
    among[shut] = -np.inf
    uniform = np.array([row.draws[len(row.tokens)] for row in drawn])
    for temperature in {row.queued.temperature for row in drawn}:
        picked = [number for number, row in enumerate(drawn) if row.queued.temperature == temperature]
        chosen, behaviour, policy = _choose(among[picked], uniform[picked], temperature)
        for place, number in enumerate(picked):
            row = drawn[number]
            row.decided += 1
            row.take(int(table[number, chosen[place]]), float(behaviour[place]), float(policy[place]))


def _choose(logits: Floats, uniform: np.ndarray, temperature: float) -> tuple[Ints, Floats, Floats]:
    """Return the index of the chosen token in each row, and its log-probability with and without the temperature."""
    rows = np.arange(len(logits))
    shifted = logits - logits.max(axis=1, keepdims=True)
    cooled = shifted if temperature in (0, 1) else shifted / np.float32(temperature)
    reached = np.cumsum(np.exp(cooled), axis=1, dtype=np.float64)
    total = reached[:, -1]
    if temperature == 0:
        chosen = shifted.argmax(axis=1)
        return chosen, np.zeros(len(rows), np.float32), (shifted[rows, chosen] - np.log(total)).astype(np.float32)
    # Rounding must not push a draw past the last allowed token, into the padding.
    wanted = np.minimum(uniform * total, np.nextafter(total, 0))
    chosen = (reached <= wanted[:, None]).sum(axis=1)
    behaviour = (cooled[rows, chosen] - np.log(total)).astype(np.float32)
    if temperature == 1:
        return chosen, behaviour, behaviour
    policy = shifted[rows, chosen] - np.log(np.exp(shifted).sum(axis=1))
    return chosen, behaviour, policy
