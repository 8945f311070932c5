"""Slurm's reasons why a job waits or ended, in plain words, with the next step.

Sources: squeue(1) "JOB REASON CODES", Slurm's pages "Job Reason Codes" and "Resource Limits", ``job_state_reason.c`` of
22.05 to 26.05.
"""

from __future__ import annotations

import re
from typing import Final

from jupyter_slurm.domain.advice.endings import explain_end
from jupyter_slurm.domain.records import JobRecord
from jupyter_slurm.domain.slurm_values import format_memory, parse_tres

__all__ = ["KNOWN_REASONS", "explain"]

_WAIT_HINT: Final = "Nothing to do: it starts by itself."
_LIMITS_COMMAND: Final = "sacctmgr show assoc user=$USER and sacctmgr show qos show the limits."

#: Reasons with their own texts. Texts of limits (``QOSMax…``, ``AssocGrp…``) are composed of their parts.
KNOWN_REASONS: Final = {
    "AccountNotAllowed": (
        "Your account may not use this partition.",
        "Choose another with --account or --partition; scontrol show partition says which accounts are allowed.",
    ),
    "AccountingPolicy": ("A limit of your account or QOS is reached.", _LIMITS_COMMAND),
    "AssociationJobLimit": (
        "Your account has as many jobs as it may have.",
        "It starts when some of them have ended.",
    ),
    "AssociationResourceLimit": ("Your account uses as much as it may.", _LIMITS_COMMAND),
    "AssociationTimeLimit": ("Your account's time is used up.", _LIMITS_COMMAND),
    "BadConstraints": (
        "No node of the partition can ever satisfy what the job asks for.",
        "Cancel it and ask for less, or for other features: sinfo -o '%P %c %m %G %f' shows what there is.",
    ),
    "BeginTime": ("Its earliest start time has not come (after a requeue that is about two minutes).", _WAIT_HINT),
    "BurstBufferOperation": ("An operation on the burst buffer failed.", "Ask the administrators."),
    "BurstBufferResources": ("The burst buffer has no room at the moment.", _WAIT_HINT),
    "BurstBufferStageIn": ("Its data are being copied in.", _WAIT_HINT),
    "Cleaning": ("It was requeued and its last run is still being cleaned up.", _WAIT_HINT),
    "Constraints": ("The features that it asks for are on no free node at the moment.", _WAIT_HINT),
    "DeadLine": ("It can no longer end before its deadline.", "Submit it again with a later --deadline."),
    "Dependency": ("It waits for other jobs (--dependency).", "It starts when they have ended as asked."),
    "DependencyNeverSatisfied": (
        "A job that it depends on ended in another way than asked, so it can never start.",
        "Cancel it, or remove the dependency: scontrol update jobid=ID dependency=",
    ),
    "FedJobLock": ("It waits until the clusters of the federation agree.", _WAIT_HINT),
    "FrontEndDown": ("No front-end node is up.", "Ask the administrators."),
    "InactiveLimit": ("Nothing happened in it for longer than the site allows.", "Submit it again."),
    "InvalidAccount": ("The account is not known.", "Choose one that you have: sacctmgr show assoc user=$USER."),
    "InvalidQOS": ("The QOS is not known, or not yours.", "Choose one that you have: sacctmgr show assoc user=$USER."),
    "JobArrayTaskLimit": (
        "As many tasks of the array run as you allowed at once (%N).",
        "To allow more: scontrol update jobid=ID arraytaskthrottle=N.",
    ),
    "JobHeldAdmin": ("An administrator holds it.", "Ask them; only they can release it."),
    "JobHeldUser": ("It is held.", "To let it go: scontrol release ID."),
    "JobHoldMaxRequeue": (
        "It was requeued as often as the site allows and is now held.",
        "Find out from its output why it kept failing, then: scontrol release ID.",
    ),
    "JobLaunchFailure": (
        "It could not be started on its node.",
        "Check that its working directory and output folder exist there, then submit it again.",
    ),
    "Licenses": ("It waits for a licence.", "scontrol show licenses shows who has them."),
    "MaxMemPerLimit": (
        "It asks for more memory for a CPU or node than the partition allows.",
        "Submit it again with a smaller --mem, or more --cpus-per-task.",
    ),
    "MaxPoweredUpNodes": ("As many nodes are powered up as the site allows.", _WAIT_HINT),
    "MpiPortsBusy": ("Too many of the node's ports are taken.", _WAIT_HINT),
    "NodeDown": ("A node that it needs is down.", "Submit it without naming that node, or ask the administrators."),
    "NonZeroExitCode": ("It ended with an exit code other than 0.", "The last lines of its output say why."),
    "NvidiaImexChannels": ("No IMEX channel is free.", _WAIT_HINT),
    "OutOfMemory": ("It used more memory than it had asked for.", "Ask for more: --mem=…"),
    "PartitionConfig": (
        "It asks for something that the partition does not allow.",
        "scontrol show partition shows its rules.",
    ),
    "PartitionDown": ("The partition is down.", "Wait, or choose another with --partition: sinfo shows them."),
    "PartitionInactive": ("The partition starts no jobs.", "Choose another with --partition: sinfo shows them."),
    "PartitionNodeLimit": (
        "It asks for more nodes than the partition allows, or nodes that it needs are down or drained.",
        "Ask for fewer nodes; sinfo shows the partition's limits and its nodes.",
    ),
    "PartitionTimeLimit": (
        "Its time limit is longer than the partition allows.",
        "Lower it: scontrol update jobid=ID timelimit=…; sinfo shows the partition's limit.",
    ),
    "PowerNotAvail": ("The power that its nodes would take is not to be had at the moment.", _WAIT_HINT),
    "PowerReserved": ("The power that its nodes would take is reserved.", _WAIT_HINT),
    "Priority": ("Other jobs come first.", "Nothing to do; a shorter --time may let it slip in earlier."),
    "Prolog": ("The node is being prepared.", _WAIT_HINT),
    "QOSJobLimit": ("As many jobs run under this QOS as may.", "It starts when some of them have ended."),
    "QOSNotAllowed": (
        "This QOS may not be used in the partition, or by the account.",
        "Choose another with --qos or --partition.",
    ),
    "QOSResourceLimit": ("The QOS uses as much as it may.", _LIMITS_COMMAND),
    "QOSTimeLimit": ("The time of the QOS is used up.", _LIMITS_COMMAND),
    "QOSUsageThreshold": ("Too little of your fair share is left for this QOS.", "Wait, or choose another QOS."),
    "RaisedSignal": ("It was ended by a signal.", "The last lines of its output may say why."),
    "ReqNodeNotAvail": (
        "A node that it asks for is not available: busy, reserved, down or drained.",
        "Submit it without naming nodes, or with a time limit that ends before the reservation starts.",
    ),
    "Requested nodes are busy": (
        "Other steps have the CPUs, GPUs or memory of its allocation that it asks for, as it seems.",
        "It starts when they have ended. With --overlap (%srun --overlap) a step shares them at once.",
    ),
    "Reservation": ("It waits for its reservation to begin.", _WAIT_HINT),
    "ReservationDeleted": ("Its reservation was deleted.", "Submit it again without --reservation."),
    "ReservationInvalid": ("Its reservation cannot be used.", "Submit it again without --reservation."),
    "Resources": ("It is the next to start: it waits until what it asks for is free.", _WAIT_HINT),
    "SchedDefer": ("The scheduler looks at it in its next round.", _WAIT_HINT),
    "SystemFailure": ("Slurm or a file system failed.", "Submit it again; tell the administrators if it comes back."),
    "TimeLimit": ("It reached its time limit.", "Submit it with a longer --time, or with `resume`."),
    "WaitingForScheduling": ("The scheduler has not looked at it yet.", _WAIT_HINT),
    "job requeued in held state": ("It was requeued and is held.", "To let it go: scontrol release ID."),
    "job requeued in special exit state": (
        "It was requeued because of its exit code and is held.",
        "Look at its output, then: scontrol release ID.",
    ),
    "launch failed requeued held": (
        "Its node could not start it; it was requeued and is held.",
        "Check that its working directory exists on the nodes, then: scontrol release ID.",
    ),
    "launch failure limit exceeded requeued held": (
        "Nodes failed to start it several times; it is held.",
        "Check that its working directory exists on the nodes, then: scontrol release ID.",
    ),
    "user env retrieval failed requeued held": (
        "The log-in environment could not be read on the node; it is held.",
        "Submit it with --export=ALL, or shorten what your shell does at log-in; then: scontrol release ID.",
    ),
}

