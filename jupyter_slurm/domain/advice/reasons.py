"""Slurm's reasons why a job waits or ended, in plain words, with the next step.

Sources: squeue(1) "JOB REASON CODES", Slurm's pages "Job Reason Codes" and "Resource Limits", ``job_state_reason.c`` of
22.05 to 26.05.
"""

from __future__ import annotations

import re
from typing import Final

from jupyter_slurm.domain.advice.endings import explain_end
from jupyter_slurm.domain.records import JobRecord
from jupyter_slurm.domain.slurm_values import format_memory, parse_memory

__all__ = [
    "KNOWN_REASONS",
    "QOS_GPU_LIMIT",
    "explain",
    "explain_wait_of_others",
    "is_held_reason",
    "memory_step",
    "resource_in_use",
]

_WAIT_HINT: Final = "It starts automatically."
_LIMITS_COMMAND: Final = "See the limits with sacctmgr show assoc user=$USER and sacctmgr show qos."

#: Reasons with their own texts. Texts of limits (``QOSMax…``, ``AssocGrp…``) are composed of their parts.
KNOWN_REASONS: Final = {
    "AccountNotAllowed": (
        "Your account may not use this partition.",
        ("Choose another with --account or --partition. scontrol show partition shows the allowed accounts."),
    ),
    "AccountingPolicy": ("A limit of your account or QOS is reached.", _LIMITS_COMMAND),
    "AssociationJobLimit": (
        "Your account has the maximum number of jobs.",
        "It starts when some of them have ended.",
    ),
    "AssociationResourceLimit": ("Your account uses the maximum of its resources.", _LIMITS_COMMAND),
    "AssociationTimeLimit": ("Your account's time is used up.", _LIMITS_COMMAND),
    "BadConstraints": (
        "No node of the partition has what the job requests.",
        ("Cancel it, and request less or other features. sinfo -o '%P %c %m %G %f' shows what the nodes have."),
    ),
    "BeginTime": ("Its earliest start time has not come (after a requeue that is about two minutes).", _WAIT_HINT),
    "BurstBufferOperation": ("An operation on the burst buffer failed.", "Ask the administrators."),
    "BurstBufferResources": ("The burst buffer is full at the moment.", _WAIT_HINT),
    "BurstBufferStageIn": ("Its data are being copied in.", _WAIT_HINT),
    "Cleaning": ("It was requeued and its last run is still being cleaned up.", _WAIT_HINT),
    "Constraints": ("No free node has the requested features at the moment.", _WAIT_HINT),
    "DeadLine": ("It can no longer end before its deadline.", "Submit it again with a later --deadline."),
    "Dependency": ("It waits for other jobs (--dependency).", "It starts when they have ended as requested."),
    "DependencyNeverSatisfied": (
        "A job that it depends on ended differently than requested, so it can never start.",
        "Cancel it, or remove the dependency: scontrol update jobid=ID dependency=",
    ),
    "FedJobLock": ("It waits until the clusters of the federation agree.", _WAIT_HINT),
    "FrontEndDown": ("No front-end node is up.", "Ask the administrators."),
    "InactiveLimit": ("It was inactive for longer than the site allows.", "Submit it again."),
    "InvalidAccount": ("The account is unknown.", "Choose one of yours: sacctmgr show assoc user=$USER."),
    "InvalidQOS": (
        "The QOS is unknown, or you may not use it.",
        "Choose one of yours: sacctmgr show assoc user=$USER.",
    ),
    "JobArrayTaskLimit": (
        "The number of tasks that you allowed at a time is running.",
        "Allow more with scontrol update jobid=ID arraytaskthrottle=N.",
    ),
    "JobHeldAdmin": ("An administrator has held it.", "Ask the administrators, who alone can release it."),
    "JobHeldUser": ("It is held.", "Release it with scontrol release ID."),
    "JobHoldMaxRequeue": (
        "It was requeued as often as the site allows and is now held.",
        "Find the cause in its output, then release it with scontrol release ID.",
    ),
    "JobLaunchFailure": (
        "It could not be started on its node.",
        ("Check that its working directory and output directory exist on the node, then submit it again."),
    ),
    "Licenses": ("It waits for a licence.", "See the users of the licences with scontrol show licenses."),
    "MaxMemPerLimit": (
        "It requests more memory for a CPU or node than the partition allows.",
        "Submit it again with a smaller --mem, or more --cpus-per-task.",
    ),
    "MaxPoweredUpNodes": ("The maximum number of nodes is powered up.", _WAIT_HINT),
    "MpiPortsBusy": ("Too many ports of the node are in use.", _WAIT_HINT),
    "NodeDown": ("A node that it needs is down.", "Submit it without naming that node, or ask the administrators."),
    "NonZeroExitCode": ("It ended with an exit code other than 0.", "See the last lines of its output."),
    "NvidiaImexChannels": ("No IMEX channel is free.", _WAIT_HINT),
    "OutOfMemory": ("It used more memory than it requested.", "Request more with --mem=…."),
    "PartitionConfig": (
        "It requests something that the partition does not allow.",
        "See the rules of the partition with scontrol show partition.",
    ),
    "PartitionDown": ("The partition is down.", "Wait, or choose another with --partition: sinfo shows them."),
    "PartitionInactive": ("The partition starts no jobs.", "Choose another with --partition: sinfo shows them."),
    "PartitionNodeLimit": (
        ("It requests more nodes than the partition allows, or nodes that it needs are down or drained."),
        "Request fewer nodes. sinfo shows the limits and the nodes of the partition.",
    ),
    "PartitionTimeLimit": (
        "Its time limit is longer than the partition allows.",
        ("Lower it with scontrol update jobid=ID timelimit=…. sinfo shows the limit of the partition."),
    ),
    "PowerNotAvail": ("The power for its nodes is not available at the moment.", _WAIT_HINT),
    "PowerReserved": ("The power for its nodes is reserved.", _WAIT_HINT),
    "Priority": ("Other jobs come first.", "It starts automatically. With a shorter --time it may start earlier."),
    "Prolog": ("The node is being prepared.", _WAIT_HINT),
    "QOSJobLimit": ("The maximum number of jobs runs under this QOS.", "It starts when some of them have ended."),
    "QOSNotAllowed": (
        "This QOS may not be used in the partition, or by the account.",
        "Choose another with --qos or --partition.",
    ),
    "QOSResourceLimit": ("The QOS uses the maximum of its resources.", _LIMITS_COMMAND),
    "QOSTimeLimit": ("The time of the QOS is used up.", _LIMITS_COMMAND),
    "QOSUsageThreshold": ("Too little of your fair share is left for this QOS.", "Wait, or choose another QOS."),
    "RaisedSignal": ("It was ended by a signal.", "See the last lines of its output for the cause."),
    "ReqNodeNotAvail": (
        "A node that it needs is not available: busy, reserved, down or drained.",
        (
            "Submit it with fewer nodes, without naming nodes, or with a time limit that ends before a reservation "
            "starts. sinfo -R shows why nodes are down."
        ),
    ),
    "Requested nodes are busy": (
        "Other steps seem to use the CPUs, GPUs or memory of its allocation that it requests.",
        ("It starts when the other steps have ended. With %srun --overlap, a step shares their resources immediately."),
    ),
    "Reservation": ("It waits for its reservation to begin.", _WAIT_HINT),
    "ReservationDeleted": ("Its reservation was deleted.", "Submit it again without --reservation."),
    "ReservationInvalid": ("Its reservation cannot be used.", "Submit it again without --reservation."),
    "Resources": ("Next in line: it waits until the requested resources are free.", _WAIT_HINT),
    "SchedDefer": ("The scheduler will consider it in its next cycle.", _WAIT_HINT),
    "SystemFailure": (
        "Slurm or a file system failed.",
        "Submit it again. Tell the administrators if the error returns.",
    ),
    "TimeLimit": ("It reached its time limit.", "Submit it with a longer --time, or with `resume`."),
    "WaitingForScheduling": ("The scheduler has not considered it yet.", _WAIT_HINT),
    "job requeued in held state": ("It was requeued and is held.", "Release it with scontrol release ID."),
    "job requeued in special exit state": (
        "It was requeued because of its exit code and is held.",
        "Find the cause in its output, then release it with scontrol release ID.",
    ),
    "launch failed requeued held": (
        "Its node could not start it, so it was requeued and is held.",
        ("Check that its working directory exists on the nodes, then release it with scontrol release ID."),
    ),
    "launch failure limit exceeded requeued held": (
        "Nodes failed to start it several times, so it is held.",
        ("Check that its working directory exists on the nodes, then release it with scontrol release ID."),
    ),
    "user env retrieval failed requeued held": (
        "The login environment could not be read on the node, so it is held.",
        (
            "Submit it with --export=ALL, or make the start-up files of your shell faster and release it "
            "with scontrol release ID."
        ),
    ),
}

