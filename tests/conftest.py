"""What all tests share."""

import pytest
from hypothesis import HealthCheck, settings

# A busy machine is no fault of the code: no time is too long, for one example as for making them.
settings.register_profile("evalbus", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("evalbus")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show how tests failed that passed when they were run once more: otherwise nobody could find out why."""
    for report in terminalreporter.getreports("rerun"):
        terminalreporter.section(f"failed, and was run once more: {report.nodeid}", yellow=True)
        report.toterminal(terminalreporter._tw)
