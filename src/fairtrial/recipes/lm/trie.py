"""Legal orders as a trie of tokens: every path from the root to a leaf is a legal order.

Every order ends with the `end` token, so that an order can be a prefix of another one.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from threading import Lock

from fairtrial.recipes.lm.types import Tokens

MOST_TRIES = 4096


class Trie:
    """A node of the trie. `allowed` has the possible next tokens in ascending order; a leaf has none."""

    __slots__ = ("_after", "allowed", "depth")

    def __init__(self) -> None:
        self._after: dict[int, Trie] = {}
        self.allowed: Tokens = ()
        self.depth = 0
        """Length in tokens of the longest path from here, including the end token."""

    @classmethod
    def of(cls, sequences: Iterable[Tokens], end: int) -> Trie:
        root = cls()
        for sequence in sequences:
            if end in sequence:
                raise ValueError(f"an order contains the token {end}, which ends orders")
            root._add(sequence, end)
        if not root._after:
            raise ValueError("there are no orders to choose from")
        root._settle()
        return root

    @property
    def done(self) -> bool:
        """Whether the order is complete."""
        return not self._after

    def after(self, token: int) -> Trie:
        """Return the node after a token. A token that is not allowed raises KeyError."""
        return self._after[token]

    def _add(self, sequence: Tokens, end: int) -> None:
        node = self
        for token in (*sequence, end):
            trie = node._after.get(token)
            if trie is None:
                trie = node._after[token] = Trie()
            node = trie

    def _settle(self) -> None:
        self.allowed = tuple(sorted(self._after))
        for node in self._after.values():
            if node._after:
                node._settle()
        self.depth = 1 + max(node.depth for node in self._after.values())


class Tries:
    """A cache of tries by their orders, because many positions have the same legal orders."""

    def __init__(self, encode: Callable[[str], Tokens], end: int, most: int = MOST_TRIES) -> None:
        self.hits = 0
        self.misses = 0
        self._encode = encode
        self._end = end
        self._most = most
        self._kept: OrderedDict[tuple[str, ...], Trie] = OrderedDict()
        self._lock = Lock()

    def of(self, orders: Sequence[str]) -> Trie:
        key = tuple(orders)
        with self._lock:
            trie = self._kept.get(key)
            if trie is not None:
                self._kept.move_to_end(key)
                self.hits += 1
                return trie
            self.misses += 1
        made = Trie.of(map(self._encode, key), self._end)
        with self._lock:
            self._kept[key] = made
            if len(self._kept) > self._most:
                self._kept.popitem(last=False)
        return made