_REFUSED_SIGNAL: Final = 1  # in place of a signal; slurmctld shows for a while a job that sbatch refused

#: Reasons why a finished job never started, shown instead of its exit.
_NEVER_STARTED: Final = {
    "BadConstraints": (
        "No node of the partition has what the job requests, so it never started.",
        "Request less or other features. sinfo -o '%P %c %m %G %f' shows what the nodes have.",
    ),
    "DependencyNeverSatisfied": (
        "A job that it depends on ended differently than requested, so it never started.",
        "Submit it again with another --dependency, or without.",
    ),
}

_SENTENCES: Final = (
    (
        re.compile(r"Nodes required for job are DOWN, DRAINED"),
        (
            "All nodes that could run it are down, drained or reserved for jobs with higher priority.",
            "Wait, or request other nodes or another partition. sinfo -R shows why nodes are down.",
        ),
    ),
    (
        re.compile(r"Reservation .* has ended"),
        ("Its reservation has ended.", "Submit it again without --reservation."),
    ),
)

#: Words of the texts in which the reader is the user of the job, and those for a job of another user.
_WORDS_FOR_OTHERS: Final = (("Your ", "The "), ("your ", "the "), ("you ", "its user "))

_LIMIT: Final = re.compile(
    r"(?P<who>QOS|Assoc|)(?P<kind>Grp|Max|Min)(?P<what>[A-Za-z]*?)(?P<minutes>RunMinutes|RunMins|Minutes|)"
    r"(?P<per>PerJob|PerUser|PerAccount|PerNode|NotSatisfied|)(?:Limit)?"
)
#: Reasons of a job with --gpus that Slurm (22.05, for example) also gives if the job only waits for other resources.
QOS_GPU_LIMIT: Final = re.compile(r"\bQOS(Grp|Max)GRES(PerUser|PerAccount|)(?:Limit)?\b")
_LIMIT_OWNERS: Final = {"QOS": "the QOS", "Assoc": "your account", "": "the QOS"}
_LIMIT_SCOPES: Final = {
    "PerAccount": " for an account",
    "PerJob": " for one job",
    "PerNode": " on one node",
    "PerUser": " for one user",
}
_RESOURCE_NAMES: Final = {
    "BB": "burst buffer",
    "Billing": "billing units",
    "Cpu": "CPUs",
    "CPU": "CPUs",
    "Energy": "energy",
    "GRES": "GPUs or other generic resources",
    "Job": "jobs",
    "Jobs": "jobs",
    "License": "licences",
    "Mem": "memory",
    "Memory": "memory",
    "Node": "nodes",
    "SubmitJob": "submitted jobs",
    "SubmitJobs": "submitted jobs",
    "Unknown": "a resource",
    "Wall": "running time",
    "WallDuration": "running time",
}


