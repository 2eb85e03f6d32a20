"""The price table: dated, sourced, replaceable, and strict about what it is given."""

from __future__ import annotations

from datetime import date

import pytest

from fairtrial.core.devices import A100_GFLOPS, Calibration
from fairtrial.core.errors import FairtrialError, UserError
from fairtrial.costs.cost import LOCAL, CostModel
from fairtrial.costs.points import CostPoint
from fairtrial.costs.prices import BUILT_IN, read_prices

TODAY = date(2026, 11, 16)


def test_the_documented_cards_have_their_documented_values():
    cards = [
        (card.usd_per_hour, card.memory_gb, card.performance)
        for card in (BUILT_IN.card(n) for n in ("a100-80gb", "v100", "t4"))
    ]
    assert cards == [(3.00, 80, 1.0), (2.00, 16, 0.6), (0.50, 16, 0.3)]


def test_every_card_has_a_source_a_date_and_a_basis():
    for card in BUILT_IN.cards.values():
        assert card.source and card.basis and card.as_of <= TODAY
        assert card.usd_per_hour > 0 and card.memory_gb > 0 and card.performance > 0
    assert {"h100", "h200", "b200", "l4", "a10g", "l40s", "rtx-4090"} <= set(BUILT_IN.cards)


def test_an_unknown_card_lists_those_that_are_known():
    with pytest.raises(UserError, match="did you mean 'h100'"):
        BUILT_IN.card("h10")
    with pytest.raises(UserError, match=r"a100-80gb, .* t4"):
        BUILT_IN.card("abacus")


def test_an_old_price_is_said_to_be_old():
    card = BUILT_IN.card("a100-80gb")
    assert BUILT_IN.cautions(card, TODAY) == []
    assert [each["code"] for each in BUILT_IN.cautions(card, date(2028, 1, 1))] == ["old prices"]


def test_a_file_replaces_the_prices_and_keeps_what_is_known_of_a_card():
    given = {
        "as_of": "2026-11-01",
        "cards": {
            "A100-80GB": {"usd_per_hour": 1.5},
            "box": {"usd_per_hour": 0.2, "memory_gb": 24, "performance": 0.4},
        },
    }
    table = read_prices(given, "prices.yaml", TODAY)
    assert set(table.cards) == {"a100-80gb", "box"}
    assert (table.card("a100-80gb").usd_per_hour, table.card("a100-80gb").memory_gb) == (1.5, 80)
    with pytest.raises(UserError, match=r"prices\.yaml"):
        table.card("t4")
    measured_on_a_card_without_a_price = CostPoint("a", 3, 0.5, memory=1, device="t4")
    assert CostModel.of("box", table).price(measured_on_a_card_without_a_price).hours.value == pytest.approx(
        3 * 0.3 / 0.4
    )


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"cards": {"t4": {"usd_per_hour": 1}}}, ["as_of"]),
        ({"as_of": "2026-11-01", "cards": {}}, ["cards"]),
        ({"as_of": "2026-11-01", "cards": {"t4": {"usd_per_hour": -1}, "v100": {"usd_per_hour": float("nan")}}}, ["t4", "v100"]),
        ({"as_of": "2027-11-01", "valid_until": "2026-01-01", "cards": {"t4": {"usd_per_hour": 1}}}, ["is in the future", "expired on 2026-01-01"]),
        ({"as_of": "2026-11-01", "cards": {"box": {"usd_per_hour": 1}}}, ["box", "memory_gb and performance"]),
        ({"as_of": "2026-11-01", "cards": {"t4": {"usd_per_hour": 1, "speed": 3}}}, ["speed"]),
        ({"as_of": "soon", "currency": "EUR", "cards": {"t4": {"usd_per_hour": 0}}}, ["as_of", "currency", "t4"]),
    ],
)  # fmt: skip
def test_bad_price_files_are_refused_with_every_problem(given, words):
    with pytest.raises(FairtrialError) as error:
        read_prices(given, "prices.yaml", TODAY)
    told = " ".join([error.value.message, *error.value.problems])
    for word in words:
        assert word in told


def test_hours_measured_here_are_converted_by_the_calibration():
    here = Calibration("some CPU", 1, A100_GFLOPS / 250, 70, 90, 15, 768, 95)
    model = CostModel.of("t4", local=here)
    priced = model.price(CostPoint("a", 100, 0.5, memory=1, device=LOCAL))
    assert priced.hours.value == pytest.approx(100 / 250 / 0.3)
    assert priced.basis is not None and "some CPU" in priced.basis and "1 thread;" in priced.basis
    with pytest.raises(UserError, match="local"):
        CostModel.of("t4").check([CostPoint("a", 1, 0.5, device=LOCAL)])


@pytest.mark.slow
def test_a_calibration_measures_this_machine():
    from fairtrial.probe.calibration import calibrate

    found = calibrate("here", 1)
    assert 0.1 < found.gflops < 10_000 and found.low <= found.gflops <= found.high
    assert found.performance == pytest.approx(found.gflops / A100_GFLOPS)
