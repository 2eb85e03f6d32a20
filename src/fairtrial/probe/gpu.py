"""Load and memory of the GPUs, read from the NVIDIA driver, or the reason why they are unavailable."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class GpuReading:
    """The state of one GPU at one point in time."""

    name: str
    load_percent: float
    memory_bytes: int
    memory_total_bytes: int


class Gpus:
    """The GPUs of this machine. `unavailable` is the reason if there are none."""

    def __init__(self) -> None:
        self.unavailable: str | None = None
        self._handles: list[Any] = []
        self._nvml: Any = None
        try:
            import pynvml
        except ImportError:
            self.unavailable = "the package nvidia-ml-py is not installed"
            return
        try:
            pynvml.nvmlInit()
            self._handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
        except pynvml.NVMLError as error:
            self.unavailable = f"no NVIDIA driver responds ({error})"
            return
        self._nvml = pynvml
        if not self._handles:
            self.unavailable = "the driver reports no GPU"

    @property
    def count(self) -> int:
        return len(self._handles)

    def read(self) -> list[GpuReading]:
        """Return the current state of all GPUs. If the driver stops responding, they are unavailable from then on."""
        try:
            return [self._reading(handle) for handle in self._handles]
        except self._nvml.NVMLError as error:
            self.unavailable = f"the driver does not respond ({error})"
            return []

    def stats(self) -> dict[str, Any]:
        """Return the fields of a `device_stats` event: the current state of every GPU, or why it is unavailable."""
        readings = self.read() if self.unavailable is None else []
        return {"devices": [asdict(each) for each in readings]} if readings else {"unavailable": self.unavailable}

    def _reading(self, handle: Any) -> GpuReading:
        nvml = self._nvml
        memory, name = nvml.nvmlDeviceGetMemoryInfo(handle), nvml.nvmlDeviceGetName(handle)
        load = float(nvml.nvmlDeviceGetUtilizationRates(handle).gpu)
        text = name.decode() if isinstance(name, bytes) else str(name)
        return GpuReading(text, load, int(memory.used), int(memory.total))
