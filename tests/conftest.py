"""What all tests share."""

from hypothesis import HealthCheck, settings

# A busy machine is no fault of the code: no time is too long, for one example as for making them.
settings.register_profile("evalbus", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("evalbus")
