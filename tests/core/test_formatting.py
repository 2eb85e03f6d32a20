"""Amounts as a person reads them."""

from __future__ import annotations

import pytest

from fairtrial.core.formatting import shown_hours, shown_money


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
