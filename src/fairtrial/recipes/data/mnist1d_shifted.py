"""MNIST-1D with a shifted distribution: slower signals, other heights, smaller translations, stronger noise.

The `finetune` recipe adapts models to it that were trained on MNIST-1D.
"""

from __future__ import annotations

from typing import Any

from fairtrial.recipes.data.mnist1d import fresh_report, splits

VERSION = 1
SEED = 77_001
EVAL_SEED = 20_261_116
SHIFT = {"padding": [10, 30], "max_translation": 20, "scale_coeff": 0.8, "corr_noise_scale": 0.3}


def make() -> dict[str, Any]:
    return splits(SEED, EVAL_SEED, **SHIFT)


def make_report(number: int) -> dict[str, Any]:
    return fresh_report(number, **SHIFT)
