"""What the graphics cards do, asked of the driver; where there is none, the reason is the answer."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class GpuReading:
    """One card at one moment."""

    name: str
    load_percent: float
    memory_bytes: int
    memory_total_bytes: int


class Gpus:
    """The cards of this machine. `unavailable` says why there are none."""

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
            self.unavailable = f"no NVIDIA driver answers ({error})"
            return
        self._nvml = pynvml
        if not self._handles:
            self.unavailable = "the driver knows no card"

    @property
    def count(self) -> int:
        return len(self._handles)

    def read(self) -> list[GpuReading]:
        """All cards now; a driver that stops answering makes them unavailable from then on."""
        try:
            return [self._reading(handle) for handle in self._handles]
        except self._nvml.NVMLError as error:
            self.unavailable = f"the driver does not tell ({error})"
            return []

    def stats(self) -> dict[str, Any]:
        """The fields of a `device_stats` event: every card as it is now, or why there is none to speak of."""
        readings = self.read() if self.unavailable is None else []
        return {"devices": [asdict(each) for each in readings]} if readings else {"unavailable": self.unavailable}

    def _reading(self, handle: Any) -> GpuReading:
        nvml = self._nvml
        memory, name = nvml.nvmlDeviceGetMemoryInfo(handle), nvml.nvmlDeviceGetName(handle)
        load = float(nvml.nvmlDeviceGetUtilizationRates(handle).gpu)
        text = name.decode() if isinstance(name, bytes) else str(name)
        return GpuReading(text, load, int(memory.used), int(memory.total))
