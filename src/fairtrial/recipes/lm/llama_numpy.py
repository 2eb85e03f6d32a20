"""Llama for sampling, in NumPy: for small models, the overhead of torch calls exceeds the arithmetic.

Weights are prepared once per policy version: query, key and value in one matrix, gate and up in another, the scales of
the norms and of the attention folded in, and the two halves of every head interleaved, so that a rotary embedding is
one complex multiplication.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fairtrial.recipes.lm.types import Floats, Values
from fairtrial.recipes.lm.weights import Llama

Ints = NDArray[np.int64]
NEVER = np.float32(-np.inf)
FIRST_POSITIONS = 512
BLOCK = 64
"""Number of tokens per block of causal attention in prefill. A block skips the keys after its last token."""
SHORT = 48
"""Texts up to this length are copied for each of their rows: one attention over a copy is then faster than two."""


@dataclass(frozen=True)
class KVCache:
    """Keys (layers, heads, width, tokens) and values (layers, heads, tokens, width) of a prefilled text."""

    keys: Floats
    values: Floats

    @property
    def length(self) -> int:
        return int(self.values.shape[2])


@dataclass(frozen=True)
class Layer:
    qkv: Floats
    o_proj: Floats
    gate_up_proj: Floats
    down_proj: Floats


class LlamaReader:
    """One policy version, prepared for prefill and decoding."""

    def __init__(self, llama: Llama, weights: Values) -> None:
        self.llama = llama
        self.embedding = weights["model.embed_tokens.weight"]
        head = self.embedding if llama.tied else weights["lm_head.weight"]
        self.head = np.ascontiguousarray((head * _gain(weights["model.norm.weight"])).T)
        self.layers = [_prepare(llama, weights, f"model.layers.{number}.") for number in range(llama.layers)]
        self._rope_table = _rope_table(llama, FIRST_POSITIONS)

    def rope(self, positions: Ints) -> NDArray[np.complex64]:
        """Return the rotary embedding of these positions, as complex factors of each pair of a head."""
        most = int(positions.max(initial=0)) + 1
        if most > len(self._rope_table):
            self._rope_table = _rope_table(self.llama, 2 * most)
        values: NDArray[np.complex64] = self._rope_table[positions]
        return values

    def read(self, tokens: Ints, cache: KVCache | None = None) -> list[KVCache]:
        """Prefill texts of equal length, (texts, tokens), that continue `cache`. The returned caches include it."""
        texts, length = tokens.shape
        before = cache.length if cache else 0
        rope = np.tile(self.rope(np.arange(before, before + length)), (texts, 1))
        x = self.embedding[tokens.ravel()]
        seen = []
        for number, layer in enumerate(self.layers):
            earlier = (cache.keys[number], cache.values[number]) if cache else None
            q, keys, values = self._project(layer, x, rope, (texts, length), earlier)
            seen.append((keys, values))
            if number + 1 < len(self.layers):
                x = self.finish(layer, x, self.joined(_attend_causally(q, keys, values, length), length))
        return [KVCache(np.stack([k[i] for k, _ in seen]), np.stack([v[i] for _, v in seen])) for i in range(texts)]

    def nothing(self) -> KVCache:
        """Return an empty KV cache."""
        shape = self.llama.layers, self.llama.key_heads
        return KVCache(
            np.zeros((*shape, self.llama.head_width, 0), np.float32),
            np.zeros((*shape, 0, self.llama.head_width), np.float32),
        )

    def begin(self, caches: Sequence[KVCache], sizes: Sequence[int], most: int) -> LlamaWriter:
        """Start decoding rows, `sizes[i]` of which continue text i, by at most `most` tokens each."""
        return LlamaWriter(self, caches, sizes, most)

    def _project(
        self,
        layer: Layer,
        x: Floats,
        rope: NDArray[np.complex64],
        shape: tuple[int, int],
        earlier: tuple[Floats, Floats] | None,
    ) -> tuple[Floats, Floats, Floats]:
        q, k, v = self.heads(layer, x, rope, shape)
        keys, values = k.transpose(0, 2, 3, 1), v.transpose(0, 2, 1, 3)
        if earlier is not None:
            before = [np.broadcast_to(each, (shape[0], *each.shape)) for each in earlier]
            keys, values = np.concatenate([before[0], keys], axis=3), np.concatenate([before[1], values], axis=2)
        return q, keys, values

    def heads(
        self, layer: Layer, x: Floats, rope: NDArray[np.complex64], shape: tuple[int, int]
    ) -> tuple[Floats, Floats, Floats]:
        """Return queries, keys and values.

        Queries are (rows, key heads, tokens × repeats, width); keys and values are (rows, tokens, key heads, width).
        """
        rows, length = shape
        llama = self.llama
        both, wide = llama.heads + llama.key_heads, llama.head_width
        qkv = normed(x, llama.epsilon) @ layer.qkv
        pairs = qkv.view(np.complex64).reshape(rows * length, both + llama.key_heads, wide // 2)
        pairs[:, :both] *= rope[:, None, :]
        split = qkv.reshape(rows, length, both + llama.key_heads, wide)
        q = split[:, :, : llama.heads].reshape(rows, length, llama.key_heads, -1, wide).transpose(0, 2, 1, 3, 4)
        return q.reshape(rows, llama.key_heads, -1, wide), split[:, :, llama.heads : both], split[:, :, both:]

    def joined(self, attended: Floats, length: int) -> Floats:
        """Concatenate the heads of each token."""
        rows, wide = len(attended), self.llama.head_width
        parted = attended.reshape(rows, self.llama.key_heads, length, -1, wide).transpose(0, 2, 1, 3, 4)
        return parted.reshape(rows * length, -1)

    def finish(self, layer: Layer, x: Floats, attended: Floats) -> Floats:
        x = attended @ layer.o_proj + x
        both = normed(x, self.llama.epsilon) @ layer.gate_up_proj
        gate, up = both[:, : self.llama.inner], both[:, self.llama.inner :]
        with np.errstate(over="ignore"):  # an infinity here gives 0 in the division, as it should
            shut = np.exp(-gate)
        shut += 1
        up *= gate
        up /= shut
        x += up @ layer.down_proj
        return x


class LlamaWriter:
    """Rows that are decoded together.

    Rows that continue the same text share its keys and values, unless the longest text is at most SHORT tokens: then
    every row has a copy before its own keys. Copies are right-aligned, so that all rows write to the same column.
    `shift` is the difference between a row's positions and its columns.
    """

    def __init__(self, reader: LlamaReader, caches: Sequence[KVCache], sizes: Sequence[int], most: int) -> None:
        self.reader = reader
        self.groups = np.repeat(np.arange(len(caches)), sizes)
        starts = np.array([cache.length for cache in caches])
        longest = int(starts.max())
        self.copied = longest <= SHORT
        self.keys, self.values = _side_by_side(caches, longest if self.copied else 0)
        self.own_keys, self.own_values = self._own(most)
        filled = longest if self.copied else 0
        self.shift = starts[self.groups] - filled
        self.lengths = np.full(len(self.groups), filled)
        self.missing = (
            _missing(-self.shift, longest) if self.copied else _missing(starts, self.keys.shape[-1], after=True)
        )
        self._arrange()

    def _own(self, most: int) -> tuple[Floats, Floats]:
        """Allocate keys and values for the rows' new tokens, after their copies of the texts."""
        llama, rows = self.reader.llama, len(self.groups)
        before = self.keys.shape[-1] if self.copied else 0
        keys = np.zeros((llama.layers, rows, llama.key_heads, llama.head_width, before + most), np.float32)
        values = np.zeros((llama.layers, rows, llama.key_heads, before + most, llama.head_width), np.float32)
        if self.copied:
            keys[..., :before] = self.keys[:, self.groups]
            values[..., :before, :] = self.values[:, self.groups]
        return keys, values

    def _arrange(self) -> None:
        """Compute each row's slot in a padded (texts, rows per text) table; None if the rows already form one."""
        sizes = np.bincount(self.groups)
        self.texts, self.widest = len(sizes), int(sizes.max())
        first = np.cumsum(sizes) - sizes
        self.slots = None
        if not (sizes == self.widest).all():
            self.slots = self.groups * self.widest + np.arange(len(self.groups)) - first[self.groups]

    def keep(self, rows: Ints) -> None:
        """Continue with these rows only."""
        left = np.unique(self.groups[rows])
        self.groups = np.searchsorted(left, self.groups[rows])
        self.shift, self.lengths = self.shift[rows], self.lengths[rows]
        self.keys, self.values = self.keys[:, left], self.values[:, left]
        if self.missing is not None:
            self.missing = self.missing[rows if self.copied else left]
        self.own_keys, self.own_values = self.own_keys[:, rows], self.own_values[:, rows]
        self._arrange()

    def feed(self, tokens: Ints, counts: Ints) -> Floats:
        """Feed tokens (rows, longest), of which the first `counts[row]` are valid. Return the logits after the last."""
        rows, length = tokens.shape
        columns = self.lengths[:, None] + np.arange(length)
        level = length == 1 and bool((self.lengths == self.lengths[0]).all())
        rope = self.reader.rope((self.shift[:, None] + columns).ravel())
        until = int((self.lengths + counts).max())
        unseen = self._unseen(columns, until, level)
        x = self.reader.embedding[tokens.ravel()]
        for number, layer in enumerate(self.reader.layers):
            q, k, v = self.reader.heads(layer, x, rope, (rows, length))
            self._remember(number, k, v, columns, None if level else counts)
            attend = self._attend_to_own if self.copied else self._attend_to_both
            attended = self.reader.joined(attend(number, q, until, unseen), length)
            if number + 1 == len(self.reader.layers) and length > 1:
                tips = np.arange(rows) * length + counts - 1
                x, attended = x[tips], attended[tips]
            x = self.reader.finish(layer, x, attended)
        self.lengths = self.lengths + counts
        logits: Floats = normed(x, self.reader.llama.epsilon) @ self.reader.head
        return logits

    def _unseen(self, columns: Ints, until: int, level: bool) -> Floats | None:
        """Return the mask of a row's own keys: -inf at later tokens and at the padding of copies."""
        missing = self.missing if self.copied else None
        if level and missing is None:
            return None
        unseen = np.zeros((*columns.shape, until), np.float32)
        if not level:
            unseen[np.arange(until) > columns[:, :, None]] = NEVER
        if missing is not None:
            unseen[..., : missing.shape[-1]] += missing[:, 0]
        repeats = self.reader.llama.heads // self.reader.llama.key_heads
        return np.repeat(unseen, repeats, axis=1)[:, None]

    def _remember(self, number: int, k: Floats, v: Floats, columns: Ints, counts: Ints | None) -> None:
        if counts is None:
            column = int(columns[0, 0])
            self.own_keys[number, :, :, :, column] = k[:, 0]
            self.own_values[number, :, :, column] = v[:, 0]
        else:
            meant = np.nonzero(np.arange(columns.shape[1]) < counts[:, None])
            self.own_keys[number][meant[0], :, :, columns[meant]] = k[meant]
            self.own_values[number][meant[0], :, columns[meant]] = v[meant]

    def _attend_to_own(self, number: int, q: Floats, until: int, unseen: Floats | None) -> Floats:
        scores: Floats = q @ self.own_keys[number, :, :, :, :until]
        if unseen is not None:
            scores += unseen
        scores -= scores.max(axis=-1, keepdims=True)
        np.exp(scores, out=scores)
        attended: Floats = scores @ self.own_values[number, :, :, :until]
        attended /= scores.sum(axis=-1, keepdims=True)
        return attended

    def _attend_to_both(self, number: int, q: Floats, until: int, unseen: Floats | None) -> Floats:
        """Attend with one softmax over two sets of keys: those of the text, shared by its rows, and the row's own."""
        early: Floats = self._by_text(q) @ self.keys[number]
        if self.missing is not None:
            early += self.missing
        late: Floats = q @ self.own_keys[number, :, :, :, :until]
        if unseen is not None:
            late += unseen
        top = np.maximum(self._by_row(early.max(axis=-1, keepdims=True)), late.max(axis=-1, keepdims=True))
        early -= self._by_text(top)
        late -= top
        np.exp(early, out=early)
        np.exp(late, out=late)
        total = self._by_row(early.sum(axis=-1, keepdims=True)) + late.sum(axis=-1, keepdims=True)
        read: Floats = early @ self.values[number]
        attended: Floats = self._by_row(read) + late @ self.own_values[number, :, :, :until]
        attended /= total
        return attended

    def _by_text(self, each: Floats) -> Floats:
        """(rows, heads, asked, …) → (texts, heads, rows of the text × asked, …)."""
        _, heads, asked, wide = each.shape
        if self.slots is not None:
            table = np.zeros((self.texts * self.widest, heads, asked, wide), np.float32)
            table[self.slots] = each
            each = table
        grouped = each.reshape(self.texts, self.widest, heads, asked, wide).transpose(0, 2, 1, 3, 4)
        return grouped.reshape(self.texts, heads, -1, wide)

    def _by_row(self, each: Floats) -> Floats:
        """Invert `_by_text`."""
        texts, heads, _, wide = each.shape
        parted = each.reshape(texts, heads, self.widest, -1, wide).transpose(0, 2, 1, 3, 4)
        rows = parted.reshape(texts * self.widest, heads, -1, wide)
        return rows if self.slots is None else rows[self.slots]


