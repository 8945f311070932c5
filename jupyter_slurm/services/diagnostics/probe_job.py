"""Probe job: a short job that reports on a node: its Python, home directory and GPUs."""

from __future__ import annotations

import asyncio
import contextlib
import re
import secrets
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from jupyter_slurm.domain.advice.reasons import explain
from jupyter_slurm.domain.findings import Finding
from jupyter_slurm.domain.ids import JobId
from jupyter_slurm.domain.records import JobRecord
from jupyter_slurm.domain.scripts.script import quote_argv
from jupyter_slurm.errors import CommandError, ControllerError, JobError, JobFailed, SlurmError
from jupyter_slurm.services.slurm.client import SlurmClient, decode_output
from jupyter_slurm.services.slurm.location import ClusterLocation

__all__ = ["TIME_LIMIT_MINUTES", "ProbeReport", "node_findings", "run_probe", "submit"]

TIME_LIMIT_MINUTES: Final = 5  # minutes at most
_CHECK_INTERVAL_S: Final = 1.0  # seconds
_CONTROLLER_INTERVAL_S: Final = 10.0  # seconds between two requests to the controller
_LINGER_S: Final = 120  # seconds that the job stays after its report, so that its node accepts a login
_MAX_REPORT_BYTES: Final = 100_000  # bytes of a report
_OLDEST_PYTHON: Final = (3, 8)
_PYTHONS: Final = " ".join(["python3", *(f"python3.{minor}" for minor in range(8, 16))])
_MODULES: Final = ("IPython", "cloudpickle", "jupyter_server", "notebook", "jupyterlab")
_PYTHON_PROGRAM: Final = f"""
import sys
print("python %d.%d.%d %s" % (sys.version_info[:3] + (sys.executable,)))
from importlib import metadata
for name in {_MODULES!r}:
    try:
        print("module", name, metadata.version(name))
    except Exception:
        pass
"""
# Values that are not inserted by name are quoted by `quote_argv`. The report appears in one step, complete. The job
# then stays for a while: a test of ssh to the node needs a running job on it.
_SCRIPT: Final = r"""#!/bin/sh
#SBATCH --job-name=jupyter-slurm-doctor
umask 077
{
  echo "node ${SLURMD_NODENAME:-?}"
  echo "host $(uname -n)"
  if [ -d "$HOME" ] && [ -w "$HOME" ]; then echo "home yes $HOME"; else echo "home no $HOME"; fi
  for name in $pythons; do
    path=$(command -v "$name") && echo "found $name $path"
  done
  "$python" -c "$asked"
  command -v nvidia-smi >/dev/null 2>&1 && nvidia-smi -L | sed 's/^/gpu /'
  echo "given ${CUDA_VISIBLE_DEVICES-${ROCR_VISIBLE_DEVICES-}}"
} >"$report.part" 2>/dev/null
mv "$report.part" "$report" || exit 77
left=$lingers
while [ -e "$report" ] && [ "$left" -gt 0 ]; do sleep 1; left=$((left - 1)); done
"""


@dataclass
class ProbeReport:
    """Report of the probe job.

    Attributes
    ----------
    job : JobId
    node : str
        In Slurm's words.
    waited : float
        Seconds from submission to report.
    lines : dict
        Findings by kind.
    """

    job: JobId
    node: str
    waited: float
    lines: dict[str, list[str]] = field(default_factory=dict)


