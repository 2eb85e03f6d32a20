"""Learning: the loss is what it says, however it is cut, packed, cached or resumed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("peft")
transformers = pytest.importorskip("transformers")

from fairtrial.core.training import LoopEvents, Observer  # noqa: E402
from fairtrial.recipes.lm.engine import SamplingEngine  # noqa: E402
from fairtrial.recipes.lm.learner import GrpoConfig, Learner, divergence  # noqa: E402
from fairtrial.recipes.lm.types import Completion, Sample, SamplingRequest  # noqa: E402
from fairtrial.recipes.lm.weights import Blueprint  # noqa: E402
from tests.recipes.lm.test_model import blueprint_of, gpt2, llama, moved  # noqa: E402
from tests.recipes.lm_stand_ins import LONG_RULES, Node, game_requests, open_requests, prompt  # noqa: E402

MODELS = {
    "llama, lora": lambda: blueprint_of(llama(num_key_value_heads=2, initializer_range=0.1), method="lora", rank=2),
    "llama, full": lambda: blueprint_of(llama(tie_word_embeddings=True, initializer_range=0.1)),
    "gpt2, lora": lambda: blueprint_of(gpt2(), method="lora", rank=2),
    "gpt2, full": lambda: blueprint_of(gpt2()),
}


@pytest.fixture(scope="module", params=MODELS)
def blueprint(request: Any) -> Blueprint:
    return MODELS[request.param]()


@pytest.fixture(scope="module")
def small() -> Blueprint:
    return MODELS["llama, lora"]()


def play(
    blueprint: Blueprint, requests: Sequence[SamplingRequest], *, values: Any = None, temperature: float = 1.0
) -> list[Sample]:
    """Samples by a policy that is not the reference, with advantages of both signs."""
    acting = moved(blueprint) if values is None else values
    made = SamplingEngine(blueprint, lambda _: acting, temperature=temperature).complete(requests, 0)
    draw = np.random.default_rng(5)
    return [
        Sample(request.prompt, completion, None, float(draw.normal()))
        for request, completion in zip(requests, made, strict=True)
    ]


def mixed(blueprint: Blueprint) -> list[Sample]:
    """Prompts and completions of unequal length, with and without a choice of what is open."""
    return play(blueprint, [*game_requests(3, 3), *open_requests(3, 2), *game_requests(1, 2, rules=LONG_RULES)])


def learner_of(blueprint: Blueprint, *, moved_on: bool = True, **chosen: Any) -> Learner:
    learner = Learner(blueprint, GrpoConfig(**chosen))
    if moved_on:
        learner.load_values(moved(blueprint))
    return learner


def gradient_of(learner: Learner, samples: Sequence[Sample]) -> tuple[Any, dict[str, float]]:
    """The gradient that a step hands to the optimizer."""
    caught: list[Any] = []
    learner._update = lambda gradient, rate: caught.append(gradient.clone()) or gradient.norm()  # type: ignore[method-assign,func-returns-value]
    told = learner.step(samples, LoopEvents())
    return caught[0], told


def close(one: Sequence[np.ndarray], other: Sequence[np.ndarray], within: float = 1e-5) -> None:
    for a, b in zip(one, other, strict=True):
        np.testing.assert_allclose(a, b, atol=within)


def test_the_engine_and_the_learner_agree_on_the_policy(blueprint: Blueprint) -> None:
    samples = mixed(blueprint)
    found = learner_of(blueprint).policy_logprobs(samples)
    close(found, [sample.completion.policy for sample in samples])
    assert min(each.min() for each in found) < -0.5


def test_packed_samples_read_as_they_do_alone(blueprint: Blueprint) -> None:
    samples = mixed(blueprint)
    learner = learner_of(blueprint, chunk=100)
    alone = [learner.policy_logprobs([sample])[0] for sample in samples]
    close(learner.policy_logprobs(samples), alone)


def test_the_reference_is_the_policy_without_adapters(blueprint: Blueprint) -> None:
    samples = mixed(blueprint)
    fresh = learner_of(blueprint, moved_on=False)
    close(fresh.reference_logprobs(samples), fresh.policy_logprobs(samples), within=1e-6)
    later = learner_of(blueprint)
    close(later.reference_logprobs(samples), fresh.policy_logprobs(samples), within=1e-6)
    assert np.abs(later.policy_logprobs(samples)[0] - later.reference_logprobs(samples)[0]).max() > 1e-2


def test_disabled_adapters_of_peft_are_the_reference(small: Blueprint) -> None:
    samples = play(small, open_requests(2, 2))
    expected = [hugging_face_logprobs(llama(num_key_value_heads=2, initializer_range=0.1), each) for each in samples]
    close(learner_of(small).reference_logprobs(samples), [each.detach().numpy() for each in expected])


def hugging_face_logprobs(model: Any, sample: Sample) -> Any:
    """Log-probabilities of a sample's tokens among what was open, by transformers alone."""
    logits = model(torch.tensor([[*sample.prompt, *sample.completion.tokens]])).logits[0, len(sample.prompt) - 1 : -1]
    opened = sample.completion.allowed or [tuple(range(logits.shape[1]))] * len(sample.completion.tokens)
    return torch.stack(
        [
            logits[place, list(ids)].log_softmax(0)[ids.index(token)]
            for place, (ids, token) in enumerate(zip(opened, sample.completion.tokens, strict=True))
        ]
    )


