"""Text to tokens and back, and trees of what may be written."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fairtrial.core.errors import FairtrialError
from fairtrial.recipes.lm import tokens
from fairtrial.recipes.lm.tokens import Tokenizer, make_vocabulary, tokenizer_file
from fairtrial.recipes.lm.trie import Trie, Tries
from fairtrial.recipes.lm.types import Tokens
from fairtrial.record.store import Store


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("vocabulary")
    make_vocabulary(folder)
    return folder


@pytest.fixture(scope="module")
def small(folder: Path) -> Tokenizer:
    return Tokenizer.from_file(folder / tokens.FILE)


@given(text=st.text(max_size=200))
@example(text="<end> <pad><begin>")
@example(text="  A alb\r\n\t- bre\u2028\x00é 士")
def test_decoding_what_was_encoded_gives_the_text(small: Tokenizer, text: str) -> None:
    encoded = small.encode(text)
    assert small.decode(encoded) == text
    assert not set(range(len(tokens.SPECIAL))) & set(encoded)
    assert all(0 <= token < small.size for token in encoded)


def test_the_end_is_no_text(small: Tokenizer) -> None:
    assert small.decode((*small.encode("A alb H"), small.end)) == "A alb H"


def test_the_vocabulary_has_its_size_and_knows_the_words_of_the_game(small: Tokenizer) -> None:
    assert small.size == tokens.VOCABULARY
    assert len(small.encode("A alb - bre")) == 4
    assert len(small.encode(" cor+")) == 1


def test_the_vocabulary_is_made_once_per_store_and_has_the_same_bytes_everywhere(
    store: Store, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer_file(store.cache)
    (made,) = store.paths.cache.glob(f"tokenizer/*/{tokens.FILE}")
    assert made.read_bytes() == (folder / tokens.FILE).read_bytes()
    monkeypatch.setattr(tokens, "_train", lambda: pytest.fail("made a second time"))
    assert Tokenizer.from_file(tokenizer_file(store.cache)).size == tokens.VOCABULARY


def test_making_it_leaves_the_global_generator_alone(tmp_path: Path) -> None:
    random.seed(1)
    before = random.getstate()
    make_vocabulary(tmp_path)
    assert random.getstate() == before


def test_the_tokenizer_of_a_model_directory_is_read_from_there(folder: Path, small: Tokenizer, tmp_path: Path) -> None:
    from transformers import PreTrainedTokenizerFast

    made = PreTrainedTokenizerFast(
        tokenizer_file=str(folder / tokens.FILE), eos_token=tokens.END, pad_token=tokens.PAD, bos_token=tokens.BEGIN
    )
    made.save_pretrained(tmp_path)
    found = Tokenizer.from_directory(tmp_path)
    for text in ("A alb - bre", "alb!+ BRE= <end>\n", "x" * 100):
        assert found.encode(text) == small.encode(text) and found.decode(found.encode(text)) == text
    assert (found.end, found.size) == (small.end, small.size)


def test_a_directory_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FairtrialError, match="cannot be loaded"):
        Tokenizer.from_directory(tmp_path)
    with pytest.raises(FairtrialError, match=r"the model directory .* does not exist"):
        Tokenizer.from_directory(tmp_path / "none")


END = 2


def written(trie: Trie) -> set[Tokens]:
    if trie.done:
        return {()}
    return {(token, *rest) for token in trie.allowed for rest in written(trie.after(token))}


SEQUENCES = st.lists(st.lists(st.integers(3, 6), max_size=4).map(tuple), min_size=1, max_size=8)


@given(sequences=SEQUENCES)
@example(sequences=[(3,), (3, 4), (3,), ()])
def test_a_trie_writes_exactly_what_it_was_made_of(sequences: list[Tokens]) -> None:
    assert written(Trie.of(sequences, END)) == {(*sequence, END) for sequence in sequences}


@given(sequences=SEQUENCES)
def test_the_order_of_the_sequences_does_not_show(sequences: list[Tokens]) -> None:
    assert Trie.of(sequences, END).allowed == Trie.of(reversed(sequences), END).allowed
    assert list(Trie.of(sequences, END).allowed) == sorted(Trie.of(sequences, END).allowed)


def test_a_trie_of_nothing_or_with_the_end_inside_is_refused() -> None:
    with pytest.raises(ValueError, match="no orders"):
        Trie.of([], END)
    with pytest.raises(ValueError, match="ends orders"):
        Trie.of([(3, END, 4)], END)
    with pytest.raises(KeyError):
        Trie.of([(3,)], END).after(4)


def test_tries_are_kept_by_their_orders_and_the_oldest_goes_first(small: Tokenizer) -> None:
    tries = Tries(small.encode, small.end, most=2)
    first = tries.of(["a", "b"])
    assert tries.of(("a", "b")) is first
    tries.of(["c"])
    tries.of(["a", "b"])
    tries.of(["d"])
    assert tries.of(["a", "b"]) is first
    assert (tries.hits, tries.misses) == (3, 3)
    tries.of(["c"])
    assert (tries.hits, tries.misses) == (3, 4)