def normed(x: Floats, epsilon: float) -> Floats:
    """Scale rows to unit length. The factor to a mean square of 1 is folded into the weights that follow."""
    lengths = np.einsum("nd,nd->n", x, x)
    lengths += np.float32(epsilon * x.shape[1])
    np.sqrt(lengths, out=lengths)
    scaled: Floats = x / lengths[:, None]
    return scaled


def interleaved(wide: int) -> Ints:
    """Return the permutation of a head that makes the pairs of the rotary embedding adjacent."""
    return np.arange(wide).reshape(2, -1).T.ravel()


def _gain(norm: Floats) -> Floats:
    scaled: Floats = norm * np.float32(len(norm) ** 0.5)
    return scaled


def _prepare(llama: Llama, weights: Values, at: str) -> Layer:
    before, after = (_gain(weights[f"{at}{name}_layernorm.weight"]) for name in ("input", "post_attention"))
    turned = [
        weights[f"{at}self_attn.{name}_proj.weight"]
        .reshape(-1, llama.head_width, llama.width)[:, interleaved(llama.head_width)]
        .reshape(-1, llama.width)
        for name in "qk"
    ]
    turned[0] = turned[0] * np.float32(llama.head_width**-0.5)
    qkv = np.concatenate([*turned, weights[f"{at}self_attn.v_proj.weight"]])
    gate_up_proj = np.concatenate([weights[f"{at}mlp.{name}_proj.weight"] for name in ("gate", "up")])
    return Layer(
        qkv=np.ascontiguousarray((qkv * before).T),
        o_proj=np.ascontiguousarray(weights[f"{at}self_attn.o_proj.weight"].T),
        gate_up_proj=np.ascontiguousarray((gate_up_proj * after).T),
        down_proj=np.ascontiguousarray(weights[f"{at}mlp.down_proj.weight"].T),
    )


