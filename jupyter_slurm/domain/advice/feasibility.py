"""Reasons why a job could not run, derived from facts about the cluster before sbatch reports them.

No reason prevents a submission: sbatch decides, and a site may change a job during submission (``JobSubmitPlugins``).
Uncertain reasons are left out. Sources: sbatch(1), slurm.conf(5), sacctmgr(1).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from jupyter_slurm.domain.advice.capacity import FeasibilityWarning, size_warnings
from jupyter_slurm.domain.cluster_facts import Facts, nearest, some
from jupyter_slurm.domain.options.request import Request
from jupyter_slurm.domain.queries.associations import Association, Qos
from jupyter_slurm.domain.queries.cluster import Partition, expand_hosts, parse_version
from jupyter_slurm.domain.slurm_values import format_time_limit
from jupyter_slurm.errors import ParseError

__all__ = ["FeasibilityWarning", "feasibility_warnings"]

_NONE: Final = ("", "(null)", "N/A", "None", "NONE")


def feasibility_warnings(facts: Facts, request: Request) -> list[FeasibilityWarning]:
    """Return the reasons that speak against a job.

    Parameters
    ----------
    facts : Facts
        Facts of the cluster.
    request : Request
        The options in force.
    """
    known = [*map(str.lower, facts.clusters)]
    if known and (wrong := [name for name in request.clusters if name not in (*known, "all")]):
        return [FeasibilityWarning(f"There is no cluster {wrong[0]}.{nearest(wrong[0], known)}", True)]
    if {*request.clusters} - {facts.config.get("ClusterName", "").lower()}:
        return []  # the job may go to another cluster
    partitions, unknown = _partitions(facts, request)
    found = list(unknown)
    found += _check_accounts(facts, request)
    found += _check_reservations(facts, request)
    found += _check_nodes(facts, request, [] if _is_moved(facts, request) else partitions)
    if partitions and not unknown:
        found += _check_access(facts, request, partitions)
        found += _check_time(facts, request, partitions)
        found += size_warnings(facts, request, partitions, is_moved=_is_moved(facts, request))
    return found


def _is_set(facts: Facts, setting: str) -> bool:
    return facts.config.get(setting, "") not in _NONE


def _is_moved(facts: Facts, request: Request) -> bool:
    """Return whether a job that names no partition may get a partition other than the default."""
    return "partition" not in request.chosen and (
        _is_set(facts, "JobSubmitPlugins") or _is_set(facts, "CliFilterPlugins")
    )


def _partitions(facts: Facts, request: Request) -> tuple[list[Partition], list[FeasibilityWarning]]:
    """Return the partitions of the job, and warnings about their names."""
    names = request.list_values("partition")
    if not names and request.chosen.get("reservation"):
        return [], []  # the partition of the reservation applies, if it has one
    if not names:
        if _is_moved(facts, request):
            return list(facts.partitions), []
        return ([facts.default_partition] if facts.default_partition else []), []
    known = {one.name: one for one in facts.partitions}
    wrong = [name for name in names if name not in known] if known else []
    unknown = [
        FeasibilityWarning(f"There is no partition {name}.{nearest(name, known)}", True, "partition") for name in wrong
    ]
    return [known[name] for name in names if name in known], unknown


def _check_accounts(facts: Facts, request: Request) -> Iterator[FeasibilityWarning]:
    """Compare account and QOS with those of the user, only if the site enforces them."""
    mine, enforced = facts.associations, facts.setting_words("AccountingStorageEnforce")
    account, qos = request.chosen.get("account"), request.chosen.get("qos")
    if not mine or "associations" not in enforced:
        return
    accounts = list(dict.fromkeys(one.account for one in mine))
    if account and account.lower() not in map(str.lower, accounts):
        text = f"You have no account {account} on this cluster.{nearest(account, accounts)}"
        yield FeasibilityWarning(text, True, "account")
    elif qos and "qos" in enforced and facts.qos:
        names = [one.name for one in facts.qos]
        usable = list(dict.fromkeys(name for one in _associations(mine, account) for name in one.qos))
        if qos.lower() not in map(str.lower, names):
            yield FeasibilityWarning(f"There is no QOS {qos}.{nearest(qos, usable or names)}", True, "qos")
        elif usable and qos.lower() not in map(str.lower, usable):
            yield FeasibilityWarning(
                f"Your account {_account(mine, account)} may not use the QOS {qos}, but it may use: {some(usable)}.",
                True,
                "qos",
            )


def _associations(own_associations: Sequence[Association], account: str | None) -> list[Association]:
    """Return the associations that may apply to an account, or to the default account if none is named."""
    if account:
        return [one for one in own_associations if one.account.lower() == account.lower()]
    return [one for one in own_associations if one.is_default] or list(own_associations)


def _account(own_associations: Sequence[Association] | None, requested: str | None) -> str | None:
    return requested or next((one.account for one in own_associations or () if one.is_default), None)


def _check_reservations(facts: Facts, request: Request) -> Iterator[FeasibilityWarning]:
    if "reservations" in facts.setting_words("PrivateData"):
        return
    known = {one.name: one for one in facts.reservations}
    for name in request.list_values("reservation"):
        if name not in known:
            yield FeasibilityWarning(f"There is no reservation {name}.{nearest(name, known)}", True)


def _check_nodes(facts: Facts, request: Request, partitions: Sequence[Partition]) -> Iterator[FeasibilityWarning]:
    """Check that nodes requested by name exist and are in a partition of the job."""
    known, text = facts.node_names, request.chosen.get("nodelist") or ""
    try:
        # a value with a slash is the path of a file
        asked = expand_hosts(text, 1000) if known and "/" not in text else []
    except ParseError:
        return
    if wrong := [name for name in asked if name not in known]:
        yield FeasibilityWarning(f"There is no node {wrong[0]}.{nearest(wrong[0], known)}", True)
        return
    homes = {node.name: node.partitions for node in facts.nodes if node.name in asked} if asked else {}
    outside = [[name for name, home in homes.items() if one.name not in home] for one in partitions]
    if outside and all(outside):
        name = outside[0][0]
        where = f"partition {partitions[0].name}" if len(partitions) == 1 else some([one.name for one in partitions])
        there = f" It is in: {some(homes[name])}." if homes[name] else ""
        yield FeasibilityWarning(f"Node {name} is not in {where}.{there}")


def _check_access(facts: Facts, request: Request, partitions: Sequence[Partition]) -> Iterator[FeasibilityWarning]:
    """Explain why no partition accepts the job, or not every one if all of them must."""
    if _is_moved(facts, request):
        return
    reasons = [reason for one in partitions if (reason := _refused_by(facts, request, one))]
    if _is_out(facts, reasons, partitions):
        others = [one.name for one in facts.partitions if _accepts_job(facts, request, one)]
        instead = f" Partitions that accept it: {some(others)}." if others else ""
        option = next((word.lower() for word in ("account", "QOS") if f" of the {word} " in reasons[0]), "partition")
        yield FeasibilityWarning(" ".join(dict.fromkeys(reasons)) + instead, option=option)


def _is_out(facts: Facts, against: Sequence[object], partitions: Sequence[Partition]) -> bool:
    """Return whether a job is refused if this many of its partitions do not accept it."""
    needs_all = facts.config.get("EnforcePartLimits", "").upper() == "ALL"
    return bool(against) and (needs_all or len(against) == len(partitions))


def _accepts_job(facts: Facts, request: Request, partition: Partition) -> bool:
    """Return whether a partition is open to the user, and no fact speaks against the job in it."""
    seconds, fields = request.time[1] if request.time else 0, partition.fields
    account, qos = _account(facts.associations, request.chosen.get("account")), request.chosen.get("qos")
    if partition.is_hidden or fields.get("RootOnly") == "YES" or fields.get("AllowGroups", "ALL") != "ALL":
        return False
    if partition.allow_accounts is not None and (account is None or _lineage(facts, account) is None):
        return False
    if partition.allow_qos is not None and qos is None:
        return False
    is_short = partition.max_time is None or seconds <= partition.max_time
    return is_short and not _refused_by(facts, request, partition) and not size_warnings(facts, request, [partition])


def _refused_by(facts: Facts, request: Request, partition: Partition) -> str:
    """Return why a partition does not accept such a job now; empty if no reason is known."""
    name, fields = partition.name, partition.fields
    if partition.state == "DOWN":
        return f"Partition {name} is DOWN. Jobs wait until it is up again."
    if partition.state in ("DRAIN", "INACTIVE"):
        return f"Partition {name} is {partition.state}. It accepts no new jobs."
    allowed = fields.get("AllowGroups", "ALL")
    if allowed != "ALL" and facts.groups and "root" not in facts.groups and not facts.groups & {*allowed.split(",")}:
        return f"Partition {name} is for the groups {allowed} only, and you are in none of them."
    if facts.host and (hosts := fields.get("AllocNodes", "ALL")) != "ALL" and not _is_among(facts.host, hosts):
        return f"Partition {name} accepts only jobs that are submitted on {hosts}, but this host is {facts.host}."
    account, qos = _account(facts.associations, request.chosen.get("account")), request.chosen.get("qos")
    above = None if account is None else _lineage(facts, account)
    return _not_allowed(name, "account", account, above, partition.allow_accounts, fields.get("DenyAccounts", "")) or (
        _not_allowed(name, "QOS", qos, qos and [qos.lower()], partition.allow_qos, fields.get("DenyQos", ""))
    )


def _is_among(host: str, hosts: str) -> bool:
    """Return whether a host is in a list. Assume so if the list cannot be read."""
    try:
        return host in expand_hosts(hosts)
    except ParseError:
        return True


def _lineage(facts: Facts, account: str) -> list[str] | None:
    """Return the accounts that a partition may name instead of this account; ``None`` if they are unknown.

    An account in a partition's list means only itself, from 23.02 on also the accounts below it.
    """
    try:
        is_flat = parse_version(facts.config.get("SLURM_VERSION", "")) < (23, 2)
    except ParseError:
        return None
    return [account.lower()] if is_flat else facts.lineage(account)


def _not_allowed(
    partition: str,
    noun: str,
    requested: str | None,
    names: Sequence[str] | None,
    allowed: tuple[str, ...] | None,
    denied: str,
) -> str:
    """Report that a partition's lists exclude the requested account or QOS, under every name that may apply to it."""
    if not requested or "@" in requested:
        return ""
    if allowed is not None and names is not None and not {*names} & {*map(str.lower, allowed)}:
        return f"Partition {partition} accepts no jobs of the {noun} {requested}, only of: {some(allowed)}."
    if allowed is None and {requested.lower(), *(names or ())} & {*denied.lower().split(",")}:
        return f"Partition {partition} accepts no jobs of the {noun} {requested}."
    return ""