_REFUSED_SIGNAL: Final = 1  # in place of a signal; slurmctld shows for a while a job that sbatch refused

#: Reasons why a finished job never started, shown instead of its exit.
_NEVER_STARTED: Final = {
    "BadConstraints": (
        "No node of the partition can ever satisfy what the job asks for, so it never started.",
        "Ask for less, or for other features: sinfo -o '%P %c %m %G %f' shows what there is.",
    ),
    "DependencyNeverSatisfied": (
        "A job that it depends on ended in another way than asked, so it never started.",
        "Submit it again with another --dependency, or without.",
    ),
}

_SENTENCES: Final = (
    (
        re.compile(r"Nodes required for job are DOWN, DRAINED"),
        (
            "All nodes that could run it are down, drained or reserved for jobs that come first.",
            "sinfo -R says why nodes are down. Ask for other nodes or another partition, or wait.",
        ),
    ),
    (
        re.compile(r"Reservation .* has ended"),
        ("Its reservation has ended.", "Submit it again without --reservation."),
    ),
)

_LIMIT: Final = re.compile(
    r"(?P<who>QOS|Assoc|)(?P<kind>Grp|Max|Min)(?P<what>[A-Za-z]*?)(?P<minutes>RunMinutes|RunMins|Minutes|)"
    r"(?P<per>PerJob|PerUser|PerAccount|PerNode|NotSatisfied|)(?:Limit)?"
)
_QOS_GPU_LIMIT: Final = re.compile(r"\bQOS(Grp|Max)GRES(PerUser|PerAccount|)(?:Limit)?\b")
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


