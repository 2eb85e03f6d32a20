"""Tokenizers: a small byte-level BPE vocabulary trained on the game `orders`, or the tokenizer of a model directory.

The small vocabulary is trained once per store on games with fixed seeds, so that its file is identical everywhere.
A word includes its leading space and its punctuation: ` bre+` may be one token.
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
"""Special tokens, which have the first ids of the vocabulary."""
FILE = "tokenizer.json"
GAMES_READ = 300
"""Number of games whose texts the vocabulary is trained on."""
WORDS = r" ?[^\s]+|\s"
MOST_KEPT = 65_536
SHORT = 64
"""Texts up to this length, in characters, are cached: they are orders, which recur."""


class Tokenizer:
    """Converts text to tokens and back. Special tokens that occur in a text are encoded as plain text."""

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
        """Load the vocabulary that `make_vocabulary` wrote."""
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
        """Load the tokenizer of a Hugging Face model directory. Code in the directory is never run."""
        tokenizer = _load_pretrained(path)
        end = tokenizer.eos_token_id
        if end is None:
            raise UserError(f"the tokenizer in {path} has no end-of-text token", hint="Set its eos_token.")
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
        """Return the text, without special tokens such as the end token."""
        return self._decode(tokens)


def tokenizer_file(cache: Cache) -> Path:
    """Return the file of the small vocabulary. It is generated now if the store does not have it."""
    key = {"name": "orders", "version": VERSION, "vocabulary": VOCABULARY, "games": GAMES_READ}
    entry = cache.entry("tokenizer", key, make_vocabulary, _has_recorded_vocabulary)
    return entry.folder / FILE


def _has_recorded_vocabulary(folder: Path, manifest: Mapping[str, Any]) -> bool:
    path = folder / FILE
    return path.is_file() and hashlib.sha256(read_regular(path)).hexdigest() == manifest.get("sha256")


def make_vocabulary(folder: Path) -> dict[str, Any]:
    """Train the vocabulary and write it to a folder."""
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
    """Yield texts of random games of `orders`: prompts of both forms, and orders."""
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
        raise UserError(f"the model directory {path} does not exist")
    try:
        return AutoTokenizer.from_pretrained(str(path), local_files_only=True, trust_remote_code=False)
    except (OSError, ValueError) as error:
        raise UserError(f"the tokenizer in {path} cannot be loaded: {error}") from error