def is_held_reason(reason: str) -> bool:
    """Return whether a reason means that the job waits for its release, also after Slurm put it back and held it."""
    return re.match(r"JobH[eo]ld|.*\bheld\b|.*special exit state", reason) is not None


def resource_in_use(reason: str) -> str:
    """Return the resource, in lower case, whose use by several jobs at the same time is limited by a reason.

    Parameters
    ----------
    reason : str
        One word of Slurm. For a limit on minutes, on a single job or node, or a minimum, the answer is empty.
    """
    limit = _LIMIT.fullmatch(reason)
    if limit is None or limit["minutes"] or limit["kind"] == "Min":
        return ""
    return limit["what"].lower() if limit["kind"] == "Grp" or limit["per"] in ("PerUser", "PerAccount") else ""


def explain(reason: str, record: JobRecord | None = None) -> tuple[str, str]:
    """Explain why a job waits or how it ended, and name the next step.

    Parameters
    ----------
    reason : str
        As Slurm shows it: a word, several words with commas (tasks of an array), or a sentence. May be empty.
    record : JobRecord, optional
        Record of the job. If the job is finished, its end is explained.

    Returns
    -------
    words, next_step : str
        Both empty if no explanation is needed. An unknown reason is its own explanation.
    """
    text = reason.strip().removeprefix("(").removesuffix(")").strip()
    if record is not None and record.state.is_finished:
        signal = record.signal if record.nodes else record.signal and record.signal != _REFUSED_SIGNAL
        never_ran = record.state.name in ("CANCELLED", "FAILED") and not (record.exit_code or signal)
        return (_NEVER_STARTED.get(text) if never_ran else None) or explain_end(record)
    if text in ("", "None", "null"):
        return "", ""
    words, step = _explain_waiting(text)
    if record is not None:
        step = step.replace(" ID", f" {record.id.allocation}").replace("jobid=ID", f"jobid={record.id.allocation}")
        if QOS_GPU_LIMIT.search(text):
            # Slurm does not report which of the two applies; the numbers of the cluster do (services/clusters).
            words = (
                f"{words.removesuffix('.')}, or it waits for other resources. For a job with --gpus, Slurm (22.05, for "
                "example) may name the limit of the QOS in both cases."
            )
    return words, step


