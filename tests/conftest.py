"""What all tests share."""

import pytest
from hypothesis import HealthCheck, settings

# A busy machine is no fault of the code: no time is too long, for one example as for making them. What is tried is the
# same in every run, so that a change is judged by what it changed; new examples are looked for by whoever asks for them:
# scripts/test tests/unit -q -n 2 --hypothesis-profile explore
settings.register_profile("evalbus", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
settings.register_profile("explore", settings.get_profile("evalbus"), derandomize=False, max_examples=1000)
settings.load_profile("evalbus")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show how tests failed that passed when they were run once more: otherwise nobody could find out why."""
    for report in terminalreporter.getreports("rerun"):
        terminalreporter.section(f"failed, and was run once more: {report.nodeid}", yellow=True)
        report.toterminal(terminalreporter._tw)
