"""Numbers in the documentation: those that the code has, so that neither changes alone."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from jupyter_slurm.agent.hosting import daemon
from jupyter_slurm.client.submission import keywords
from jupyter_slurm.config import load_settings
from jupyter_slurm.embedded import description
from jupyter_slurm.runner import proc
from jupyter_slurm.runner.cell import display
from jupyter_slurm.runner.lifecycle import usage
from jupyter_slurm.runner.ranks import launch
from jupyter_slurm.services.clusters import job_checks
from jupyter_slurm.services.inventory import accounting_usage, all_jobs, facts, resources
from jupyter_slurm.services.results import output_growth
from jupyter_slurm.services.sessions import login_pages
from jupyter_slurm.services.slurm import poller
from jupyter_slurm.services.slurm.client import SlurmClient
from jupyter_slurm.services.slurm.rate_limit import TokenBucket
from jupyter_slurm.services.submission import submitter
from jupyter_slurm.services.tunnels import tunnel
from jupyter_slurm.sites.profile import Profile

DOCS = Path(__file__).parents[2] / "docs"
SETTINGS = load_settings()


def burst_of(bucket: TokenBucket) -> str:
    return f"{bucket._burst:.0f} at once"


def last_free_port() -> int:
    return proc.LAST_PORT - 1


@pytest.mark.parametrize(
    ("page", "texts"),
    [
        (
            "admin/index",
            [
                f"every {SETTINGS.poll_shortest:.0f} s",
                f"end after {SETTINGS.allocation_lease / 60:.0f} minutes",
                f"removed after {SETTINGS.retention_days:.0f} days",
            ],
        ),
        (
            "admin/load",
            [
                f"one in {SETTINGS.poll_shortest:.0f} s",
                f"looks {', '.join(f'{at:g}' for at in job_checks._LOOKS_S[:-1])} and {job_checks._LOOKS_S[-1]:g} s after",
                f"| 10 s (default) | {poller._BURST:g} | {poller._RATE:g} in a second",
                f"for example 30 s | {poller._CAUTIOUS_BURST:g} |",
                f"up to {SETTINGS.poll_longest:.0f} s",
                f"or {poller._WAITED_FOR_S:.0f} s while a user waits",
                {3: "three", 4: "four"}[submitter._MAX_CONCURRENT_SUBMISSIONS] + " at the same time",
                f"one in {resources._CACHE_AGE_S:.0f} s, and up to three more",
                f"one in {facts._CACHE_AGE_S / 60:.0f} minutes",
                f"one in {all_jobs._CACHE_AGE_S:.0f} s for all tabs",
                f"one in {accounting_usage._CACHE_AGE_S:.0f} s for the same period",
                f"{output_growth._ACTIVE_INTERVAL_S} s with new output",
                f"after {SETTINGS.agent_idle_exit / 60:.0f} minutes without",
                f"every {usage._INTERVAL_S:.0f} seconds and keep at most {usage._MAX_POINTS} points",
                f"{display.MAX_RECORD_BYTES >> 20} MB in the job directory, variables to {SETTINGS.values_limit >> 20} MB",
            ],
        ),
        (
            "admin/ports-and-firewalls",
            [
                "from {} to {} (`ports`".format(*Profile("x", "x").ports),
                f"from {proc.FIRST_PORT} to {last_free_port()}",
                f"from {launch._FIRST_PORT} to {launch._FIRST_PORT + launch._PORTS - 1}",
            ],
        ),
        (
            "admin/security",
            [f"{login_pages._PAGE_LIFETIME_S / 60:.0f} minutes", f"every {tunnel._PROOF_AGE_S:.0f} seconds"],
        ),
        (
            "admin/deploy",
            [f"after {SETTINGS.retention_days:.0f} days", f"exceeds {daemon._MAX_LOG_BYTES // 1_000_000} MB"],
        ),
        (
            "reference/job-folder",
            [
                f"at most {display.MAX_RECORD_BYTES >> 20} MB",
                f"every {usage._INTERVAL_S:.0f} s, at most {usage._MAX_POINTS} points",
            ],
        ),
        (
            "reference/environment-variables",
            [f"from {launch._FIRST_PORT} to {launch._FIRST_PORT + launch._PORTS - 1}", f"({usage._INTERVAL_S:.0f})"],
        ),
        ("reference/embedded-cluster", [f"at most {description.MAX_NODES} nodes"]),
        ("development/documentation", [f"at most {keywords._DEFAULT_RESTARTS} times"]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_numbers_of_a_page_are_those_of_the_code(page: str, texts: list[str]) -> None:
    shown = (DOCS / f"{page}.md").read_text("utf-8")
    assert [text for text in texts if text not in shown] == []


@pytest.mark.parametrize(
    ("stage", "variable"), [("most", "JOBS ?="), ("waiting", "PYTEST_WAITING ="), ("browser", "PYTEST_BROWSER =")]
)
def test_stages_run_as_many_tests_at_a_time_as_the_page_says(stage: str, variable: str) -> None:
    makefile = (DOCS.parent / "Makefile").read_text("utf-8")
    (number,) = re.findall(rf"^{re.escape(variable)}(?:.* -n)? (\d+)", makefile, re.MULTILINE)
    page = (DOCS / "development" / "testing.md").read_text("utf-8")
    assert re.search(rf"^\| {stage} \|.*\| {number} \|$", page, re.MULTILINE)


def test_the_limit_of_the_installed_size_is_that_of_the_test() -> None:
    (limit,) = re.findall(
        r"^MOST_INSTALLED_BYTES = (\d+)_000_000$", (DOCS.parent / "tests/test_packaging.py").read_text(), re.MULTILINE
    )
    assert f"12 packages and {limit} MB" in (DOCS / "development" / "releasing.md").read_text("utf-8")


def test_rates_of_the_users_own_commands_are_those_of_the_code() -> None:
    client = SlurmClient.__new__(SlurmClient)
    SlurmClient.__init__(client, None, _Location(), 1.0)  # type: ignore[arg-type]
    page = (DOCS / "admin" / "load.md").read_text("utf-8")
    assert f"{burst_of(client.people)}, then one in {1 / client.people._rate:.0f} s" in page
    assert f"`scancel` {burst_of(client.cancels)}, then two a second" in page
    assert client.cancels._rate == 2
    assert f"{burst_of(client.singles)}, then one in {1 / client.singles._rate:.0f} s" in page


class _Location:
    environment: dict[str, str] = {}  # noqa: RUF012