async def submit(client: SlurmClient, report: str, options: Sequence[str], python: str = "python3") -> JobId:
    """Submit the job; the user's own options take precedence.

    Raises
    ------
    CommandError
        sbatch failed.
    """
    names = {
        "pythons": _PYTHONS,
        "asked": _PYTHON_PROGRAM,
        "report": report,
        "lingers": str(_LINGER_S),
        "python": python,
    }
    head, _, body = _SCRIPT.partition("umask 077")
    settings = "".join(f"{name}={quote_argv([value])}\n" for name, value in names.items())
    argv = [
        "sbatch",
        "--parsable",
        "--ntasks=1",
        f"--time={TIME_LIMIT_MINUTES}",
        "--output=/dev/null",
        "--chdir=/",
        *options,
    ]
    script = f"{head}{settings}umask 077{body}".encode()
    done = await client.transport.run(argv, stdin=script, context=client.submission_context({}))
    try:
        said = decode_output(client.check_result(argv, done).stdout)
    except CommandError as error:
        refused = error.message.removeprefix("sbatch: error: ")
        raise CommandError(f"sbatch refused the test job: {refused}", hint=_refusal_hint(refused)) from None
    found = re.search(r"^(\d+)(?:;\S*)?$", said, re.MULTILINE)  # a wrapper may print more
    if found is None:
        raise CommandError(
            f"sbatch printed no job ID: {said.strip()[:200]}",
            hint="If `sbatch` is a wrapper of the site, set `prelude` under [shell] in the profile so "
            "that the real sbatch comes first on PATH.",
        )
    return JobId.parse(found[1])


def _refusal_hint(message: str) -> str:
    """Return how to give the test job what the cluster requires."""
    low = message.lower()
    kinds = (
        ("account", "-A ACCOUNT", " `sacctmgr show associations user=$USER` lists your accounts."),
        ("qos", "--qos=NAME", " `sacctmgr show associations user=$USER` lists those that you may use."),
        ("partition", "-p PARTITION", " `sinfo -s` lists the partitions."),
        ("generic resource", "--gpus=1", " `sinfo -o '%P %G'` lists the GPUs."),
        ("time limit", "--time=5", " `sinfo -s` lists the limits."),
    )
    option, more = next(
        ((option, more) for sign, option, more in kinds if sign in low), ("-A ACCOUNT -p PARTITION", "")
    )
    return f"Give the test job the options that the cluster requires: `--sbatch='{option}'`.{more}"


@contextlib.asynccontextmanager
async def run_probe(
    client: SlurmClient,
    location: ClusterLocation,
    options: Sequence[str],
    *,
    python: str = "python3",
    timeout: float = 300.0,
    notify: Callable[[str], None] = lambda text: None,
) -> AsyncIterator[ProbeReport]:
    """Submit the probe job, wait for its report and yield it; cancel the job at the end of the block.

    Parameters
    ----------
    client, location
        Services of the cluster.
    options : sequence of str
        Options of sbatch.
    python : str
        Interpreter of Python cells on the cluster.
    timeout : float
        Seconds to wait at most.
    notify : callable
        Receives the pending reason.

    Raises
    ------
    CommandError
        sbatch failed.
    JobError
        The job did not start in time, or ended without a report.
    """
    report = f"{location.folder}/.doctor-{secrets.token_hex(8)}"
    begun = time.monotonic()
    job = await submit(client, report, options, python)
    try:
        notify(f"job {job} is submitted")
        raw = await _wait(client, job, report, timeout, notify)
        lines: dict[str, list[str]] = {}
        for line in decode_output(raw).splitlines():
            kind, _, rest = line.partition(" ")
            lines.setdefault(kind, []).append(rest)
        yield ProbeReport(job, lines.get("node", ["?"])[0], time.monotonic() - begun, lines)
    finally:
        with contextlib.suppress(SlurmError):
            await client.act(["scancel", str(job)])
        for path in (report, f"{report}.part"):
            await client.transport.remove(path)


