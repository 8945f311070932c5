"""Possible values of an option, and possible words of a command, for completion.

Sources: sbatch(1), squeue(1), scontrol(1), sacctmgr(1), sreport(1).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from jupyter_slurm.domain.states import KNOWN_STATES

__all__ = ["Choices", "choices_for_operand", "choices_for_option", "is_path"]


class Choices(NamedTuple):
    """Sources of possible values.

    Attributes
    ----------
    kinds : tuple of str
        Kinds of names on the cluster.
    fixed : tuple of str
        Fixed words of Slurm.
    separators : str
        Characters after which the next value begins.
    """

    kinds: tuple[str, ...] = ()
    fixed: tuple[str, ...] = ()
    separators: str = ","


_STATES: Final = Choices(fixed=tuple(sorted(KNOWN_STATES)))
_PARTITION, _ACCOUNT, _QOS, _NODE = (
    Choices(("partition",)),
    Choices(("account",)),
    Choices(("qos",)),
    Choices(("node",)),
)
_RESERVATION, _CLUSTER, _FEATURE = (
    Choices(("reservation",)),
    Choices(("cluster",)),
    Choices(("feature",), (), ",&|()[]*"),
)
_GRES, _GPU, _JOB = Choices(("gres",)), Choices(("gpu",)), Choices(("job",))
_NODE_GPU = Choices(("gpu-of-node",))
_ANY_JOB = Choices(("job", "finished"))
_TIME = Choices(("time-limit",), separators="")
_DEPENDENCIES: Final = ("after:", "afterany:", "aftercorr:", "afternotok:", "afterok:", "singleton")
_MAIL: Final = (
    *("ALL", "ARRAY_TASKS", "BEGIN", "END", "FAIL", "INVALID_DEPEND", "NONE", "REQUEUE", "STAGE_OUT"),
    *("TIME_LIMIT", "TIME_LIMIT_50", "TIME_LIMIT_80", "TIME_LIMIT_90"),
)

_SUBMITTING: Final = {
    "account": _ACCOUNT,
    "cluster": _CLUSTER,
    "clusters": _CLUSTER,
    "constraint": _FEATURE,
    "exclude": _NODE,
    "exclusive": Choices(fixed=("mcs", "user")),
    "export": Choices(fixed=("ALL", "NIL", "NONE")),
    "gpus": _GPU,
    "gpus-per-node": _NODE_GPU,
    "gpus-per-socket": _NODE_GPU,
    "gpus-per-task": _NODE_GPU,
    "gres": _GRES,
    "gres-flags": Choices(fixed=("disable-binding", "enforce-binding")),
    "hint": Choices(fixed=("compute_bound", "memory_bound", "multithread", "nomultithread")),
    "jobid": Choices(("allocation", "job")),
    "kill-on-invalid-dep": Choices(fixed=("no", "yes")),
    "mail-type": Choices(fixed=_MAIL),
    "mem": Choices(("memory",), separators=""),
    "nodelist": _NODE,
    "open-mode": Choices(fixed=("append", "truncate")),
    "partition": _PARTITION,
    "prefer": _FEATURE,
    "qos": _QOS,
    "reservation": _RESERVATION,
    "time": _TIME,
    "time-min": _TIME,
}
# Options whose value is a file or directory in every command.
_PATHS: Final = {"batch-script", "bcast", "chdir", "container", "error", "export-file", "input", "multi-prog", "output"}
_SUBMISSION_QUERY_CHOICES: Final = {
    "account": _ACCOUNT,
    "accounts": _ACCOUNT,
    "cluster": _CLUSTER,
    "clusters": _CLUSTER,
    "constraints": _FEATURE,
    "jobs": _JOB,
    "node": _NODE,  # of squeue
    "nodelist": _NODE,
    "nodes": _NODE,  # of sinfo
    "partition": _PARTITION,
    "partitions": _PARTITION,
    "qos": _QOS,
    "reservation": _RESERVATION,
    "state": _STATES,
    "states": _STATES,
    "steps": Choices(("step",)),
}
_NODE_STATES: Final = (
    "ALLOC",
    "COMP",
    "DOWN",
    "DRAIN",
    "DRAINED",
    "DRAINING",
    "FAIL",
    "IDLE",
    "MAINT",
    "MIX",
    "RESERVED",
)
_SPECIAL: Final = {
    ("sacct", "jobs"): _ANY_JOB,
    ("sinfo", "states"): Choices(fixed=_NODE_STATES),
    ("sbcast", "jobid"): Choices(("job", "step")),
    ("sstat", "jobs"): Choices(("job", "step")),
    ("strigger", "jobid"): _JOB,
}

_SCONTROL: Final = (
    *("cancel_reboot", "create", "delete", "help", "hold", "listpids", "ping", "reboot", "release", "requeue"),
    *("requeuehold", "resume", "show", "suspend", "top", "update", "wait_job", "write"),
)
_SHOW_CHOICES: Final = {
    "assoc_mgr": Choices(),
    "config": Choices(),
    "daemons": Choices(),
    "hostlist": Choices(),
    "hostnames": Choices(),
    "job": _JOB,
    "licenses": Choices(),
    "node": _NODE,
    "partition": _PARTITION,
    "reservation": _RESERVATION,
    "steps": Choices(("step", "job")),
    "topology": Choices(),
}
_JOB_ACTIONS: Final = {"hold", "release", "requeue", "requeuehold", "resume", "suspend", "top", "uhold", "wait_job"}
_UPDATE_CHOICES: Final = {
    "jobid": _JOB,
    "nodename": _NODE,
    "partitionname": _PARTITION,
    "reservationname": _RESERVATION,
    "partition": _PARTITION,
    "account": _ACCOUNT,
    "qos": _QOS,
    "features": _FEATURE,
    "reqnodelist": _NODE,
    "excnodelist": _NODE,
}
_JOB_UPDATE_KEYS: Final = (
    *("Account=", "ArrayTaskThrottle=", "Comment=", "Deadline=", "Dependency=", "ExcNodeList=", "Features=", "Gres="),
    *("JobName=", "MailUser=", "MinMemoryNode=", "Nice=", "NumCPUs=", "NumNodes=", "Partition=", "QOS="),
    *("ReqNodeList=", "Requeue=", "ReservationName=", "StartTime=", "TimeLimit="),
)
_ACCOUNTING: Final = {"account": _ACCOUNT, "accounts": _ACCOUNT, "cluster": _CLUSTER, "clusters": _CLUSTER, "qos": _QOS}
_ENTITIES: Final = (
    *("account", "association", "cluster", "configuration", "event", "problem", "qos", "reservation", "resource"),
    *("runawayjobs", "stats", "transaction", "tres", "user", "wckey"),
)
_FIRST: Final = {
    "sacctmgr": ("list", "show"),
    "scontrol": _SCONTROL,
    "sreport": ("cluster", "job", "reservation", "user"),
}


def choices_for_option(command: str, option: str, value: str) -> Choices | None:
    """Return the possible values of an option.

    Parameters
    ----------
    command : str
        ``sbatch``, ``squeue`` …
    option : str
        Its canonical long name.
    value : str
        The value as far as typed.
    """
    if option == "dependency" and command in ("sbatch", "salloc", "srun"):
        last = max(value.rfind(","), value.rfind("?"))
        return (
            Choices(("job",), (), ",?:+") if ":" in value[last + 1 :] else Choices(fixed=_DEPENDENCIES, separators=",?")
        )
    if command in ("sbatch", "salloc", "srun"):
        return _SUBMITTING.get(option)
    return _SPECIAL.get((command, option)) or _SUBMISSION_QUERY_CHOICES.get(option)


def is_path(command: str, option: str) -> bool:
    """Return whether the value of an option, given by its canonical long name, is a file or directory."""
    return command in ("sbatch", "salloc", "srun") and option in _PATHS


def choices_for_operand(command: str, before: Sequence[str], text: str) -> Choices | None:
    """Return the possible words of a command that are not options.

    Parameters
    ----------
    command : str
        ``scancel``, ``scontrol`` …
    before : sequence of str
        The words before it that are not options.
    text : str
        The word as far as typed.
    """
    if command == "scancel":
        return Choices(("job", "step"), (), "")
    if command == "sstat":
        return Choices(("job", "step"))
    if command not in _FIRST:
        return None
    name, equals, _ = text.partition("=")
    if equals:
        found = (_UPDATE_CHOICES if command == "scontrol" else _ACCOUNTING).get(name.lower())
        return found and found._replace(separators=found.separators + "=")
    if not before:
        return Choices(fixed=_FIRST[command], separators="")
    return _scontrol_choices(before) if command == "scontrol" else _sacctmgr_choices(command, before)


def _scontrol_choices(before: Sequence[str]) -> Choices | None:
    verb, *rest = (word.lower() for word in before)
    if verb == "show":
        return _SHOW_CHOICES.get(rest[0]) if rest else Choices(fixed=tuple(_SHOW_CHOICES), separators="")
    if verb in _JOB_ACTIONS:
        return _JOB if not rest else None
    if verb == "write":
        return _JOB if rest else Choices(fixed=("batch_script",), separators="")
    if verb == "update":
        is_job = bool(rest) and rest[0].startswith("jobid=")
        first = ("JobId=", "NodeName=", "PartitionName=", "ReservationName=")
        return Choices(fixed=_JOB_UPDATE_KEYS if is_job else () if rest else first, separators="")
    return None


def _sacctmgr_choices(command: str, before: Sequence[str]) -> Choices | None:
    if command != "sacctmgr" or before[0].lower() not in _FIRST["sacctmgr"]:
        return None
    if len(before) == 1:
        return Choices(fixed=_ENTITIES, separators="")
    return Choices(fixed=("account=", "cluster=", "format=", "user=", "where"), separators="")