def _check_time(facts: Facts, request: Request, partitions: Sequence[Partition]) -> Iterator[FeasibilityWarning]:
    # If partition limits are enforced at submission, --time-min does not avoid them.
    is_strict = facts.config.get("EnforcePartLimits", "").upper() in ("ALL", "ANY", "YES")
    asked_time = request.time if is_strict else request.least_time
    if asked_time is None:
        return
    written, seconds = asked_time
    qos = _possible_qos(facts, request, partitions)
    if qos is not None and not any("partitiontimelimit" in one.flags for one in qos):
        short = [one for one in partitions if one.max_time is not None and seconds > one.max_time]
        if _is_out(facts, short, partitions):
            text = f"{written} is more than {_limits(short)}.{_longer(facts, request, partitions)}"
            longest = format_time_limit(max(one.max_time or 0 for one in short))
            yield FeasibilityWarning(text, False, "time", "partition", longest)
    asked = request.chosen.get("qos")
    mine = next((one for one in facts.qos or () if asked and one.name.lower() == asked.lower()), None)
    has_other = any(one.qos for one in partitions)
    is_held_to = "limits" in facts.setting_words("AccountingStorageEnforce") and not has_other
    if mine and mine.max_wall is not None and seconds > mine.max_wall and is_held_to:
        limit = format_time_limit(mine.max_wall)
        yield FeasibilityWarning(
            f"{written} is more than the QOS {mine.name} allows ({limit}).", False, "time", "qos", limit
        )