async def _wait(client: SlurmClient, job: JobId, report: str, timeout: float, notify: Callable[[str], None]) -> bytes:
    begun, asked, said, record = time.monotonic(), time.monotonic(), "", None
    while True:
        # Opening the directory refreshes its content: NFS caches the absence of a file.
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            await client.transport.list_dir(report.rpartition("/")[0])
            return await client.transport.read(report, 0, _MAX_REPORT_BYTES)
        now = time.monotonic()
        if now - asked >= _CONTROLLER_INTERVAL_S:
            asked = now
            record = await _poll_job(client, job, record)
            words = explain(record.reason, record)[0] if record is not None and record.state.is_pending else ""
            if record is not None and record.state.is_finished:
                raise _silent(job, record, report)
            if words and words != said:
                said = words
                notify(words)
        if now - begun > timeout:
            raise JobError(
                f"Job {job} did not start within {timeout / 60:g} minutes, and was cancelled. {said}".strip(),
                hint="Use options with which it starts sooner: `jupyter slurm doctor NAME --sbatch='-p PARTITION'`.",
            )
        await asyncio.sleep(_CHECK_INTERVAL_S)


async def _poll_job(client: SlurmClient, job: JobId, before: JobRecord | None) -> JobRecord | None:
    try:
        return next((record for record in await client.queue() if record.id == job), before)
    except ControllerError:  # reported by the check of the controller
        return before


def _silent(job: JobId, record: JobRecord, report: str) -> SlurmError:
    folder = report.rpartition("/")[0]
    return JobFailed(
        f"Job {job} ended on {record.nodes or 'no node'} ({record.state.name}) and wrote no result to {folder}.",
        hint="Set `job_root` under [slurm] in the profile to a directory that all nodes see.",
    )


def node_findings(report: ProbeReport) -> list[Finding]:
    """Report the findings of the job."""
    node, lines = report.node, report.lines
    findings = [
        Finding("ok", "test job", f"{report.job} answered on {node} {report.waited:.0f} s after its submission")
    ]
    has_home, _, home = (lines.get("home") or ["no ?"])[0].partition(" ")
    if has_home == "yes":
        findings.append(Finding("ok", f"{node}, home", f"{home} exists on the node, and so does the job folder"))
    else:
        todo = (
            "Cells run in the home directory, unless the profile or `--chdir` names another "
            "directory. Ask the site which directory to use."
        )
        findings.append(
            Finding("warning", f"{node}, home", f"{home} does not exist on the node, or cannot be written", todo)
        )
    findings.append(_python(node, lines))
    gpus = [re.sub(r"^GPU \d+: | \(UUID:.*", "", line) for line in lines.get("gpu", [])]
    given = (lines.get("given") or [""])[0]
    if gpus or given:
        names = ", ".join(f"{gpus.count(name)} x {name}" for name in dict.fromkeys(gpus)) or "the driver shows none"
        findings.append(Finding("ok", f"{node}, GPUs", f"{names}; given to the job: {given or 'not said'}"))
    else:
        said = "none in this job; request one with --sbatch='--gpus 1'"
        findings.append(Finding("ok", f"{node}, GPUs", said))
    return findings


def _python(node: str, lines: dict[str, list[str]]) -> Finding:
    about = f"{node}, Python"
    others = [f"{name} ({path})" for name, _, path in (line.partition(" ") for line in lines.get("found", []))]
    version, _, path = (lines.get("python") or [""])[0].partition(" ")
    number = re.match(r"(\d+)\.(\d+)", version)
    name_one = (
        "Name a Python with `%%sbatch python=PATH`, or load a module with `prelude` in the "
        "profile. Scripts need no Python."
    )
    if number is None:
        there = f"; there are {', '.join(others)}" if others else ""
        return Finding("warning", about, f"the Python of cells does not run on the node{there}", name_one)
    if (int(number[1]), int(number[2])) < _OLDEST_PYTHON:
        there = f"; there are {', '.join(others[1:])}" if others[1:] else ""
        return Finding("warning", about, f"{path} is {version}, and cells in Python need 3.8{there}", name_one)
    modules = dict(line.split(" ", 1) for line in lines.get("module", []) if " " in line)
    has = ", ".join(f"{name} {modules[name]}" for name in modules) or "none of IPython, cloudpickle, Jupyter"
    more = [other for other in others if not other.startswith("python3 ")]
    return Finding("ok", about, f"{version} ({path}), with {has}" + (f"; also {', '.join(more)}" if more else ""))
