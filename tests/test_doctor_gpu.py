"""NVIDIA's library as an object of the test's own: devices, silence and errors."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from shared.doctor.facts import Gpu, Gpus
from shared.doctor.gpu import read_gpus


class FakeNvml:
    """Knows what is in `knows` by function name; everything else raises as the library does."""

    class NVMLError(Exception):
        pass

    def __init__(self, **knows: object) -> None:
        self._knows = knows
        self.ended = 0

    def nvmlInit(self) -> None:
        if self._knows.get("nvmlInit") == "fails":
            raise self.NVMLError("Driver Not Loaded")

    def nvmlShutdown(self) -> None:
        self.ended += 1

    def __getattr__(self, name: str) -> object:
        def ask(*_: object) -> object:
            if name not in self._knows:
                raise self.NVMLError("Not Supported")
            return self._knows[name]

        return ask


WHOLE = {
    "nvmlSystemGetDriverVersion": "590.1",
    "nvmlDeviceGetCount": 1,
    "nvmlDeviceGetHandleByIndex": object(),
    "nvmlDeviceGetName": "Orin",
    "nvmlDeviceGetClockInfo": 1200,
    "nvmlDeviceGetMaxClockInfo": 1300,
    "nvmlDeviceGetCurrentClocksThrottleReasons": 0x1 | 0x20,
    "nvmlDeviceGetPersistenceMode": 0,
    "nvmlDeviceGetTemperature": 71,
    "nvmlDeviceGetMemoryInfo": SimpleNamespace(free=3 << 20, total=8 << 20),
}


def test_a_device_is_read_and_the_library_let_go() -> None:
    nvml = FakeNvml(**WHOLE)
    device = Gpu("Orin", "590.1", 1200, 1300, ("software heat limit",), False, 71, 3, 8)
    assert read_gpus(nvml) == Gpus((device,))
    assert nvml.ended == 1


@pytest.mark.parametrize("silent", sorted(WHOLE.keys() - {"nvmlDeviceGetCount", "nvmlDeviceGetHandleByIndex"}))
def test_what_a_device_does_not_tell_is_left_open_and_the_rest_is_told(silent: str) -> None:
    (device,) = read_gpus(FakeNvml(**{name: value for name, value in WHOLE.items() if name != silent})).devices
    told = Gpu("Orin", "590.1", 1200, 1300, ("software heat limit",), False, 71, 3, 8)
    different = [field for field in Gpu.__struct_fields__ if getattr(device, field) != getattr(told, field)]
    assert different == ([*different[:1]] if silent != "nvmlDeviceGetMemoryInfo" else ["free_mb", "total_mb"])
    assert different


def test_a_device_that_cannot_be_opened_is_named() -> None:
    nvml = FakeNvml(nvmlDeviceGetCount=1)
    (device,) = read_gpus(nvml).devices
    assert "cannot open" in device.name
    assert nvml.ended == 1


def test_the_reason_why_no_device_is_known_is_told() -> None:
    assert "not installed" in read_gpus(None).absent
    assert "Driver Not Loaded" in read_gpus(FakeNvml(nvmlInit="fails")).absent
    assert "no device" in read_gpus(FakeNvml(nvmlDeviceGetCount=0)).absent
