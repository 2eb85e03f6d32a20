"""Text as numbers: a byte-level vocabulary learnt from the small game, or the one that a model brings along.

The small vocabulary is made once per store from games that are played by fixed seeds, so its bytes are the same
everywhere. A word takes its leading space and its marks along: ` bre+` may be one token.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairtrial.core.regular_files import read_regular
from fairtrial.plugins import Cache, UserError
from fairtrial.recipes.lm.types import Tokens

if TYPE_CHECKING:
    import tokenizers

VERSION = 1
VOCABULARY = 512
SPECIAL = PAD, BEGIN, END = "<pad>", "<begin>", "<end>"
"""They get the first ids of the vocabulary."""
FILE = "tokenizer.json"
GAMES_READ = 300
"""The texts of this many games are what the vocabulary is learnt from."""
WORDS = r" ?[^\s]+|\s"
MOST_KEPT = 65_536
SHORT = 64
"""Texts up to this length are orders, come again, and are kept."""


class Tokenizer:
    """Text to tokens and back. Marks of the vocabulary that happen to stand in a text are read as plain text."""

    def __init__(
        self,
        encode: Callable[[str], Tokens],
        decode: Callable[[Sequence[int]], str],
        *,
        size: int,
        end: int,
    ) -> None:
        self.size = size
        self.end = end
        self._encode = encode
        self._encode_again = lru_cache(MOST_KEPT)(encode)
        self._decode = decode

    @classmethod
    def from_file(cls, path: Path) -> Tokenizer:
        """The vocabulary that `make_vocabulary` wrote."""
        import tokenizers

        made = tokenizers.Tokenizer.from_file(str(path))
        made.encode_special_tokens = True
        return cls(
            lambda text: tuple(made.encode(text, add_special_tokens=False).ids),
            lambda tokens: str(made.decode(list(tokens), skip_special_tokens=True)),
            size=made.get_vocab_size(),
            end=SPECIAL.index(END),
        )

    @classmethod
    def from_directory(cls, path: Path) -> Tokenizer:
        """The tokenizer of a Hugging Face model that lies in a directory. Code in there is never run."""
        tokenizer = _load_pretrained(path)
        end = tokenizer.eos_token_id
        if end is None:
            raise UserError(f"the tokenizer in {path} has no token that ends a text", hint="Set its eos_token.")
        return cls(
            lambda text: tuple(tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True)),
            lambda tokens: str(
                tokenizer.decode(list(tokens), skip_special_tokens=True, clean_up_tokenization_spaces=False)
            ),
            size=len(tokenizer),
            end=end,
        )

    def encode(self, text: str) -> Tokens:
        return self._encode_again(text) if len(text) <= SHORT else self._encode(text)

    def decode(self, tokens: Sequence[int]) -> str:
        """The text; tokens that stand for no text, such as the end, are left out."""
        return self._decode(tokens)


def tokenizer_file(cache: Cache) -> Path:
    """The small vocabulary, made now if this store does not have it."""
    key = {"name": "orders", "version": VERSION, "vocabulary": VOCABULARY, "games": GAMES_READ}
    entry = cache.entry("tokenizer", key, make_vocabulary, _has_recorded_vocabulary)
    return entry.folder / FILE


def _has_recorded_vocabulary(folder: Path, manifest: Mapping[str, Any]) -> bool:
    path = folder / FILE
    return path.is_file() and hashlib.sha256(read_regular(path)).hexdigest() == manifest.get("sha256")


def make_vocabulary(folder: Path) -> dict[str, Any]:
    """Learn the vocabulary and write it into a folder."""
    data = _train().to_str(pretty=False).encode()
    (folder / FILE).write_bytes(data)
    return {"sha256": hashlib.sha256(data).hexdigest()}


def _train() -> tokenizers.Tokenizer:
    import tokenizers
    from tokenizers import decoders, models, pre_tokenizers, trainers

    made = tokenizers.Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(tokenizers.Regex(WORDS), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=list(SPECIAL),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    made.train_from_iterator(texts(), trainer)
    return made


def texts(games: int = GAMES_READ) -> Iterator[str]:
    """What is said in games of the small game that are played at random: prompts of both forms, and orders."""
    from fairtrial.recipes.lm.games.orders import OrdersGame

    game = OrdersGame()
    chance = random.Random(0)  # noqa: S311
    for seed in range(games):
        position = game.open(seed)
        yield position.prompt(compact=False)
        while not position.over:
            yield position.prompt(compact=True)
            yield from position.legal()
            position, _ = position.play(chance.choice(position.legal()))


def _load_pretrained(path: Path) -> Any:
    from transformers import AutoTokenizer

    if not path.is_dir():
        raise UserError(f"no model directory {path}")
    try:
        return AutoTokenizer.from_pretrained(str(path), local_files_only=True, trust_remote_code=False)
    except (OSError, ValueError) as error:
        raise UserError(f"the tokenizer in {path} cannot be loaded: {error}") from error
