"""Load the price table: the built-in one, or the user's own file."""

from __future__ import annotations

import os
from datetime import date
from pathlib import Path

from fairtrial.costs.prices import BUILT_IN, PriceTable, read_prices
from fairtrial.plan.study import read_mapping

HINT = "A price file needs as_of, and cards with usd_per_hour, memory_gb and performance."


def load_prices(path: str | os.PathLike[str] | None, today: date | None = None) -> PriceTable:
    if path is None:
        return BUILT_IN
    file = Path(path)
    return read_prices(read_mapping(file, hint=HINT), file.name, today or date.today())
