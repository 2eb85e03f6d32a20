"""Determine whether high or low values of a metric are better, with one rule for the whole program.

The first source that gives a direction decides:

    stated    a flag, an argument, or `direction:` in a study file
    recorded  what the study or its runs recorded when they were made
    recipe    the recipe's own metric; the same quantity on another split counts
    name      the words in the metric's name, by the tables below
    error     otherwise; the message names the flag to pass

How a name is interpreted:

 1. The part after the last slash comes first: `losses/reward` is a reward. The parts before it are used only if it has
    no direction.
 2. A name is split into words at every character that is not a letter or a digit, at camelCase boundaries, and before
    digits if the word with its digits is not known.
 3. `X per Y` is judged by X; if X has no direction and Y is a time, a cost or a memory size, higher is better. A count
    directly followed by a unit of time is a speed: `steps/s`.
 4. `X to Y` is judged by X alone, and a lower count is then better: `steps_to_score`. For `at`, `by`, `for`, `in`,
    `of`, `on`, `under`, `until`, `when` and `with`, the words before them come first.
 5. If several words have a direction, the last one decides: `reward_loss` is a loss. Weak words (`score`) count only
    if no other word has a direction: for `fid_score`, lower is better.
 6. `reduction`, `drop`, `free` … invert the words before them; `negative`, `neg` … invert the words after them:
    `loss_reduction`, `neg_mean_squared_error`.
 7. A measure of spread (`reward_std`) has no direction, because either may be better.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from fairtrial.core.cautions import DIRECTION_AGAINST_NAME, DIRECTIONS_DIFFER
from fairtrial.core.errors import UserError
from fairtrial.core.findings import FilledCaution

Better = Literal["max", "min"]

HIGHER: Mapping[str, str] = {
    "rewards": "reward rewards return returns profit revenue sharpe",
    "classification": "accuracy acc top1 top5 precision recall sensitivity specificity f1 fscore auc auroc auprc aupr "
    "ap roc map tpr tnr mcc kappa elbo likelihood",
    "text and images": "bleu rouge meteor chrf comet cider bertscore iou miou dice jaccard psnr ssim snr sdr",
    "retrieval": "ndcg mrr hits",
    "regression": "r2 pearson spearman kendall",
    "success": "win wins winrate success successes solved pass passed elo progress",
    "speed": "throughput speed speedup fps qps tps sps mfu utilization",
    "change for the better": "improvement improvements gain gains",
}
"""Words for quantities where higher is better, by category."""

LOWER: Mapping[str, str] = {
    "losses": "loss losses error errors err perplexity ppl nll nelbo bpc bpb bpd ce bce xent crossentropy logloss "
    "hinge",
    "regression": "mse mae rmse mape smape msle rmsle nmse nrmse residual residuals",
    "text and speech": "wer cer ter eer",
    "distances": "kl kld jsd divergence distance dist wasserstein emd chamfer hausdorff fid kid lpips brier ece gap "
    "regret discrepancy",
    "failures": "failure failures failed fail false fpr fnr collision collisions violation violations crash crashes "
    "timeout timeouts mistakes misses toxicity drawdown",
    "time": "time times duration elapsed latency delay wait lag staleness wall walltime runtime overhead seconds "
    "second sec secs minute minutes hour hours ms s us ns",
    "memory": "memory ram vram",
    "cost": "cost costs price usd dollar dollars energy joules emissions",
}
"""Words for quantities where lower is better, by category."""

WEAK = "score scores points performance quality rating similarity"
"""Higher is better, unless another word of the name has a direction: for `brier_score`, lower is better."""
PHRASES: Mapping[str, Better] = {
    "explained variance": "max", "exact match": "max", "win loss": "max", "true positive": "max",
    "true negative": "max",
    "false positive": "min", "false negative": "min", "cross entropy": "min", "bits per byte": "min",
    "bits per character": "min", "bits per char": "min", "bits per dim": "min", "bits per token": "min",
}  # fmt: skip
"""Phrases with a direction of their own."""
SPREAD = "std stddev stdev sd var variance stderr sem iqr"
"""Measures of spread, whose name does not show whether lower is better."""
TURNS_WHAT_IS_BEFORE = "reduction reductions decrease drop decline free saved savings avoided"
TURNS_WHAT_FOLLOWS = "negative neg negated minus inverse inv"
COUNTS = "steps tokens samples frames episodes examples images iterations it iters updates batches games items requests"
COUNTS_TO = f"{COUNTS} epochs trials evaluations evals"
"""Counts that may precede `to`, as in `epochs_to_accuracy`: lower is better."""

_UNITS = frozenset(["seconds", "second", "sec", "secs", "minute", "minutes", "hour", "hours", "ms", "s", "us", "ns"])
_COMPOUNDS = ("accuracy", "reward", "loss", "error", "perplexity", "regret", "latency", "score")
"""Endings that determine the direction of compound words: `valloss`."""
_BEFORE_CONTEXT = frozenset(["at", "by", "for", "in", "of", "on", "under", "until", "when", "with"])
_CHUNK = re.compile(r"[^\W_]+")
_PIECE = re.compile(r"[A-Z]+(?=[A-Z][a-z])\d*|[A-Z]?[a-z]+\d*|[A-Z]+\d*|\d+|[^\W_]")
_LONGEST_NAME = 1000
"""Maximum length in characters; longer names are not interpreted, because no user writes them."""


def _table() -> dict[str, Better]:
    words: dict[str, Better] = {}
    tables: tuple[tuple[Mapping[str, str], Better], ...] = ((HIGHER, "max"), (LOWER, "min"))
    for table, better in tables:
        words |= dict.fromkeys(" ".join(table.values()).split(), better)
    return words


WORDS = _table()
_WEAK, _SPREAD, _COUNTS, _COUNTS_TO = (frozenset(text.split()) for text in (WEAK, SPREAD, COUNTS, COUNTS_TO))
_TURNS_BEFORE, _TURNS_AFTER = frozenset(TURNS_WHAT_IS_BEFORE.split()), frozenset(TURNS_WHAT_FOLLOWS.split())
_PHRASES: dict[tuple[str, ...], Better] = {tuple(phrase.split()): better for phrase, better in PHRASES.items()}
_KNOWN = frozenset(WORDS) | _WEAK | _SPREAD
_EXPENSES = frozenset(" ".join([LOWER["time"], LOWER["memory"], LOWER["cost"], HIGHER["speed"]]).split())


def direction_by_name(metric: str) -> Better | None:
    """Return the direction that the metric's name suggests, or None."""
    if len(metric) > _LONGEST_NAME:
        return None
    parts = metric.split("/")
    for first in range(len(parts) - 1, -1, -1):
        words = words_of("/".join(parts[first:]))
        bare_unit = first > 0 and len(words) == 1 and words[0] in _UNITS  # `tokens/s` is interpreted as a whole
        direction = None if bare_unit else _read(words)
        if direction is not None:
            return direction
    return None