def _possible_qos(facts: Facts, request: Request, partitions: Sequence[Partition]) -> list[Qos] | None:
    """Return every QOS that may apply to the job; None if unknown."""
    if facts.config.get("AccountingStorageType", "accounting_storage/none") in (*_NONE, "accounting_storage/none"):
        return []
    if facts.qos is None:
        return None
    asked = request.chosen.get("qos")
    of_partitions = {one.qos for one in partitions}
    return [one for one in facts.qos if not asked or one.name.lower() == asked.lower() or one.name in of_partitions]


def _limits(partitions: Sequence[Partition]) -> str:
    limits = [format_time_limit(one.max_time) for one in partitions]
    if len(limits) == 1:
        return f"partition {partitions[0].name} allows ({limits[0]})"
    told = [f"{one.name} ({limit})" for one, limit in zip(partitions, limits, strict=True)]
    return f"any of the partitions allows: {some(told)}"


def _longer(facts: Facts, request: Request, partitions: Sequence[Partition]) -> str:
    """Name partitions with a longer limit, else the longest possible limit."""
    fits = [one for one in facts.partitions if _accepts_job(facts, request, one)]
    if fits and not _is_moved(facts, request):
        told = [
            f"-p {one.name} ({'no limit' if one.max_time is None else format_time_limit(one.max_time)})" for one in fits
        ]
        return f" It would fit into: {some(told)}."
    longest = max(one.max_time or 0 for one in partitions)
    return f" At most: --time={format_time_limit(longest)}."
