"""Property tests behave alike everywhere: the same examples on every run, and no limit on time, which a busy machine would
break."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("headtail", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("headtail")
