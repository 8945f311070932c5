"""Accounts and QOS that accounting lets a user use, and reservations.

Sources: sacctmgr(1), scontrol(1) ``show reservation``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from jupyter_slurm.domain.queries.output_frames import decode
from jupyter_slurm.domain.slurm_values import parse_count, parse_epoch, parse_tres, present, read_time_limit

__all__ = [
    "Association",
    "Qos",
    "Reservation",
    "accounts_argv",
    "associations_argv",
    "clusters_argv",
    "parse_accounts",
    "parse_associations",
    "parse_clusters",
    "parse_qos",
    "parse_reservations",
    "qos_argv",
    "reservations_argv",
]

_ASSOCIATION = ("defaultaccount", "cluster", "account", "partition", "qos", "defaultqos", "maxwall")
_QOS = ("name", "maxwall", "flags", "maxtrespu", "maxjobspu")
_SACCTMGR = ["sacctmgr", "--noheader", "--parsable2", "show"]


@dataclass(frozen=True)
class Association:
    """A user's right to use a cluster under an account.

    Parameters
    ----------
    partition : str
        Empty: any partition.
    qos : tuple of str
        QOS that may be used with the association.
    default_qos : str
        Empty: that of the cluster.
    max_wall : int, optional
        Seconds; ``None``: the association sets no limit.
    is_default : bool
        Whether its account is the default.
    """

    account: str
    partition: str = ""
    qos: tuple[str, ...] = ()
    default_qos: str = ""
    max_wall: int | None = None
    is_default: bool = False


@dataclass(frozen=True)
class Qos:
    """A quality of service; ``max_wall`` in seconds, ``flags`` in lower case, and the limits of each user in it."""

    name: str
    max_wall: int | None = None
    flags: tuple[str, ...] = ()
    tres_of_user: Mapping[str, int] = field(default_factory=dict)
    jobs_of_user: int | None = None


@dataclass(frozen=True)
class Reservation:
    """A reservation; times in seconds since the epoch, flags as Slurm writes them (``MAINT``, ``FLEX`` …)."""

    name: str
    start: int | None = None
    end: int | None = None
    state: str = ""
    nodes: str = ""
    partition: str = ""
    flags: tuple[str, ...] = ()


def associations_argv(user: str) -> list[str]:
    """Return the query for a user's associations (sent to slurmdbd)."""
    form = ",".join(_ASSOCIATION)
    return [*_SACCTMGR, "user", "withassoc", "where", f"name={user}", f"format={form}"]


def parse_associations(output: bytes, cluster: str) -> list[Association]:
    """Parse the answer to :func:`associations_argv`, for one cluster only."""
    found = []
    for row in _rows(output, len(_ASSOCIATION)):
        default, where, account, partition, qos, default_qos, wall = row
        if where == cluster and account:
            limit = read_time_limit(wall) if wall else None
            words = tuple(filter(None, qos.split(",")))
            found.append(Association(account, partition, words, default_qos, limit, account == default))
    return found


def accounts_argv(cluster: str) -> list[str]:
    """Return the query for all accounts of a cluster and their parents (sent to slurmdbd)."""
    # Associations without a user belong to accounts.
    return [*_SACCTMGR, "association", "where", f"cluster={cluster}", "user=", "format=account,parentname,user"]


def parse_accounts(output: bytes) -> dict[str, str]:
    """Parse the answer to :func:`accounts_argv`: the parent of each account, if any, in lower case."""
    return {account.lower(): above.lower() for account, above, user in _rows(output, 3) if account and not user}


def qos_argv() -> list[str]:
    """Return the query for all QOS (sent to slurmdbd)."""
    return [*_SACCTMGR, "qos", f"format={','.join(_QOS)}"]


def parse_qos(output: bytes) -> list[Qos]:
    """Parse the answer to :func:`qos_argv`."""
    return [
        Qos(
            name,
            read_time_limit(wall) if wall else None,
            tuple(filter(None, flags.lower().split(","))),
            parse_tres(tres),
            parse_count(jobs) if jobs else None,
        )
        for name, wall, flags, tres, jobs in _rows(output, len(_QOS))
        if name
    ]


def clusters_argv() -> list[str]:
    """Return the query for the clusters that share an accounting database (sent to slurmdbd)."""
    return [*_SACCTMGR, "cluster", "format=cluster"]


def parse_clusters(output: bytes) -> list[str]:
    """Parse the answer to :func:`clusters_argv`."""
    return [row[0] for row in _rows(output, 1) if row[0]]


def reservations_argv() -> list[str]:
    """Return the query for all reservations (one REQUEST_RESERVATION_INFO)."""
    return ["scontrol", "--local", "--all", "--oneliner", "show", "reservation"]


def parse_reservations(output: bytes) -> list[Reservation]:
    """Parse the answer to :func:`reservations_argv`. If a word occurs twice, the first one counts."""
    found = []
    for line in decode(output).split("\n"):
        row = dict(reversed(re.findall(r"(?:^| )(\w+)=(\S*)", line)))
        if line.startswith("ReservationName=") and row["ReservationName"]:
            found.append(
                Reservation(
                    row["ReservationName"],
                    parse_epoch(row.get("StartTime", "")),
                    parse_epoch(row.get("EndTime", "")),
                    row.get("State", ""),
                    present(row.get("Nodes", "")),
                    present(row.get("PartitionName", "")),
                    tuple(filter(None, present(row.get("Flags", "")).split(","))),
                )
            )
    return found


def _rows(output: bytes, width: int) -> Iterator[list[str]]:
    for line in decode(output).split("\n"):
        row = line.split("|")
        if len(row) == width:  # a banner is not a row
            yield row