def varies_by_itself(metric: str) -> bool:
    """Return whether a metric measures time, speed, memory or cost: these vary between runs even with the same seed."""
    return not _EXPENSES.isdisjoint(words_of(metric))


def words_of(metric: str) -> list[str]:
    """Split a name into lower-case words: `evalTop1Acc` gives `eval`, `top1` and `acc`."""
    words: list[str] = []
    for chunk in _CHUNK.findall(metric):
        whole = _as_known(chunk)
        words += [whole] if whole else [_as_known(piece) or piece.lower() for piece in _PIECE.findall(chunk)]
    return words


def _as_known(text: str) -> str | None:
    """Return the known word for a text, with or without its trailing digits: `map` for `mAP50`."""
    lower = text.lower()
    return next((word for word in (lower, lower.rstrip("0123456789")) if word in _KNOWN), None)


def _read(words: Sequence[str]) -> Better | None:
    if "per" in words and not any(phrase[1] == "per" and _holds(words, phrase) for phrase in _PHRASES):
        cut = words.index("per")
        top, below = _read(words[:cut]), words[cut + 1 :]
        # An amount per second or per dollar. Without an amount before `per`, the direction is unknown.
        return top or ("max" if words[:cut] and _read(["_", *below]) == "min" else None)
    if "to" in words[1:]:
        head = words[: words.index("to", 1)]
        return "min" if head[-1] in _COUNTS_TO else _read(head)
    for place, word in enumerate(words):
        if word in _BEFORE_CONTEXT and place > 0:
            return _read(words[:place]) or _read(words[place + 1 :])
    return _decide(words)


def _holds(words: Sequence[str], phrase: tuple[str, ...]) -> bool:
    return any(tuple(words[at : at + len(phrase)]) == phrase for at in range(len(words)))


