"""Sampling: what a request gives does not depend on its company or on the caches, and the counters add up."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("peft")
transformers = pytest.importorskip("transformers")

from fairtrial.core.errors import UserError  # noqa: E402
from fairtrial.recipes.lm.engine import SamplingEngine  # noqa: E402
from fairtrial.recipes.lm.types import Completion, SamplingRequest  # noqa: E402
from fairtrial.recipes.lm.weights import Blueprint  # noqa: E402
from tests.recipes.lm.test_model import blueprint_of, gpt2, llama, moved  # noqa: E402
from tests.recipes.lm_stand_ins import LONG_RULES, RULES, VOCABULARY, Node, game_requests, open_requests, prompt  # noqa: E402


@pytest.fixture(scope="module", params=["llama", "gpt2"])
def blueprint(request: Any) -> Blueprint:
    model = llama(num_key_value_heads=2, initializer_range=0.1) if request.param == "llama" else gpt2()
    return blueprint_of(model, method="lora", rank=2)


@pytest.fixture(scope="module")
def small() -> Blueprint:
    return blueprint_of(llama(initializer_range=0.1), method="lora", rank=2)


def engine_of(blueprint: Blueprint, **chosen: Any) -> SamplingEngine:
    values = moved(blueprint)
    return SamplingEngine(blueprint, lambda version: values if version else blueprint.initial, **chosen)


def assert_same(first: Sequence[Completion], second: Sequence[Completion]) -> None:
    assert len(first) == len(second)
    for one, other in zip(first, second, strict=True):
        assert one.tokens == other.tokens
        assert one.allowed == other.allowed
        np.testing.assert_allclose(one.behaviour, other.behaviour, atol=1e-5)
        np.testing.assert_allclose(one.policy, other.policy, atol=1e-5)


def test_a_request_gives_the_same_alone_and_in_company(blueprint: Blueprint) -> None:
    long = [*game_requests(3, 2, rules=LONG_RULES), *game_requests(2, 3, 500)]
    for requests in (game_requests(), open_requests(), [*game_requests(2), *open_requests(2)], long):
        together = engine_of(blueprint, batch=64).complete(requests, 1)
        alone = engine_of(blueprint, batch=1, prefixes=0, adapters=0).complete(requests, 1)
        assert_same(together, alone)
        assert len({each.tokens for each in together}) > len(requests) / 4


def test_equal_batches_are_equal_to_the_last_bit_whatever_is_cached(small: Blueprint) -> None:
    requests = [*game_requests(groups=30), *game_requests(groups=6, rules=LONG_RULES)]
    warm, cold = engine_of(small, batch=16), engine_of(small, batch=16, prefixes=0, adapters=0)
    warm.complete(game_requests(groups=5, first_seed=7), 1)
    for one, other in zip(warm.complete(requests, 1), cold.complete(requests, 1), strict=True):
        assert one.tokens == other.tokens
        assert np.array_equal(one.policy, other.policy)
        assert np.array_equal(one.behaviour, other.behaviour)


def test_sharing_prompts_changes_no_token(small: Blueprint) -> None:
    requests = [*game_requests(groups=40), *open_requests(groups=4), *game_requests(groups=8, rules=LONG_RULES)]
    shared, apart = (engine_of(small, batch=24, share_prompts=share) for share in (True, False))
    assert_same(shared.complete(requests, 1), apart.complete(requests, 1))
    assert shared.counters.shared_prefills > 0
    assert apart.counters.shared_prefills == 0


def test_only_legal_sequences_are_written_and_forced_tokens_count_nothing(blueprint: Blueprint) -> None:
    requests = game_requests()
    for request, made in zip(requests, engine_of(blueprint).complete(requests, 1), strict=True):
        legal: Any = request.allowed
        assert made.tokens in legal.sequences
        assert made.allowed is not None
        forced = np.array([len(ids) == 1 for ids in made.allowed])
        assert forced.any()
        assert (made.policy[forced] == 0).all()
        assert (made.policy[~forced] < 0).all()
        assert all(token in ids for token, ids in zip(made.tokens, made.allowed, strict=True))


def test_log_probabilities_are_those_of_transformers_among_what_is_open(small: Blueprint) -> None:
    import torch

    model = llama(initializer_range=0.1)
    requests = [*game_requests(2, 2), *game_requests(3, rules=LONG_RULES)]
    for temperature in (1.0, 0.7):
        for request, made in zip(
            requests, engine_of(small).complete(requests, 0, temperature=temperature), strict=True
        ):
            text = torch.tensor([[*request.prompt, *made.tokens]])
            with torch.no_grad():
                logits = model(text).logits[0, len(request.prompt) - 1 : -1]
            assert made.allowed is not None
            for place, ids in enumerate(made.allowed):
                chosen = ids.index(made.tokens[place])
                among = logits[place, list(ids)]
                assert float(among.log_softmax(0)[chosen]) == pytest.approx(float(made.policy[place]), abs=1e-5)
                cooled = (among / temperature).log_softmax(0)
                assert float(cooled[chosen]) == pytest.approx(float(made.behaviour[place]), abs=1e-5)


def test_tokens_are_drawn_as_often_as_they_are_probable(small: Blueprint) -> None:
    legal: Any = Node(((5,), (6,), (7,)))
    requests = [SamplingRequest(prompt(1, 4), seed, legal, 1) for seed in range(3000)]
    made = engine_of(small, batch=3000).complete(requests, 0)
    for token in (5, 6, 7):
        drawn = [each for each in made if each.tokens == (token,)]
        chance = float(np.exp(drawn[0].policy[0]))
        assert len(drawn) / 3000 == pytest.approx(chance, abs=4 * np.sqrt(chance * (1 - chance) / 3000))


def test_without_temperature_the_most_probable_token_is_taken(small: Blueprint) -> None:
    legal: Any = Node(((5,), (6,), (7,)))
    engine = engine_of(small)
    request = SamplingRequest(prompt(1, 4), 1, legal, 1)
    chances = {
        each.tokens: each.policy[0]
        for each in engine.complete([SamplingRequest(prompt(1, 4), s, legal, 1) for s in range(64)], 0)
    }
    greedy = engine.complete([request], 0, temperature=0)[0]
    assert len(chances) == 3
    assert greedy.tokens == max(chances, key=lambda tokens: chances[tokens])
    assert greedy.behaviour.tolist() == [0]
    assert greedy.policy[0] == pytest.approx(chances[greedy.tokens], abs=1e-6)


def test_an_open_text_stops_at_its_end_or_its_limit(small: Blueprint) -> None:
    requests = open_requests(groups=8, samples=8, length=20)
    free = engine_of(small).complete(requests, 1)
    ended = engine_of(small, end=3).complete(requests, 1)
    assert any(3 in each.tokens for each in free)
    for one, other in zip(free, ended, strict=True):
        until = one.tokens.index(3) + 1 if 3 in one.tokens else 20
        assert other.tokens == one.tokens[:until]


def test_versions_of_the_policy_answer_for_themselves(small: Blueprint) -> None:
    requests = game_requests()
    engine = engine_of(small, adapters=1)
    before, after, again = (engine.complete(requests, version) for version in (0, 1, 0))
    assert_same(before, again)
    assert any(not np.allclose(one.policy, other.policy) for one, other in zip(before, after, strict=True))
    assert [each.version for each in after] == [1] * len(requests)


def test_the_counters_add_up(blueprint: Blueprint) -> None:
    engine = engine_of(blueprint, batch=8, adapters=2)
    requests = [*game_requests(), *open_requests()]
    made = [each for version in (0, 1, 0, 2) for each in engine.complete(requests, version)]
    counted = engine.counters
    assert counted.requests == len(made) == 4 * len(requests)
    assert counted.adapter_lookups == counted.adapter_hits + counted.adapter_misses == counted.batches
    assert counted.adapter_misses == 3
    assert counted.prefix_lookups == counted.prefix_hits + counted.prefix_misses
    assert counted.prefix_misses == 3
    assert counted.prompt_tokens == counted.prefilled_tokens + counted.reused_tokens
    assert counted.prompt_tokens == 4 * sum(len(request.prompt) for request in requests)
    assert counted.generated_tokens == sum(len(each.tokens) for each in made)
    decided = [each.tokens if each.allowed is None else [ids for ids in each.allowed if len(ids) > 1] for each in made]
    assert counted.decided_tokens == sum(map(len, decided))


def test_a_group_reads_its_prompt_once_and_the_rules_once_per_version(small: Blueprint) -> None:
    engine = engine_of(small, batch=64)
    requests = game_requests(groups=3, samples=4)
    engine.complete(requests, 0)
    prompts = {request.prompt for request in requests}
    alone = sum(len(text) - 1 - len(RULES) for text in prompts)
    last_tokens = len(requests)
    assert engine.counters.prefilled_tokens == len(RULES) + alone + last_tokens
    assert engine.counters.shared_prefills == len(requests) - len(prompts)
    engine.complete(requests, 0)
    assert engine.counters.prefilled_tokens == len(RULES) + 2 * (alone + last_tokens)
    engine.complete(requests, 1)
    assert engine.counters.prefilled_tokens == 2 * len(RULES) + 3 * (alone + last_tokens)


def test_the_queue_is_emptied_in_order_of_arrival_and_time_in_it_is_told(small: Blueprint) -> None:
    ticks = iter(range(1000))
    engine = engine_of(small, batch=2, clock=lambda: float(next(ticks)))
    requests = game_requests(groups=2, samples=2)
    for number, request in enumerate(requests):
        engine.submit(request, number % 2)
    made = engine.run()
    assert [each.version for each in made] == [0, 1, 0, 1]
    assert engine.counters.batches == 4
    assert [each.timing.queue_s for each in made] == [4, 6, 8, 10]
    assert {each.timing.prefill_s for each in made} == {each.timing.decode_s for each in made} == {1.0}
    assert engine.counters.queue_s == 28
    assert engine.run() == []


def test_forced_runs_are_fed_at_once(small: Blueprint) -> None:
    legal: Any = Node(((5, 8, 9, 10, 11, 20), (5, 8, 9, 10, 11, 21), (6, 8, 9, 10, 11, 22)))
    engine = engine_of(small)
    engine.complete([SamplingRequest(prompt(1, 4), seed, legal, 9) for seed in range(16)], 0)
    assert engine.counters.decode_steps == 2


def test_rows_that_run_ahead_at_different_times_do_not_disturb_each_other(blueprint: Blueprint) -> None:
    forced, pairs = tuple(range(10, 18)), list(product((2, 3), repeat=4))
    early: Any = Node(tuple((a, *forced, b, c, d) for a, b, c, d in pairs))
    late: Any = Node(tuple((a, b, *forced, c, d) for a, b, c, d in pairs))
    soon: Any = Node(((4, *forced), (5, *forced)))
    requests = [SamplingRequest(prompt(seed, 4), seed, (early, late, late, soon)[seed % 4], 12) for seed in range(12)]
    together = engine_of(blueprint, batch=12).complete(requests, 1)
    assert_same(together, engine_of(blueprint, batch=1).complete(requests, 1))


def test_what_the_model_was_not_made_for_is_refused(small: Blueprint) -> None:
    engine = engine_of(small)
    with pytest.raises(UserError, match="context length of 128 tokens"):
        engine.submit(SamplingRequest(prompt(1, 100), 1, None, 29), 0)
    with pytest.raises(ValueError, match="at least one token"):
        engine.submit(SamplingRequest((), 1, None, 5), 0)


def test_the_vocabulary_is_that_of_the_stand_ins(small: Blueprint) -> None:
    assert small.vocabulary == VOCABULARY