def explain_wait_of_others(reason: str) -> str:
    """Explain why a job of another user waits, without a next step; empty if no explanation is needed."""
    words = explain(reason)[0]
    for own, other in _WORDS_FOR_OTHERS:
        words = words.replace(own, other)
    return words


def memory_step(requested: int, advised: str | None) -> str:
    """Return advice for a job that waits for memory.

    Parameters
    ----------
    requested : int
        Bytes of memory that the job requests; 0 if unknown.
    advised : str, optional
        Memory that the site recommends to request.
    """
    example = f", for example --mem={advised}" if advised and parse_memory(advised) < requested else ""
    amount = f" (this job requests {format_memory(requested)})" if requested else ""
    return f"If it needs less memory{amount}: cancel it, and request what it needs with --mem{example}."


def _explain_waiting(text: str) -> tuple[str, str]:
    for pattern, answer in _SENTENCES:
        if pattern.search(text):
            return answer
    if text in KNOWN_REASONS:
        return KNOWN_REASONS[text]
    for word in re.split(r"[,:]\s*", text):
        if word in KNOWN_REASONS:
            words, step = KNOWN_REASONS[word]
            nodes = re.search(r"UnavailableNodes:(\S+)", text)
            return (f"{words} (Nodes: {nodes[1]})" if nodes else words), step
        limit = _LIMIT.fullmatch(word)
        if limit and (limit["what"] in _RESOURCE_NAMES):
            return _explain_limit(limit)
    return text, ""


def _explain_limit(limit: re.Match[str]) -> tuple[str, str]:
    who, thing, per = _LIMIT_OWNERS[limit["who"]], _RESOURCE_NAMES[limit["what"]], _LIMIT_SCOPES.get(limit["per"], "")
    memory = " Request memory explicitly with --mem=…." if thing == "memory" else ""
    if limit["minutes"]:
        running = " of running jobs" if "Run" in limit["minutes"] else ""
        return (
            f"{who[0].upper()}{who[1:]} has no more time left{running} for {thing}{per}.",
            f"Request less or a shorter --time.{memory} {_LIMITS_COMMAND}",
        )
    if limit["kind"] == "Min":
        return f"It requests fewer {thing} than {who} requires.", f"Request more. {_LIMITS_COMMAND}"
    if limit["kind"] == "Grp" or limit["per"] in ("PerUser", "PerAccount") or "jobs" in thing:
        return (
            f"The limit of {who} for {thing}{per} is reached.".replace(
                "your account", "all jobs of your account together"
            ),
            f"It starts when jobs under that limit have ended.{memory} {_LIMITS_COMMAND}",
        )
    if thing == "running time":
        return (
            f"It requests more {thing}{per} than {who} allows.",
            f"Lower it with scontrol update jobid=ID timelimit=…, or choose another QOS or account. {_LIMITS_COMMAND}",
        )
    return (
        f"It requests more {thing}{per} than {who} allows.",
        f"Request less, or choose another QOS or account.{memory} {_LIMITS_COMMAND}",
    )
