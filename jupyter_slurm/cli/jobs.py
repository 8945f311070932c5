"""Commands ``jupyter slurm jobs|show|report|cancel|bring|hold|release|requeue``."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from jupyter_slurm.cli.terminal import for_terminal

if TYPE_CHECKING:
    from jupyter_slurm.client.clusters.cluster import Cluster
    from jupyter_slurm.domain import api_types as api

__all__ = ["add_parser", "run"]

_TIMES = ("submit_time", "start_time", "end_time", "estimated_start", "state_since", "unknown_since")
_ACTION_HELP = {
    "hold": "keep jobs that wait from starting",
    "release": "let held jobs start",
    "requeue": "put jobs back into the queue: they begin anew",
}
_ALL: dict[str, str | int] = {"state": "all"}
# Finished jobs are requested to find those with missing results.
_RECENT: dict[str, str | int] = {"state": "all", "finished": 200}
_COLUMNS = ("JOB", "STATE", "TASKS", "NAME", "PARTITION", "NODES", "SUBMITTED", "REASON")


def add_parser(subparsers: Any) -> None:
    """Add the subcommands."""
    jobs = subparsers.add_parser("jobs", help="list your jobs")
    jobs.add_argument("-a", "--all", action="store_true", help="also those that are over")
    jobs.add_argument("--json", action="store_true", help="for programs")
    show = subparsers.add_parser("show", help="show what is known of a job, or its script")
    show.add_argument("--script", action="store_true", help="print the batch script, byte for byte")
    show.add_argument("--source", action="store_true", help="print the Python cell, as it was typed")
    show.add_argument(
        "--record", action="store_true", help="what was submitted: options, environment, versions, commit"
    )
    show.add_argument("--json", action="store_true", help="for programs")
    report = subparsers.add_parser("report", help="what a job used of what it had")
    report.add_argument("--json", action="store_true", help="for programs")
    cancel = subparsers.add_parser("cancel", help="cancel a job, or send it a signal")
    cancel.add_argument("-s", "--signal", metavar="SIGNAL", help="send this signal instead (name or number)")
    copy_back = subparsers.add_parser("bring", help="bring back what a job has left in the folders of stage=")
    for parser in (show, report, cancel, copy_back):
        parser.add_argument("job", metavar="JOB", help="Slurm id (12, 12_3) or key of a submission")
    several = [subparsers.add_parser(act, help=about) for act, about in _ACTION_HELP.items()]
    for parser in several:
        parser.add_argument("jobs", metavar="JOB", nargs="+", help="Slurm id (12, 12_3) or key of a submission")
    for parser in (jobs, show, report, cancel, copy_back, *several):
        parser.add_argument("--cluster", metavar="CLUSTER", help="name of a site profile, or local")


def run(args: argparse.Namespace) -> int:
    """Run one of the subcommands."""
    from jupyter_slurm.client.clusters.cluster import current, use

    cluster = use(args.cluster) if args.cluster else current()
    if args.command in _ACTION_HELP:
        return _act(cluster, args)
    does = {"jobs": _jobs, "show": _show, "report": _report, "cancel": _cancel, "bring": _copy_back}
    return does[args.command](cluster, args)


def _jobs(cluster: Cluster, args: argparse.Namespace) -> int:
    from jupyter_slurm.client.job_search import queue_trouble
    from jupyter_slurm.client.render.staging_card import is_copy_back_abandoned
    from jupyter_slurm.client.render.terminal import printable

    jobs = cluster.client.get(cluster.path("jobs"), params=_ALL if args.all else _RECENT)
    if not args.all:
        jobs = [job for job in jobs if not job.get("finished") or is_copy_back_abandoned(job)]
    trouble = queue_trouble(cluster)
    if args.json:
        print(json.dumps(jobs, indent=2))
    elif jobs:
        rows = [_COLUMNS, *(_row(job) for job in jobs)]
        has_tasks = any(row[2] for row in rows[1:])
        _print_table(rows if has_tasks else [[*row[:2], *row[3:]] for row in rows])
    elif not trouble:
        print("No jobs." if args.all else "No jobs that are not over; --all shows the others.")
    if trouble:
        sys.stdout.flush()
        print(for_terminal(printable(trouble)), file=sys.stderr)
    return 1 if trouble else 0


def _row(job: api.Job) -> list[str]:
    from jupyter_slurm.client.render.allocation_card import job_name
    from jupyter_slurm.client.render.job_card import tally
    from jupyter_slurm.client.render.staging_card import is_copy_back_abandoned

    state = str(job["state"]) + ("" if job["known"] else "?")
    submitted = _format_time(at) if (at := job.get("submit_time")) else ""
    values = (
        job["id"] or job["key"],
        state,
        tally(job),
        job_name(job),
        job.get("partition"),
        job.get("nodes"),
        submitted,
    )
    reason = f"not all came back: jupyter slurm bring {values[0]}" if is_copy_back_abandoned(job) else job.get("reason")
    return [str(value or "") for value in (*values, reason)]


def _show(cluster: Cluster, args: argparse.Namespace) -> int:
    if args.script or args.source:
        text, _ = cluster.client.get_bytes(cluster.path("jobs", args.job, "script" if args.script else "source"))
        sys.stdout.buffer.write(text)
        sys.stdout.buffer.flush()
        return 0
    job = cluster.client.get(cluster.path("jobs", args.job, *(["record"] if args.record else [])))
    if args.json:
        print(json.dumps(job, indent=2))
    elif args.record:
        from jupyter_slurm.client.jobs.record import Record

        print(Record(job))
    else:
        _print_table([[name.replace("_", " "), _as_text(name, value)] for name, value in job.items() if value])
    return 0


def _report(cluster: Cluster, args: argparse.Namespace) -> int:
    from jupyter_slurm.client.jobs.report import Report

    report = cluster.client.get(cluster.path("jobs", args.job, "report"))
    print(json.dumps(report, indent=2) if args.json else Report(report))
    return 0


def _cancel(cluster: Cluster, args: argparse.Namespace) -> int:
    known = cluster.client.get(cluster.path("jobs", args.job))
    number = known["id"] or known["key"]
    if known.get("finished"):
        print(f"{number} was over already: {known['state']}" + ("; nothing was sent to it" if args.signal else ""))
        return 1 if args.signal else 0
    job = cluster.client.post(cluster.path("jobs", args.job, "cancel"), json={"signal": args.signal})
    done = f"{args.signal} was sent to" if args.signal else "Cancelled"
    print(f"{done} {job['id'] or job['key']}: {job['state']}")
    return 0


def _copy_back(cluster: Cluster, args: argparse.Namespace) -> int:
    from jupyter_slurm.client.jobs.actions import copy_back
    from jupyter_slurm.client.render.staging_card import stage_facts, stage_notes
    from jupyter_slurm.client.render.terminal import printable

    job = copy_back(cluster, args.job)
    if (stage := job["stage"]) and not stage["error"]:
        print(printable(f"{job['id'] or job['key']}: {', '.join([*stage_facts(job), *stage_notes(job)])}"))
        return 0
    print(for_terminal(printable(" ".join(stage_notes(job)))), file=sys.stderr)
    return 1


def _act(cluster: Cluster, args: argparse.Namespace) -> int:
    from jupyter_slurm.client.jobs.actions import act
    from jupyter_slurm.client.render.terminal import printable
    from jupyter_slurm.domain.queries.job_actions import ACTION_RESULTS
    from jupyter_slurm.errors import from_problem

    failed = 0
    for answer in act(cluster, args.command, args.jobs):
        if answer["error"] is None:
            state = answer["now"] and answer["now"]["state"]
            print(f"{answer['job']} was {ACTION_RESULTS[args.command]}: {state}")
            continue
        failed += 1
        sys.stdout.flush()
        print(for_terminal(printable(f"{answer['job']}: {from_problem(answer['error'])}")), file=sys.stderr)
    return 1 if failed else 0


def _as_text(name: str, value: Any) -> str:
    from jupyter_slurm.client.render.job_card import duration, sentences

    if name in _TIMES:
        return _format_time(value)
    if name == "error" and isinstance(value, dict):
        return for_terminal(sentences(value.get("detail"), value.get("hint")))
    if name == "argv":
        return shlex.join(value)
    if name == "time_limit":
        return duration(value)
    if name == "session":
        return f"{value['state']} {value['url'] or ''}".strip()
    if isinstance(value, dict):
        return ", ".join(f"{number} {kind}" for kind, number in value.items())
    return "; ".join(map(str, value)) if isinstance(value, list) else str(value)


def _format_time(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


def _print_table(rows: Sequence[Sequence[str]]) -> None:
    from jupyter_slurm.client.render.terminal import printable

    # Names and reasons are untrusted: no escape sequence reaches the terminal, no newline fakes a row.
    clean = [[printable(cell).replace("\n", " ") for cell in row] for row in rows]
    widths = [max(len(row[index]) for row in clean) for index in range(len(clean[0]))]
    for row in clean:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