def test_cached_reference_values_change_nothing_but_the_number_of_passes(small: Blueprint) -> None:
    samples = mixed(small)
    asked, told = learner_of(small, chunk=3), learner_of(small, chunk=3)
    known = [
        replace(s, reference=r)
        for s, r in zip(samples, learner_of(small, chunk=3).reference_logprobs(samples), strict=True)
    ]
    first, second = asked.step(samples, LoopEvents()), told.step(known, LoopEvents())
    assert first == second
    assert all(np.array_equal(value, told.values()[name]) for name, value in asked.values().items())
    packs = 7
    assert (told.counters.policy_forwards, told.counters.reference_forwards) == (-(-packs // 3), 0)
    assert (asked.counters.policy_forwards, asked.counters.reference_forwards) == (-(-packs // 3), -(-packs // 3))


def test_a_reference_is_not_asked_where_it_weighs_nothing(small: Blueprint) -> None:
    learner = learner_of(small, beta=0.0)
    learner.step(mixed(small), LoopEvents())
    assert learner.counters.reference_forwards == 0


def test_the_gradient_does_not_depend_on_the_chunks(blueprint: Blueprint) -> None:
    samples = mixed(blueprint)
    whole, told = gradient_of(learner_of(blueprint, chunk=100), samples)
    assert whole.norm() > 1e-2
    for chunk in (1, 3):
        cut, told_cut = gradient_of(learner_of(blueprint, chunk=chunk), samples)
        torch.testing.assert_close(cut, whole, atol=1e-6, rtol=1e-4)
        assert told_cut == pytest.approx(told, abs=1e-5)


@pytest.mark.parametrize("method", ["full", "lora"])
def test_the_gradient_is_that_of_a_plain_loop_over_transformers(method: str) -> None:
    """One prompt, one sample at a time, no packing, no caches, no hand-written anything."""
    from peft import LoraConfig, get_peft_model, set_peft_model_state_dict

    model = llama(num_key_value_heads=2, initializer_range=0.1)
    blueprint = blueprint_of(model, method=method, rank=2)
    samples = play(blueprint, game_requests(4, 3), values=blueprint.initial, temperature=0.8)
    reference = [
        hugging_face_logprobs(llama(num_key_value_heads=2, initializer_range=0.1), each).detach() for each in samples
    ]
    now = moved(blueprint)
    plain = llama(num_key_value_heads=2, initializer_range=0.1)
    if method == "full":
        plain.load_state_dict({name: torch.from_numpy(value) for name, value in now.items()})
        learned = dict(plain.named_parameters())
    else:
        plain = get_peft_model(plain, LoraConfig(r=2, lora_alpha=4, target_modules="all-linear"))
        set_peft_model_state_dict(plain, {name: torch.from_numpy(value) for name, value in now.items()})
        learned = {name.replace(".default", ""): each for name, each in plain.named_parameters() if each.requires_grad}
    loss, count = torch.zeros(()), 0
    for sample, ref in zip(samples, reference, strict=True):
        new, old = hugging_face_logprobs(plain, sample), torch.from_numpy(sample.completion.policy)
        ratio = torch.exp(new - old)
        weight = torch.exp(old - torch.from_numpy(sample.completion.behaviour)).clamp(max=1.1)
        gain = torch.min(ratio * sample.advantage, ratio.clamp(0.8, 1.3) * sample.advantage) * weight
        each = -gain + 0.5 * weight * (torch.exp(ref - new) - (ref - new) - 1)
        decided = torch.tensor([len(ids) > 1 for ids in sample.completion.allowed or ()])
        loss, count = loss + each[decided].sum(), count + int(decided.sum())
    (loss / count).backward()
    terms = {"beta": 0.5, "clip_low": 0.2, "clip_high": 0.3, "most_weight": 1.1}
    found, told = gradient_of(learner_of(blueprint, **terms), samples)
    expected = torch.cat([learned[name].grad.reshape(-1) for name in blueprint.initial])
    torch.testing.assert_close(found, expected, atol=1e-5 * float(expected.abs().max()), rtol=1e-3)
    assert told["loss"] == pytest.approx(float(loss.detach() / count), abs=1e-5)
    assert 0 < told["clip_fraction"] < 1


def test_the_divergence_is_expected_to_be_what_enumeration_gives() -> None:
    draw = torch.Generator().manual_seed(1)
    policy, reference = (torch.randn(7, generator=draw).log_softmax(0) for _ in range(2))
    exact = (policy.exp() * (policy - reference)).sum()
    estimates = divergence(policy, reference)
    assert float((policy.exp() * estimates).sum()) == pytest.approx(float(exact), abs=1e-6)
    assert exact > 0.1
    assert (estimates >= 0).all()


def test_what_a_step_tells_is_exact_for_every_token_once(small: Blueprint) -> None:
    """All continuations of one token, weighed by their chance, are the expectation itself."""
    tokens = (4, 9, 17, 30)
    legal: Any = Node(tuple((token,) for token in tokens))
    seeds = [SamplingRequest(prompt(2, 5), seed, legal, 1) for seed in range(200)]
    by_token = {each.completion.tokens[0]: each for each in play(small, seeds)}
    assert set(by_token) == set(tokens)
    policy = np.array([by_token[token].completion.policy[0] for token in tokens], np.float64)
    learner = learner_of(small)
    reference = np.array([float(learner.reference_logprobs([by_token[token]])[0][0]) for token in tokens])
    told = [learner_of(small).step([replace(by_token[token], advantage=0.0)], LoopEvents()) for token in tokens]
    exact = float((np.exp(policy) * (policy - reference)).sum())
    assert sum(np.exp(p) * each["kl"] for p, each in zip(policy, told, strict=True)) == pytest.approx(exact, abs=1e-5)
    for each in told:
        assert each["entropy"] == pytest.approx(float(-(np.exp(policy) * policy).sum()), abs=1e-5)
        assert each["ratio"] == pytest.approx(1, abs=1e-5)
        assert each["loss"] == pytest.approx(0.04 * each["kl"], abs=1e-6)


def test_learning_makes_what_was_good_likelier(blueprint: Blueprint) -> None:
    samples = play(blueprint, game_requests(3, 4), values=blueprint.initial)
    samples = [replace(each, advantage=1.0 if number % 4 == 0 else -0.3) for number, each in enumerate(samples)]
    learner = learner_of(blueprint, moved_on=False, learning_rate=1e-2, clip_low=10, clip_high=10)
    before = sum(learner.policy_logprobs(samples)[number].sum() for number in (0, 4, 8))
    for _ in range(10):
        learner.step(samples, LoopEvents())
    after = sum(learner.policy_logprobs(samples)[number].sum() for number in (0, 4, 8))
    assert after > before + 0.5


def test_a_resumed_learner_goes_on_bit_for_bit(blueprint: Blueprint) -> None:
    samples = mixed(blueprint)
    first = learner_of(blueprint, chunk=3, weight_decay=0.1)
    first.step(samples, LoopEvents())
    state = first.state()
    second = learner_of(blueprint, chunk=3, weight_decay=0.1, moved_on=False)
    second.load_state(state)
    told = [learner.step(samples, LoopEvents()) for learner in (first, second, first, second)]
    assert told[0] == told[1]
    assert told[2] == told[3]
    assert told[0] != told[2]
    assert all(np.array_equal(value, second.values()[name]) for name, value in first.values().items())
    assert first.counters == second.counters


def test_values_are_a_copy_that_later_steps_leave_alone(small: Blueprint) -> None:
    learner = learner_of(small)
    before = learner.values()
    kept = {name: value.copy() for name, value in before.items()}
    learner.step(mixed(small), LoopEvents())
    assert all(np.array_equal(before[name], kept[name]) for name in kept)
    assert any(not np.array_equal(value, kept[name]) for name, value in learner.values().items())


def test_the_base_is_never_moved(blueprint: Blueprint) -> None:
    kept = {name: value.copy() for name, value in {**blueprint.base, **blueprint.initial}.items()}
    learner_of(blueprint, moved_on=False, learning_rate=0.1).step(mixed(blueprint), LoopEvents())
    assert all(np.array_equal(value, kept[name]) for name, value in {**blueprint.base, **blueprint.initial}.items())


def test_samples_in_which_nothing_was_decided_teach_nothing(small: Blueprint) -> None:
    legal: Any = Node(((4, 5, 6),))
    samples = play(small, [SamplingRequest(prompt(2, 5), 1, legal, 5)])
    learner = learner_of(small)
    before = learner.values()
    told = learner.step(samples, LoopEvents())
    assert told["loss"] == told["grad_norm"] == 0
    assert all(np.array_equal(value, before[name]) for name, value in learner.values().items())


def test_a_prompt_of_one_token_has_no_context_and_still_learns(small: Blueprint) -> None:
    samples = play(small, [SamplingRequest((3,), seed, None, 4) for seed in range(3)])
    learner = learner_of(small)
    close(learner.policy_logprobs(samples), [sample.completion.policy for sample in samples])
    assert learner.step(samples, LoopEvents())["grad_norm"] > 0


def test_a_step_has_its_phases(small: Blueprint) -> None:
    names: list[str] = []

    class Listener(Observer):
        def phase_started(self, name: str, now: float) -> None:
            names.append(name)

    learner_of(small, chunk=3).step(mixed(small), LoopEvents([Listener()]))
    assert set(names) == {"loss_forward", "backward", "optimizer"}
    assert names[-1] == "optimizer"


def test_tokens_are_counted_as_trained_and_as_forwarded(small: Blueprint) -> None:
    samples = play(small, open_requests(2, 3, length=5))
    learner = learner_of(small, beta=0.0, chunk=1)
    learner.step(samples, LoopEvents())
    context = sum(len(text) - 1 for text in {sample.prompt for sample in samples})
    assert learner.counters.trained_tokens == 6 * 5
    assert learner.counters.forwarded_tokens == context + 6 * 5


def test_a_completion_stays_what_it_is(small: Blueprint) -> None:
    made = play(small, game_requests(1, 1))[0].completion
    assert isinstance(made, Completion)
    assert made.behaviour.dtype == made.policy.dtype == np.float32
