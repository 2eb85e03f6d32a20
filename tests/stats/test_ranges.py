"""The studentized range, where SciPy's integral is content and where it is not; and p-values as a person reads them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats
from scipy.integrate import IntegrationWarning

from fairtrial.core.formatting import shown_p
from fairtrial.stats.compare import ComparisonConfig
from fairtrial.stats.families import compare_family, tukey_quantile
from fairtrial.stats.ranges import integrated_cdf, range_p
from fairtrial.stats.sweeps import pick_winner
from tests.conftest import Answer


def grumbling(monkeypatch: pytest.MonkeyPatch) -> None:
    """SciPy as it is where its integral does not converge: a warning, and a figure that is not to be trusted."""

    def warn(*_: Any) -> float:
        warnings.warn("The maximum number of subdivisions (50) has been achieved.", IntegrationWarning, stacklevel=2)
        return 0.123

    for name in ("cdf", "sf", "ppf"):
        monkeypatch.setattr(stats.studentized_range, name, warn)
    tukey_quantile.cache_clear()
    range_p.cache_clear()


@pytest.mark.slow
def test_a_family_is_judged_without_a_warning_where_scipy_gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    random, config = np.random.default_rng(0), ComparisonConfig(paired=True).check()
    arms = {f"v{arm}": random.standard_normal(3) + 0.5 * arm for arm in range(5)}
    tukey_quantile.cache_clear()
    known = compare_family(arms, "v0", config, "tukey")
    winner = pick_winner(arms, direction="max", alpha=0.05)
    assert winner is not None and winner.spacing is not None
    before = winner.spacing.range_p
    grumbling(monkeypatch)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = compare_family(arms, "v0", config, "tukey")
        again = pick_winner(arms, direction="max", alpha=0.05)
        assert again is not None and again.spacing is not None
        assert again.spacing.range_p == pytest.approx(before, abs=1e-9)
    tukey_quantile.cache_clear()
    range_p.cache_clear()
    for one, other in zip(known, found, strict=True):
        assert other.adjusted_p == pytest.approx(one.adjusted_p, abs=1e-9)
        assert other.effect.limits == pytest.approx(one.effect.limits, rel=1e-8)


@pytest.mark.parametrize(("arms", "freedom"), [(3, 4), (15, 28), (200, 199), (200, 398)])
def test_the_fixed_rule_gives_what_the_adaptive_one_gives(arms: int, freedom: int) -> None:
    for distance in (3.0, 5.5):
        usual = float(stats.studentized_range.cdf(distance, arms, freedom))
        assert integrated_cdf(distance, arms, freedom) == pytest.approx(usual, abs=2e-9)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("level", "arms", "freedom"),
    [(0.95, 3, 4), (0.99, 15, 28), (0.9, 40, 400), (0.975, 100, 99), (0.95, 3, 2), (0.99, 3, 1)],
)
def test_a_quantile_is_that_of_scipy_also_where_the_coarse_rule_is_far_off(
    level: float, arms: int, freedom: int
) -> None:
    expected = float(stats.studentized_range.ppf(level, arms, freedom))
    assert tukey_quantile(level, arms, freedom) == pytest.approx(expected, rel=1e-10)


def test_a_p_value_that_underflows_is_below_something(cli: Callable[..., Answer], tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    shared, own = random.standard_normal(250), 0.001 * random.standard_normal((3, 250))
    rows = [f"v{arm},{s},{0.1 * shared[s] + own[arm, s] + arm}" for arm in range(3) for s in range(250)]
    (tmp_path / "n.csv").write_text("\n".join(["variant,seed,score", *rows]) + "\n")
    family = cli("analyze", "--from", "n.csv").out
    assert "0.0e+00" not in family and "< 1e-9" in family
    pair = cli("analyze", "--from", "n.csv", "--candidate", "v1", "--method", "sign-flip", "--ttest.enabled").out
    assert "p = <" not in pair and "p < " in pair


def test_p_values_are_shown_by_one_rule() -> None:
    assert [shown_p(p) for p in (None, 0.0, 1e-300, 1e-9, 0.00012, 0.0042, 0.25)] == [
        "", "< 1e-9", "< 1e-9", "1.0e-09", "1.2e-04", "0.004", "0.25"
    ]  # fmt: skip