@functools.lru_cache(maxsize=8)
def _rope_table(llama: Llama, most: int) -> NDArray[np.complex64]:
    steps = np.arange(0, llama.head_width, 2, dtype=np.float32) / np.float32(llama.head_width)
    slow = np.float32(1) / np.float32(llama.theta) ** steps
    angles = np.arange(most, dtype=np.float32)[:, None] * slow
    rope: NDArray[np.complex64] = (np.cos(angles) + 1j * np.sin(angles)).astype(np.complex64)
    return rope


def _attend_causally(q: Floats, keys: Floats, values: Floats, length: int) -> Floats:
    """Compute the causal attention of a text's last `length` tokens, in blocks."""
    repeats, before = q.shape[2] // length, values.shape[2] - length
    attended = np.empty_like(q)
    for start in range(0, length, BLOCK):
        end = min(start + BLOCK, length)
        some = slice(start * repeats, end * repeats)
        ahead = np.triu(np.full((end - start, end - start), NEVER), 1).repeat(repeats, axis=0)
        scores: Floats = q[:, :, some] @ keys[:, :, :, : before + end]
        scores[..., before + start :] += ahead
        scores -= scores.max(axis=-1, keepdims=True)
        np.exp(scores, out=scores)
        np.matmul(scores, values[:, :, : before + end], out=attended[:, :, some])
        attended[:, :, some] /= scores.sum(axis=-1, keepdims=True)
    return attended


def _side_by_side(caches: Sequence[KVCache], end_at: int) -> tuple[Floats, Floats]:
    """Stack caches as (layers, texts, …), padded to the longest: left-aligned, or ending at `end_at` if it is not 0."""
    layers, heads, wide, _ = caches[0].keys.shape
    longest = max(cache.length for cache in caches)
    keys = np.zeros((layers, len(caches), heads, wide, longest), np.float32)
    values = np.zeros((layers, len(caches), heads, longest, wide), np.float32)
    for number, cache in enumerate(caches):
        start = max(0, end_at - cache.length) if end_at else 0
        keys[:, number, :, :, start : start + cache.length] = cache.keys
        values[:, number, :, start : start + cache.length] = cache.values
    return keys, values


def _missing(border: Ints, longest: int, *, after: bool = False) -> Floats | None:
    """Return a mask that is -inf before each row's border, or with `after` from it on; None if it is 0 everywhere."""
    places = np.arange(longest)
    empty = places >= border[:, None] if after else places < border[:, None]
    if not empty.any():
        return None
    missing: Floats = np.where(empty, NEVER, np.float32(0))[:, None, None, :]
    return missing
