"""How a metric's name is read, and in which order directions count."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fairtrial.core.directions import HIGHER, LOWER, WEAK, WORDS, Direction, direction_by_name, settle
from fairtrial.core.errors import UserError
from fairtrial.core.specs import Metric
from fairtrial.costs.frontier import OptimizationTarget

ROOT = Path(__file__).parents[2]

UP = """
score eval_accuracy report_return_mean overview/reward acc valAcc val_acc top1 top5_accuracy F1 f1_score macroF1 roc_auc
AUROC precision_at_k recall@10 bleu rougeL mAP mAP50 mIoU dice ndcg@10 win_rate winrate success_rate throughput
tokens_per_s steps/s samples_per_second tokens/sec it/s steps_s elo r2 PSNR ssim eval_human_normalized_score
eval_return_mean_bound loss_improvement loss_reduction error_reduction neg_mean_squared_error losses/reward
explained_variance log_likelihood elbo true_positive_rate tokens_per_dollar reward_per_step rewardMean eval/mean_reward
acc1 exact_match pass@1 reward_min collision_free_rate loss_drop perf/steps_per_s fps speedup time_saved
"""
DOWN = """
loss val_loss valLoss train/loss loss/train error err error_rate perplexity ppl nll mse mae rmse wer cer fid kl
approx_kl regret bits_per_byte bpb time latency latency_p95 wall_s step_ms seconds memory peak_memory_gb cost cost_usd
gap optimality_gap reward_loss time_to_best_score steps_to_score epochs_to_accuracy value_loss accuracy_loss brier_score
fid_score perplexity_score negative_log_likelihood cross_entropy false_positive_rate accuracy_drop time_per_step
ms_per_token cost_per_run seconds_per_epoch valloss logloss loss_at_best_accuracy distance_to_goal top1_error
number_of_errors loss_per_token reward_time score_error loss2 HTTPLatency
"""
SILENT = """
x m selection lifetime learning_rate lr grad_norm steps epoch entropy reward_std loss_variance episode_length value
q_value s perf temperature per_s steps_per_episode drop_rate ratio_to_baseline 損失 heart / _ . 1
"""


@pytest.mark.parametrize(("names", "way"), [(UP, "max"), (DOWN, "min"), (SILENT, None)])
def test_names_are_read_word_by_word(names: str, way: str | None) -> None:
    assert {name: direction_by_name(name) for name in names.split()} == dict.fromkeys(names.split(), way)


def test_no_word_has_two_directions() -> None:
    up, down, weak = (set(" ".join(table).split()) for table in (HIGHER.values(), LOWER.values(), [WEAK]))
    assert not (up & down) and not (weak & (up | down))
    assert {**dict.fromkeys(up, "max"), **dict.fromkeys(down, "min")} == WORDS


def test_strange_names_are_read_in_little_time() -> None:
    for name in ("", "/" * 500, "per_" * 250, "of_" * 333, "to_" * 333, "a" * 10**6, "\x00loss", "loss per"):
        direction_by_name(name)
    assert direction_by_name("loss" * 10**5) is None


def test_what_is_stated_counts_first_and_the_name_last() -> None:
    metric = "val_loss"
    assert settle(metric) == Direction(metric, "min", "name")
    assert settle(metric, recipe="max").source == "recipe"
    assert settle(metric, recipe="max", recorded=["min"]).source == "recorded"
    assert settle(metric, recipe="max", recorded=["min"], stated="max") == Direction(
        metric, "max", "stated", others=["min"]
    )
    assert settle("oddity", hinted="min") == Direction("oddity", "min", "recorded")
    with pytest.raises(UserError, match=r"high or a low oddity.*--direction max or --direction min"):
        settle("oddity").known()
    with pytest.raises(UserError, match="'max' or 'min'"):
        settle(metric, stated="up")


def test_a_recipe_and_a_choice_state_their_direction_or_have_it_by_name() -> None:
    assert [Metric("loss").direction, Metric("accuracy").direction, Metric("oddity", "min").direction] == [
        "min", "max", "min"
    ]  # fmt: skip
    assert [
        OptimizationTarget("eval_loss").direction,
        OptimizationTarget().direction,
        OptimizationTarget("loss", "max").direction,
    ] == ["min", "max", "max"]
    for make in (Metric, OptimizationTarget):
        with pytest.raises(UserError, match="high or a low oddity"):
            make("oddity")


def test_the_page_shows_the_table_of_the_code() -> None:
    page = (ROOT / "docs" / "stats.md").read_text(encoding="utf-8")
    section = page[page.index("## Which way is good") :]
    section = section[: section.index("\n## ", 3)]
    shown = {
        way: {kind.strip(): words.split() for kind, words in re.findall(rf"\| {way} \| ([^|]+) \| ([^|]+) \|", section)}
        for way in ("higher", "lower")
    }
    assert shown["higher"] == {**{kind: words.split() for kind, words in HIGHER.items()}, "weak": WEAK.split()}
    assert shown["lower"] == {kind: words.split() for kind, words in LOWER.items()}
