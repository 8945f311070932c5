"""Commands ``jupyter slurm jobs|show|report|cancel|bring|hold|release|requeue|suspend|resume``."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from jupyter_slurm.cli.arguments.cluster import add_cluster_option, requested_cluster
from jupyter_slurm.cli.terminal import for_terminal

if TYPE_CHECKING:
    from jupyter_slurm.client.clusters.cluster import Cluster
    from jupyter_slurm.domain import api_types as api

__all__ = ["add_parser", "run"]

_TIMES = ("submit_time", "start_time", "end_time", "estimated_start", "state_since", "unknown_since")
_ACTIONS = ("hold", "release", "requeue", "suspend", "resume")
_JOB_HELP = "job ID (12, 12_3) or key of a submission"
_ALL: dict[str, str | int] = {"state": "all"}
# Finished jobs are requested to find those with missing results.
_RECENT: dict[str, str | int] = {"state": "all", "finished": 200}
_COLUMNS = ("JOB", "STATE", "TASKS", "NAME", "PARTITION", "NODES", "SUBMITTED", "REASON")


def add_parser(subparsers: Any) -> None:
    """Add the subcommands."""
    jobs = subparsers.add_parser("jobs", description="List your jobs.")
    jobs.add_argument("-a", "--all", action="store_true", help="list finished jobs, too")
    jobs.add_argument("--json", action="store_true", help="print JSON")
    show = subparsers.add_parser("show", description="Print the details of a job, its script or its record.")
    show.add_argument("--script", action="store_true", help="print the batch script, byte for byte")
    show.add_argument("--source", action="store_true", help="print the Python cell as it was typed")
    show.add_argument(
        "--record", action="store_true", help="print the submission: options, environment, versions and commit"
    )
    show.add_argument("--json", action="store_true", help="print JSON")
    report = subparsers.add_parser("report", description="Compare the resources that a job used with its allocation.")
    report.add_argument("--json", action="store_true", help="print JSON")
    cancel = subparsers.add_parser("cancel", description="Cancel a job, or send it a signal.")
    cancel.add_argument("-s", "--signal", metavar="SIGNAL", help="send this signal (name or number) instead")
    copy_back = subparsers.add_parser(
        "bring", description="Copy back the new files of a job from its copies of directories (stage=)."
    )
    copy_back.add_argument(
        "--also",
        metavar="FILE",
        nargs="+",
        default=[],
        help="copy these files, too, although programs of this computer run them by themselves",
    )
    for parser in (show, report, cancel, copy_back):
        parser.add_argument("job", metavar="JOB", help=_JOB_HELP)
    hold = subparsers.add_parser("hold", description="Keep pending jobs from starting.")
    release = subparsers.add_parser("release", description="Allow held jobs to start.")
    requeue = subparsers.add_parser("requeue", description="Put jobs back into the queue. They start again.")
    requeue.add_argument("--hold", action="store_true", help="keep them from starting until they are released")
    suspend = subparsers.add_parser(
        "suspend", description="Stop the processes of running jobs. Most sites allow this only to operators."
    )
    resume = subparsers.add_parser("resume", description="Let suspended jobs continue.")
    actions = (hold, release, requeue, suspend, resume)
    for parser in actions:
        parser.add_argument("jobs", metavar="JOB", nargs="+", help=_JOB_HELP)
    for parser in (jobs, show, report, cancel, copy_back, *actions):
        add_cluster_option(parser)


def run(args: argparse.Namespace) -> int:
    """Run one of the subcommands."""
    cluster = requested_cluster(args)
    if args.command in _ACTIONS:
        return _act(cluster, args)
    does = {"show": _show, "report": _report, "cancel": _cancel, "bring": _copy_back}
    if args.command == "jobs":
        return _jobs(cluster, args)
    from jupyter_slurm.client.clusters.other_clusters import naming_others

    with naming_others(cluster, args.job):
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
        print("No jobs." if args.all else "No active jobs. Add --all to list finished jobs.")
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
    reason = f"Results missing: jupyter slurm bring {values[0]}" if is_copy_back_abandoned(job) else job.get("reason")
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
        from jupyter_slurm.client.jobs.record_and_resubmission import Record

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
        print(f"Job {number} had finished before: {known['state']}.{' No signal was sent.' if args.signal else ''}")
        return 1 if args.signal else 0
    job = cluster.client.post(cluster.path("jobs", args.job, "cancel"), json={"signal": args.signal})
    done = f"Sent {args.signal} to" if args.signal else "Cancelled"
    print(f"{done} job {job['id'] or job['key']}: {job['state']}.")
    return 0


def _copy_back(cluster: Cluster, args: argparse.Namespace) -> int:
    from jupyter_slurm.client.jobs.actions import copy_back
    from jupyter_slurm.client.render.staging_card import stage_facts, stage_notes
    from jupyter_slurm.client.render.terminal import printable

    job = copy_back(cluster, args.job, args.also)
    if (stage := job["stage"]) and not stage["error"]:
        print(printable(f"{job['id'] or job['key']}: {', '.join([*stage_facts(job), *stage_notes(job)])}"))
        return 0
    print(for_terminal(printable(" ".join(stage_notes(job)))), file=sys.stderr)
    return 1


def _act(cluster: Cluster, args: argparse.Namespace) -> int:
    from jupyter_slurm.client.clusters.other_clusters import other_locations
    from jupyter_slurm.client.jobs.actions import act
    from jupyter_slurm.client.render.terminal import printable
    from jupyter_slurm.domain.queries.job_actions import ACTION_RESULTS
    from jupyter_slurm.errors import ConfigError, JobNotFound, from_problem

    failed = 0
    action = "requeuehold" if args.command == "requeue" and args.hold else args.command
    for answer in act(cluster, action, args.jobs):
        if answer["error"] is None:
            state = answer["now"] and answer["now"]["state"]
            print(f"Job {answer['job']} was {ACTION_RESULTS[action]}: {state}.")
            continue
        failed += 1
        sys.stdout.flush()
        error = from_problem(answer["error"])
        if isinstance(error, (JobNotFound, ConfigError)):
            error.hint = other_locations(cluster, answer["job"]) or error.hint
        print(for_terminal(printable(f"{answer['job']}: {error}")), file=sys.stderr)
    return 1 if failed else 0


def _as_text(name: str, value: Any) -> str:
    from jupyter_slurm.client.render.sentences import sentences
    from jupyter_slurm.domain.slurm_values import NO_LIMIT_S, format_time_limit

    if name in _TIMES:
        return _format_time(value)
    if name == "error" and isinstance(value, dict):
        return for_terminal(sentences(value.get("detail"), value.get("hint")))
    if name == "argv":
        return shlex.join(value)
    if name == "time_limit":
        return format_time_limit(None if value >= NO_LIMIT_S else value)
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