def explain(reason: str, record: JobRecord | None = None, memory: str | None = None) -> tuple[str, str]:
    """Explain why a job waits or how it ended, and name the next step.

    Parameters
    ----------
    reason : str
        As Slurm shows it: a word, several words with commas (tasks of an array), or a sentence. May be empty.
    record : JobRecord, optional
        Record of the job. If the job is finished, its end is explained.
    memory : str, optional
        Memory that the site recommends to request.

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
        if text.startswith("Resources"):
            step = f"It starts by itself. If nodes look free, it may wait for {_memory_hint(record, memory)}"
        elif _QOS_GPU_LIMIT.search(text):
            words, step = _either(words, step, record, memory)
    return words, step


def _either(words: str, step: str, record: JobRecord, memory: str | None) -> tuple[str, str]:
    """Add the other meaning of a limit of GPUs: Slurm does not report which of the two applies."""
    return (
        f"{words.removesuffix('.')}, or it waits for something else, such as memory: of a job with --gpus Slurm "
        "(22.05, for one) may name the limit of the QOS in both cases.",
        f"{step} If you have fewer GPUs than the QOS allows, it waits for nodes, and often for "
        f"{_memory_hint(record, memory)}",
    )


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
    memory = " Ask for memory yourself: --mem=…" if thing == "memory" else ""
    if limit["minutes"]:
        running = " of running jobs" if "Run" in limit["minutes"] else ""
        return (
            f"{who.capitalize()} has no more time left{running} for {thing}{per}.",
            f"Ask for less or a shorter --time.{memory} {_LIMITS_COMMAND}",
        )
    if limit["kind"] == "Min":
        return f"It asks for fewer {thing} than {who} wants.", f"Ask for more. {_LIMITS_COMMAND}"
    if limit["kind"] == "Grp" or limit["per"] in ("PerUser", "PerAccount") or "jobs" in thing:
        return (
            f"The limit of {who} for {thing}{per} is reached.".replace("your account", "your account's group"),
            f"It starts when jobs under that limit have ended.{memory} {_LIMITS_COMMAND}",
        )
    return (
        f"It asks for more {thing}{per} than {who} allows.",
        f"Ask for less, or choose another QOS or account.{memory} {_LIMITS_COMMAND}",
    )


def _memory_hint(record: JobRecord, advised: str | None) -> str:
    """Return advice for a job that waits though nodes seem free: often no memory was requested."""
    asked = parse_tres(record.tres).get("mem")
    amount = f" (this one asks for {format_memory(asked)})" if asked else ""
    return f"memory{amount}: cancel it and ask for what it needs with --mem=…, for example --mem={advised or '64G'}."
