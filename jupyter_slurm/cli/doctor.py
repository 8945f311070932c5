"""Command ``jupyter slurm doctor``: diagnosis of the connection to a cluster, up to the Python of its cells."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

from jupyter_slurm.cli.arguments.cluster import add_cluster, first_cluster
from jupyter_slurm.cli.terminal import add_command
from jupyter_slurm.domain.findings import Finding
from jupyter_slurm.errors import ConfigError, SlurmError, UsageError

if TYPE_CHECKING:
    from jupyter_slurm.agent.client.agent_client import AgentClient
    from jupyter_slurm.config import Settings
    from jupyter_slurm.domain import api_types as api
    from jupyter_slurm.domain.findings import Status

__all__ = ["add_parser", "examine", "run"]


def add_parser(subparsers: Any) -> None:
    """Add the subcommand."""
    doctor = add_command(
        subparsers,
        "doctor",
        description="Check the connection to a cluster step by step: each host on the route, the login, the shell, "
        "Slurm, and the Python of cells. Each finding has an instruction if something is wrong. If there is no "
        "connection, doctor logs in, and notebooks use that connection. The exit code is 1 if a check failed.",
        page="help/troubleshooting",
    )
    add_cluster(doctor)
    doctor.add_argument("--job", action="store_true", help="check a node, too, with a short test job; asks before")
    doctor.add_argument("--submit", action="store_true", help="submit the test job without a question")
    doctor.add_argument(
        "--sbatch", metavar="OPTIONS", help="options of sbatch for the test job: --sbatch='-p PARTITION --gpus 1'"
    )


def run(args: argparse.Namespace) -> int:
    """Run the subcommand."""
    from jupyter_slurm.config import load_settings
    from jupyter_slurm.sites.profile import list_profiles

    settings = load_settings()
    name = first_cluster(args)
    if name is None:
        names = ", ".join(list_profiles(settings.sites))
        hint = f"Clusters: {names}." if names else "Run `jupyter slurm init` to set up a connection to a cluster."
        raise UsageError("Name the cluster to check: `jupyter slurm doctor NAME`.", hint=hint)
    try:
        options = shlex.split(args.sbatch or "")
    except ValueError as error:
        raise UsageError(f"--sbatch: {error}", hint="Close every quote, as in a shell.") from None
    wanted = args.job or args.submit or args.sbatch is not None
    return examine(name, settings, options if wanted else None, sure=args.submit)


def examine(
    name: str,
    settings: Settings,
    options: Sequence[str] | None = None,
    *,
    sure: bool = False,
    arrived: Callable[[AgentClient, Sequence[api.ExaminationKeyless]], None] = lambda client, keyless: None,
) -> int:
    """Diagnose the cluster of a profile, print the findings, and return 1 after a failed check.

    Parameters
    ----------
    name : str
        Name of the profile.
    settings : Settings
        Settings with the profile folders, and the agent.
    options : sequence of str, optional
        Options of sbatch for a test job; None: no test job.
    sure : bool
        Whether the user has agreed before.
    arrived : callable, optional
        Receives the hosts with a login other than by the user's key, as API objects.
    """
    from jupyter_slurm.agent.client.agent_client import AgentClient
    from jupyter_slurm.sites.profile import load_profile

    try:
        profile = load_profile(name, settings.sites)
    except ConfigError as error:
        _show(Finding("failed", "profile", error.message, error.hint))
        return 1
    _show(Finding("ok", "profile", f"{name}, with the login node {profile.host}"))
    with AgentClient.connect(settings) as client:
        client.post("/v1/clusters", json={"profile": name})
        found = _run_checks(client, name, {"job": "none" if options is None else "later"})
        findings = found["findings"]
        if found["keyless"]:
            arrived(client, found["keyless"])
        if options is not None and _may_submit_probe(found) and _agreed(name, options, sure=sure):
            asked: api.ExamineClusterRequest = {"job": "now"}
            if options:
                asked["options"] = list(options)
            findings = [*findings, *_run_checks(client, name, asked)["findings"]]
    statuses = [finding["status"] for finding in findings]
    failed, warnings = statuses.count("failed"), statuses.count("warning")
    print(f"{failed} failed, {_plural(warnings, 'warning')}." if failed or warnings else "All checks passed.")
    return 1 if failed else 0


def _plural(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _run_checks(client: AgentClient, name: str, requested: api.ExamineClusterRequest) -> api.Examination:
    """Run the diagnosis in the agent, and show its findings as they come."""
    from jupyter_slurm.client.login.call import answering

    path, shown = f"/v1/clusters/{name}/doctor", 0

    def show(examination: api.Examination) -> None:
        nonlocal shown
        for finding in examination["findings"][shown:]:
            _show(Finding(cast("Status", finding["status"]), finding["about"], finding["said"], finding["todo"]))
        shown = len(examination["findings"])

    done: api.Examination = answering(
        client,
        name,
        lambda: client.post(path, json=requested, timeout=None),
        on_wait=lambda: show(client.get(path)),
        declines=True,
    )
    show(done)
    return done


def _may_submit_probe(examination: api.Examination) -> bool:
    """Return whether a test job makes sense: the last check was made, and no requirement of a job has failed."""
    needed = {"Slurm", "controller", "job folder"}
    fine = {finding["about"] for finding in examination["findings"] if finding["status"] != "failed"}
    return needed <= fine


def _agreed(name: str, options: Sequence[str], *, sure: bool) -> bool:
    from jupyter_slurm.cli.terminal import yes
    from jupyter_slurm.services.diagnostics.probe_job import TIME_LIMIT_MINUTES

    more = f" with {' '.join(options)}" if options else ""
    what = f"a job with one task{more} and a time limit of {TIME_LIMIT_MINUTES} minutes"
    if sure:
        return True
    try:
        agreed = yes(f"Submit a test job to {name} ({what})?", default=True)
    except SlurmError as error:
        print(f"{error.message} {error.hint}", file=sys.stderr)
        agreed = False
    if not agreed:
        _show(Finding("ok", "test job", "not submitted"))
    return agreed


def _show(finding: Finding) -> None:
    from jupyter_slurm.cli.terminal import for_terminal
    from jupyter_slurm.client.render.terminal import printable

    first, *more = printable(f"{finding.about}: {finding.said}").splitlines()
    lines = [f"{finding.status:<8} {first}", *(f"         {line}" for line in more)]
    lines += [f"         -> {line}" for line in for_terminal(printable(finding.todo)).splitlines()]
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()
