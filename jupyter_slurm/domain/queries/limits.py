"""Limits on a user's jobs together, and their current use.

If limits are enforced, the controller counts the use itself (``scontrol show assoc_mgr``: one request, and the only
answer with limits and use of the same moment). Otherwise no limits exist, and the queue gives the use.

Sources: scontrol(1) ``show assoc_mgr``; the resource limits guide of Slurm.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from jupyter_slurm.domain.queries.all_jobs import job_gpus
from jupyter_slurm.domain.queries.associations import Qos
from jupyter_slurm.domain.queries.output_frames import decode, framed_records, long_format
from jupyter_slurm.domain.slurm_values import parse_count, parse_tres

__all__ = ["Limit", "Limits", "limits_argv", "parse_limits", "parse_use", "use_argv"]

_MIB: Final = 1 << 20

_ASSOCIATION = re.compile(
    r"ClusterName=(?P<cluster>[^=]*) Account=(?P<account>[^=]*) UserName=(?P<user>[^=]*) "
    r"Partition=(?P<partition>[^=]*) Priority=(?P<rest>.*)"
)
_QOS = re.compile(r"QOS=(?P<qos>[^=(]*)(?:\(\d+\))? UsageRaw=(?P<rest>.*)", re.ASCII)
_USER = re.compile(r"(?P<name>.*)\((?P<uid>\d+)\)", re.ASCII)
_COUNTED = re.compile(r"(?<![^,])([^=,]+)=(\d+|N)?\((\d+)(?:\.\d+)?\)", re.ASCII)
_USE_FIELDS: Final = (
    *("jobid", "tres-alloc", "numnodes", "numtasks"),
    *("tres-per-job", "tres-per-node", "tres-per-task"),
)
_JOBS: Final = {"MaxJobs": "jobs", "GrpJobs": "jobs", "MaxSubmitJobs": "submitted", "GrpSubmitJobs": "submitted"}


@dataclass(frozen=True)
class Limit:
    """A limit on the use of resources.

    Parameters
    ----------
    scope : str
        Use that counts: ``user`` (the user's with an account), ``account`` (of all its users), ``qos`` (of all its
        users), ``qos-user`` (the user's in the QOS).
    name : str
        Name of the account or the QOS.
    kind : str
        ``in-use`` (at the same time), ``job`` (by one job), ``minutes`` (in total), ``jobs`` (running), ``submitted``.
    resource : str
        Slurm's name of a trackable resource; empty for jobs.
    maximum : int
        Memory in bytes.
    used : int, optional
        ``None``: the limit is not cumulative.
    partition : str
        Empty: any partition.
    """

    scope: str
    name: str
    kind: str
    resource: str
    maximum: int
    used: int | None = None
    partition: str = ""


@dataclass(frozen=True)
class Limits:
    """All limits that apply to a user, and the current use of the user's jobs: ``jobs``, and TRES (memory in bytes)."""

    limits: tuple[Limit, ...] = ()
    use: Mapping[str, int] = field(default_factory=dict)


def use_argv(mark: str) -> list[str]:
    """Return the query for the resources of the user's running jobs (REQUEST_JOB_USER_INFO, REQUEST_PARTITION_INFO)."""
    question = ["squeue", "--me", "--local", "--all", "--noheader", "--states=running"]
    return [*question, f"--Format={long_format(_USE_FIELDS, mark)}"]


def parse_use(output: bytes, mark: str) -> dict[str, int]:
    """Parse the answer to :func:`use_argv`.

    Raises
    ------
    ParseError
        The answer is incomplete.
    """
    rows = framed_records(output, mark, len(_USE_FIELDS))
    total = Counter(jobs=len(rows))
    for row in rows:
        fields = dict(zip(_USE_FIELDS, row, strict=True))
        tres = parse_tres(fields["tres-alloc"])
        total.update(tres if "gres/gpu" in tres else {**tres, **_requested_gpus(fields)})
    return dict(total)


def fold_arrays(use: Mapping[str, int], further_tasks: int) -> dict[str, int]:
    """Return a use in which an array is one of the jobs; ``tasks`` is Slurm's count: each running array task is a job.

    Parameters
    ----------
    use : mapping
        Slurm's count.
    further_tasks : int
        Running array tasks beyond one for each array. They may be seconds older or newer than the use.
    """
    tasks = use.get("jobs", 0)
    return {**use, "jobs": max(min(tasks, 1), tasks - further_tasks), "tasks": tasks}


def _requested_gpus(fields: Mapping[str, str]) -> dict[str, int]:
    """Return the GPUs that a job requested: without accounting, Slurm counts no GPUs among the allocated resources."""
    gpus = job_gpus(fields)
    typed = {f"gres/gpu:{kind}": count for kind, count in gpus.items() if kind}
    return {"gres/gpu": sum(gpus.values()), **typed} if gpus else {}


def limits_argv(user: str) -> list[str]:
    """Return the query for limits and use of a user, the parent accounts and all QOS (REQUEST_ASSOC_MGR_INFO)."""
    return ["scontrol", "--local", "--oneliner", "show", "assoc_mgr", f"users={user}", "flags=assoc,qos"]


def parse_limits(output: bytes, user: str, cluster: str, qos_table: Iterable[Qos], usable: Iterable[str]) -> Limits:
    """Parse the answer to :func:`limits_argv`.

    Parameters
    ----------
    output : bytes
    user, cluster : str
        User and cluster of the associations.
    qos_table : iterable of Qos
        All QOS. If nobody uses a QOS now, the controller does not report its limits for each user.
    usable : iterable of str
        Names of the QOS whose limits hold for this user: those of the associations and of partitions.
    """
    found: list[Limit] = []
    use, uid, mine = Counter[str](), "", set(usable)
    told: set[str] = set()
    for line in decode(output).split("\n"):
        if (one := _ASSOCIATION.fullmatch(line.strip())) and one["cluster"] == cluster:
            owner = _USER.fullmatch(one["user"])
            if owner and owner["name"] != user:
                continue
            uid = owner["uid"] if owner else uid
            words = _key_values(one["rest"])
            if owner:
                use.update({name: used for name, _, used in _tres(words.get("GrpTRES", ""))})
                use["jobs"] += sum(used for _, _, used in _counted(f"jobs={words.get('GrpJobs', '')}"))
            found += _limits("user" if owner else "account", one["account"], words, one["partition"])
        elif (one := _QOS.fullmatch(line.strip())) and one["qos"] in mine:
            # "User Limits= 1000={MaxJobsPU=…}" comes last; newer versions write name(1000).
            head, _, users = one["rest"].partition(" User Limits=")
            found += _limits("qos", one["qos"], _key_values(head.partition(" Account Limits=")[0]), "")
            own = re.search(rf"(?:^| )(?:[^ {{}}=]*\()?{uid or '-'}\)?=\{{([^{{}}]*)\}}", users)
            if own:
                told.add(one["qos"])
                found += _limits("qos-user", one["qos"], _user_limits(_key_values(own[1])), "")
    for qos in qos_table:
        if qos.name in mine - told:
            found += [Limit("qos-user", qos.name, "in-use", *item, 0) for item in qos.tres_of_user.items()]
            if qos.jobs_of_user is not None:
                found.append(Limit("qos-user", qos.name, "jobs", "", qos.jobs_of_user, 0))
    return Limits(tuple(found), {name: number for name, number in use.items() if number})


def _key_values(text: str) -> dict[str, str]:
    return dict(re.findall(r"(?:^| )([A-Za-z]+)=(\S*)", text))


def _user_limits(keywords: Mapping[str, str]) -> dict[str, str]:
    """Return a user's limits in a QOS under their names in other answers."""
    names = {"MaxTRESPU": "GrpTRES", "MaxJobsPU": "MaxJobs", "MaxSubmitJobsPU": "MaxSubmitJobs"}
    return {names[name]: value for name, value in keywords.items() if name in names}


def _limits(scope: str, name: str, keywords: Mapping[str, str], partition: str) -> Iterator[Limit]:
    for key, kind in (("GrpTRES", "in-use"), ("GrpTRESMins", "minutes")):
        for resource, most, used in _tres(keywords.get(key, ""), in_bytes=kind == "in-use"):
            if most is not None:
                yield Limit(scope, name, kind, resource, most, used, partition)
    for resource, most in parse_tres(keywords.get("MaxTRESPJ", "")).items():
        yield Limit(scope, name, "job", resource, most, None, partition)
    for key, kind in _JOBS.items():
        for _, most, used in _counted(f"jobs={keywords.get(key, '')}"):
            if most is not None:
                yield Limit(scope, name, kind, "", most, used, partition)


def _tres(text: str, *, in_bytes: bool = True) -> Iterator[tuple[str, int | None, int]]:
    """Return resource, limit and use of ``cpu=N(3),mem=1024(512)``, in which memory is in MiB."""
    for name, most, used in _counted(text):
        factor = _MIB if name == "mem" and in_bytes else 1
        yield name, None if most is None else most * factor, used * factor


def _counted(text: str) -> Iterator[tuple[str, int | None, int]]:
    for name, most, used in _COUNTED.findall(text):
        yield name, None if most in ("N", "") else parse_count(most), parse_count(used) or 0
