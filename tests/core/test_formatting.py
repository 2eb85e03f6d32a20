"""Amounts as a person reads them."""

from __future__ import annotations

import pytest

from fairtrial.core.cautions import ALL as CAUTIONS
from fairtrial.core.cautions import Caution
from fairtrial.core.formatting import shown_hours, shown_money, shown_percent


@pytest.mark.parametrize(
    ("dollars", "shown"),
    [
        (17.4, "$17.40"), (145, "$145.00"), (144.6, "$144.60"), (0.5, "$0.50"), (3, "$3.00"), (1234.5, "$1,234.50"),
        (0, "$0.00"), (0.1, "$0.10"), (0.05, "$0.05"), (0.0153, "$0.0153"), (0.00142, "$0.00142"), (2e-6, "$2.00e-06"),
    ],
)  # fmt: skip
def test_money_has_two_decimals_and_small_amounts_stay_apart(dollars: float, shown: str) -> None:
    assert shown_money(dollars) == shown


@pytest.mark.parametrize(
    ("hours", "shown"), [(5.8, "5.80 h"), (48.2, "48.2 h"), (145.04, "145 h"), (0.5, "30.0 min"), (0.001, "3.60 s")]
)
def test_hours_have_three_significant_digits(hours: float, shown: str) -> None:
    assert shown_hours(hours) == shown


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 runs were lost"), (1, "1 run was lost"), (2, "2 runs were lost"), (1234, "1,234 runs were lost")],
)
def test_a_caution_counts_in_the_right_number(count: int, text: str) -> None:
    assert Caution("x", "{count:run was/runs were} lost", "{count}").fill(count=count)["text"] == text


@pytest.mark.parametrize("caution", CAUTIONS.values(), ids=lambda caution: caution.code)
def test_no_caution_has_a_plural_in_parentheses(caution: Caution) -> None:
    assert "(s)" not in caution.text + caution.remedy


@pytest.mark.parametrize(("share", "text"), [(0.95, "95 %"), (0.9833333333, "98.33 %"), (0.999, "99.9 %")])
def test_a_share_has_at_most_four_digits(share: float, text: str) -> None:
    assert shown_percent(share) == text
