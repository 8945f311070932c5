"""Figures at the end of the tests of the documentation: the minutes from nothing to the first job on each cluster."""

from __future__ import annotations

import pytest

WORDS_A_MINUTE = 200


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print, for each executed page of a cluster, the minutes to read it up to the first job of a cell and to run that.

    The commands run on the replica of the cluster, and the words include what is typed.
    """
    reports = terminalreporter.getreports("passed")
    walks = [value for report in reports for name, value in report.user_properties if name == "walk"]
    for walk in sorted((each for each in walks if each["page"].startswith("clusters/")), key=lambda each: each["page"]):
        reading = walk["words"] / WORDS_A_MINUTE
        terminalreporter.write_line(
            f"{walk['page']:24} {walk['words']} words: {reading:.1f} min; commands: {walk['seconds'] / 60:.1f} min; "
            f"together {reading + walk['seconds'] / 60:.1f} min"
        )
