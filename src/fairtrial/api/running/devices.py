"""The device that hours were measured on: a GPU named by the user, or this machine, calibrated once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fairtrial.core.devices import Calibration
from fairtrial.core.errors import UserError
from fairtrial.costs.cost import LOCAL
from fairtrial.probe.calibration import calibrate
from fairtrial.record.environment import cpu_name
from fairtrial.record.store import Store

HINT = "Name the device that the hours were measured on with --device."


def measured_on(store: Store, facts: Sequence[Mapping[str, Any]], hint: str = HINT) -> tuple[str, Calibration]:
    """Return the device of runs with these facts and its calibration. Only a CPU like this machine's is supported."""
    kinds = {
        (each["machine"].get("cpu"), each["options"].get("device"), each["options"].get("threads")) for each in facts
    }
    if len(kinds) > 1:
        raise UserError(
            "the runs were measured on different kinds of machines, so their hours are not comparable", hint=hint
        )
    [(cpu, device, threads)] = kinds
    if device is None or threads is None:
        raise UserError("the runs did not record their device and number of threads", hint=hint)
    if device != "cpu":
        raise UserError(f"the hours were measured on '{device}', whose speed is unknown", hint=hint)
    return LOCAL, calibration(store, device, int(threads), cpu or "unknown", hint)


def calibration(store: Store, device: str, threads: int, cpu: str | None = None, hint: str = HINT) -> Calibration:
    """Return the calibration of this machine, measured once per CPU and thread count and cached in the store."""
    name = cpu or _name(device)

    def make(_: Path) -> Mapping[str, Any]:
        if cpu is not None and cpu != cpu_name():
            raise UserError(f"the hours were measured on another machine ({cpu}), whose speed is unknown", hint=hint)
        return {"calibration": vars(recalibrated(device, threads))}

    entry = store.cache.entry("calibration", {"name": name, "threads": threads, "version": 2}, make, lambda *_: True)
    return Calibration(**entry.manifest["calibration"])


def recalibrated(device: str, threads: int) -> Calibration:
    """Measure the calibration of this machine now, without the cache."""
    return calibrate(_name(device), threads, device)


def _name(device: str) -> str:
    if device == "cpu":
        return cpu_name() or "unknown"
    import torch

    return torch.cuda.get_device_name(device) if device.startswith("cuda") else device