def _decide(words: Sequence[str]) -> Better | None:
    """Return the direction of the last word that has one, inverted if needed; weak words count only without others."""
    if len(words) > 1 and words[-1] in _UNITS and words[-2] in _COUNTS:
        return "max"
    direction: Better | None = None
    weak = False
    turned = False
    at = 0
    while at < len(words):
        phrase = next((each for each in _PHRASES if tuple(words[at : at + len(each)]) == each), None)
        word = words[at]
        here = _PHRASES[phrase] if phrase else _direction_of(word, first=at == 0)
        if word in _SPREAD and not phrase:
            return None
        if word in _TURNS_AFTER and not phrase and at + 1 < len(words):
            turned = not turned
        elif word in _TURNS_BEFORE:
            direction = _turned(direction)
        elif word in _WEAK:
            weak = True
        elif here:
            direction = here
        at += len(phrase) if phrase else 1
    if direction is None and weak:
        direction = "max"
    return _turned(direction) if turned else direction


def _direction_of(word: str, *, first: bool) -> Better | None:
    if first and word in ("s", "us"):  # these are units only after the quantity that they measure
        return None
    if word in WORDS:
        return WORDS[word]
    ending = next((each for each in _COMPOUNDS if word.endswith(each) and word not in _KNOWN), None)
    return None if ending is None else WORDS.get(ending, "max")


def _turned(better: Better | None) -> Better | None:
    return None if better is None else "min" if better == "max" else "max"


GIVE_FLAG = "Pass --direction max or --direction min."
GIVE_ARGUMENT = "Pass direction='max' or direction='min'."


@dataclass(frozen=True)
class Direction:
    """The direction of a metric and its source. `better` is None if the direction is unknown."""

    metric: str
    better: Better | None
    source: str | None
    """`stated`, `recorded`, `recipe` or `name`."""
    problem: str | None = None
    """Why the direction is unknown."""
    others: Sequence[str] = ()
    """Recorded directions that a stated one overrides."""

    def known(self, hint: str = GIVE_FLAG) -> Better:
        """Return `max` or `min`; raise an error with `hint` if the direction is unknown."""
        if self.better is None:
            raise UserError(self.problem or f"it is unknown whether a high or a low {self.metric} is better", hint=hint)
        return self.better

    @property
    def text(self) -> str:
        return better_words(self.better)

    def cautions(self, flag: str = "--direction") -> list[FilledCaution]:
        """Return cautions if the metric's name suggests, or some runs recorded, the opposite direction."""
        if self.better is None:
            return []
        messages: list[FilledCaution] = []
        by_name, good = direction_by_name(self.metric), "higher" if self.better == "max" else "lower"
        if self.source != "name" and by_name not in (None, self.better):
            messages.append(
                DIRECTION_AGAINST_NAME.fill(
                    metric=self.metric, better=good, who=_WHO[self.source or ""], flag=flag, other=_turned(self.better)
                )
            )
        if set(self.others) - {self.better}:
            messages.append(DIRECTIONS_DIFFER.fill(metric=self.metric, better=self.text))
        return messages


_WHO = {"stated": "was stated", "recorded": "was recorded", "recipe": "is the recipe's own"}


def better_words(better: str | None) -> str:
    return {"max": "higher is better", "min": "lower is better"}.get(better or "", "direction unknown")


def settle(
    metric: str,
    *,
    stated: str | None = None,
    recorded: Iterable[str] = (),
    recipe: str | None = None,
    hinted: str | None = None,
) -> Direction:
    """Determine the direction of a metric from the given sources, in the order of the module docstring.

    `recorded` and `recipe` are directions of the same quantity; `hinted` is used only if no other source decides. If
    runs recorded both directions, the result is unknown: only the user can say which one is right.
    """
    seen = list(dict.fromkeys(recorded))
    if stated is not None:
        return Direction(metric, checked(stated), "stated", others=seen)
    if len(seen) > 1:
        return Direction(metric, None, None, f"some runs recorded that high {metric} is better, others that low is")
    if seen:
        return Direction(metric, checked(seen[0]), "recorded")
    if recipe is not None:
        return Direction(metric, checked(recipe), "recipe")
    by_name = direction_by_name(metric)
    if by_name is not None:
        return Direction(metric, by_name, "name")
    return Direction(metric, None, None) if hinted is None else Direction(metric, checked(hinted), "recorded")


def checked(given: Any, name: str = "direction") -> Better:
    if given == "max":
        return "max"
    if given == "min":
        return "min"
    raise UserError(f"{name} must be 'max' or 'min', not {given!r}")
