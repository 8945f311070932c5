"""Description of a cluster: a small TOML file, checked key by key.

Every value ends up in a Slurm configuration file or in an argument of ``sacctmgr``. So every value must match a pattern
in full: a line break or a blank in a name can never become a second setting.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from jupyter_slurm.embedded.toml_fields import DESCRIPTION_HINT, Table
from jupyter_slurm.errors import ConfigError

if TYPE_CHECKING:
    from jupyter_slurm.domain.profile_tables import TomlTable

__all__ = [
    "Account",
    "Description",
    "NodeGroup",
    "Partition",
    "Preemption",
    "Qos",
    "User",
    "default_description",
    "load_description",
    "parse_description",
]

MAX_NODES = 128
"""Each node is a daemon on this machine, which is not made for more."""


@dataclass(frozen=True)
class NodeGroup:
    """Nodes with equal properties. ``memory`` is in MiB; ``gpus`` maps a type (empty: no type) to a count.

    ``gres`` maps other generic resources (``npu:910b``, ``tpu``, ``shard``) to a count; they have no devices.

    ``hidden`` are directories of this machine that the nodes do not see, like those on a login node's own disk. Such
    nodes have their own host names.
    """

    names: tuple[str, ...]
    cpus: int
    memory: int
    features: tuple[str, ...] = ()
    gpus: dict[str, int] = field(default_factory=dict)
    gres: dict[str, int] = field(default_factory=dict)
    hidden: tuple[str, ...] = ()

    @property
    def gpu_count(self) -> int:
        """Return the GPUs of one node, of all types together."""
        return sum(self.gpus.values())


@dataclass(frozen=True)
class Partition:
    """A partition; times are in Slurm's own form, empty times are left to Slurm."""

    name: str
    nodes: tuple[str, ...]
    default: bool = False
    max_time: str = ""
    default_time: str = ""
    max_nodes: int | None = None
    default_memory_per_cpu: int | None = None
    priority_tier: int | None = None
    preempt_mode: str = ""
    grace_time: int | None = None
    qos: str = ""
    allow_accounts: tuple[str, ...] = ()
    allow_qos: tuple[str, ...] = ()
    oversubscribe: str = ""
    state: str = ""


@dataclass(frozen=True)
class Account:
    """An account of the accounting database."""

    name: str
    parent: str = ""
    description: str = ""
    fairshare: int | None = None
    limits: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class User:
    """A user of the accounting database: the login name, and the user's accounts."""

    name: str
    accounts: tuple[str, ...]
    default_account: str = ""
    qos: tuple[str, ...] = ()
    default_qos: str = ""
    admin: str = ""
    limits: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Qos:
    """A quality of service; ``limits`` have sacctmgr's own names (``MaxWall``, ``MaxTRESPerUser``, …)."""

    name: str
    priority: int | None = None
    preempt: tuple[str, ...] = ()
    preempt_mode: str = ""
    grace_time: int | None = None
    flags: tuple[str, ...] = ()
    limits: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Preemption:
    """Preemption: which jobs give way (``PreemptType``) and how (``PreemptMode``)."""

    by: str = ""
    mode: str = "cancel"


@dataclass(frozen=True)
class Description:
    """A complete cluster. Immutable; :func:`dataclasses.replace` makes variants for tests."""

    name: str
    nodes: tuple[NodeGroup, ...]
    partitions: tuple[Partition, ...]
    accounting: bool = False
    accounts: tuple[Account, ...] = ()
    users: tuple[User, ...] = ()
    qos: tuple[Qos, ...] = ()
    preemption: Preemption = Preemption()
    private_data: tuple[str, ...] = ()
    enforce: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()

    @property
    def node_names(self) -> list[str]:
        """Return the names of all nodes, in the order of the description."""
        return [name for group in self.nodes for name in group.names]

    @property
    def tres(self) -> list[str]:
        """Return the additional resources that accounting counts: generic resources, and those of each type."""
        words = {f"gpu:{kind}" for group in self.nodes for kind in group.gpus if kind}
        words |= {word for group in self.nodes for name in group.gres for word in (name, name.partition(":")[0])}
        return ["gres/gpu", *sorted(f"gres/{word}" for word in words)]

    @property
    def gres_types(self) -> list[str]:
        """Return the names of the generic resources of all nodes."""
        others = {name.partition(":")[0] for group in self.nodes for name in group.gres}
        return [*(["gpu"] if any(group.gpus for group in self.nodes) else []), *sorted(others)]

    def with_users(self, *names: str, account: str = "c4ai") -> Description:
        """Return the description with accounting, in which these login names are users of one account and every QOS."""
        known = {user.name for user in self.users}
        missing = () if any(a.name == account for a in self.accounts) else (Account(account),)
        accounts = (*self.accounts, *missing)
        qos = ("normal", *(q.name for q in self.qos if q.name != "normal"))
        added = tuple(User(name, accounts=(account,), qos=qos) for name in names if name not in known)
        return replace(self, accounting=True, accounts=accounts, users=(*self.users, *added))


def default_description() -> str:
    """Return the text of the description in the package (TOML)."""
    return resources.files("jupyter_slurm.embedded").joinpath("arandu.toml").read_text(encoding="utf-8")


def load_description(path: Path | None = None) -> Description:
    """Read a description from a TOML file, or the description in the package (Arandu).

    Raises
    ------
    ConfigError
        The file cannot be read, is not TOML, or has an invalid key or value. The message names the key.
    """
    try:
        text = default_description() if path is None else path.read_text(encoding="utf-8")
        return parse_description(tomllib.loads(text))
    except OSError as error:
        raise ConfigError(
            f"The cluster description {path} cannot be read: {error.strerror}.",
            hint="Check the path and the permissions of the file.",
        ) from error
    except ValueError as error:
        raise ConfigError(f"The cluster description {path} is not TOML: {error}.", hint="Correct the file.") from error
    except RecursionError:
        raise ConfigError(f"The cluster description {path} is nested too deeply.", hint=DESCRIPTION_HINT) from None


def parse_description(data: TomlTable) -> Description:
    """Check a description parsed from TOML. Raises :class:`~jupyter_slurm.errors.ConfigError`."""
    table = Table(data, "")
    with table:
        description = Description(
            name=table.name("name", default="embedded"),
            nodes=tuple(_node_group(t) for t in table.tables("nodes")),
            partitions=tuple(_partition(t) for t in table.tables("partitions")),
            accounting=table.flag("accounting"),
            accounts=tuple(_account(t) for t in table.tables("accounts")),
            users=tuple(_user(t) for t in table.tables("users")),
            qos=tuple(_qos(t) for t in table.tables("qos")),
            preemption=_preemption(table.table("preemption")),
            private_data=table.choices("private_data", _PRIVATE_DATA),
            enforce=table.choices("enforce", _ENFORCE),
            extra=table.lines("extra"),
        )
    _check(description)
    return description


_PRIVATE_DATA = ("accounts", "events", "jobs", "nodes", "partitions", "reservations", "usage", "users")
_ENFORCE = ("associations", "limits", "nojobs", "nosteps", "qos", "safe", "wckeys")
_MODES = ("off", "cancel", "requeue", "suspend,gang", "suspend")


def _node_group(table: Table) -> NodeGroup:
    with table:
        return NodeGroup(
            names=table.hosts("names"),
            cpus=table.integer("cpus", default=1, minimum=1, maximum=4096),
            memory=table.memory("memory", default="1G"),
            features=table.names("features"),
            gpus=table.gpus("gpus"),
            gres=table.gres("gres"),
            hidden=table.directories("hidden"),
        )


def _partition(table: Table) -> Partition:
    with table:
        return Partition(
            name=table.name("name"),
            nodes=table.hosts("nodes"),
            default=table.flag("default"),
            max_time=table.time("max_time"),
            default_time=table.time("default_time"),
            max_nodes=table.optional_integer("max_nodes", minimum=1),
            default_memory_per_cpu=table.optional_memory("default_memory_per_cpu"),
            priority_tier=table.optional_integer("priority_tier", maximum=65533),
            preempt_mode=table.choice("preempt_mode", _MODES),
            grace_time=table.optional_integer("grace_time"),
            qos=table.name("qos", default=""),
            allow_accounts=table.names("allow_accounts"),
            allow_qos=table.names("allow_qos"),
            oversubscribe=table.matching("oversubscribe", r"(NO|EXCLUSIVE|(YES|FORCE)(:\d{1,4})?)"),
            state=table.choice("state", ("UP", "DOWN", "DRAIN", "INACTIVE")),
        )


def _account(table: Table) -> Account:
    with table:
        return Account(
            name=table.name("name"),
            parent=table.name("parent", default=""),
            description=table.phrase("description"),
            fairshare=table.optional_integer("fairshare"),
            limits=table.limits("limits"),
        )


def _user(table: Table) -> User:
    with table:
        return User(
            name=table.login("name"),
            accounts=table.names("accounts"),
            default_account=table.name("default_account", default=""),
            qos=table.names("qos"),
            default_qos=table.name("default_qos", default=""),
            admin=table.choice("admin", ("None", "Operator", "Administrator")),
            limits=table.limits("limits"),
        )


def _qos(table: Table) -> Qos:
    with table:
        return Qos(
            name=table.name("name"),
            priority=table.optional_integer("priority"),
            preempt=table.names("preempt"),
            preempt_mode=table.choice("preempt_mode", ("cluster", "cancel", "requeue", "suspend")),
            grace_time=table.optional_integer("grace_time"),
            flags=table.names("flags"),
            limits=table.limits("limits"),
        )


def _preemption(table: Table) -> Preemption:
    with table:
        return Preemption(
            by=table.choice("by", ("partition", "qos")),
            mode=table.choice("mode", _MODES) or "cancel",
        )


def _check(description: Description) -> None:
    """Refuse well-formed but impossible values: unknown nodes, repeated names, missing accounting."""
    names = description.node_names
    if not names:
        raise ConfigError("nodes: a cluster needs at least one node.", hint='Add [[nodes]] with names = "n[1-2]".')
    for key, given in (("nodes.names", names), ("partitions.name", [p.name for p in description.partitions])):
        if default := [name for name in given if name.upper() == "DEFAULT"]:
            raise ConfigError(
                f"{key}: {default[0]!r} is a reserved word of Slurm.",
                hint="Choose another name. `default = true` makes a partition the default.",
            )
    if len(names) > MAX_NODES:
        raise ConfigError(
            f"nodes: {len(names)} nodes are too many for one computer (at most {MAX_NODES}).",
            hint="Describe fewer nodes.",
        )
    if not description.partitions:
        raise ConfigError(
            "partitions: a cluster needs at least one partition.", hint="Add [[partitions]] with name and nodes."
        )
    _unique("nodes.names", names)
    _unique("partitions.name", [p.name for p in description.partitions])
    _unique("qos.name", [q.name for q in description.qos])
    _unique("accounts.name", [a.name for a in description.accounts])
    _unique("users.name", [u.name for u in description.users])
    for partition in description.partitions:
        if unknown := set(partition.nodes) - set(names):
            raise ConfigError(
                f"partitions.nodes: {partition.name} has nodes that are not described: {_list(unknown)}.",
                hint="Describe them under [[nodes]], or correct their names.",
            )
    if sum(p.default for p in description.partitions) > 1:
        raise ConfigError(
            "partitions.default: only one partition can be the default.",
            hint="Remove `default = true` from the others.",
        )
    _check_accounting(description)


def _check_accounting(description: Description) -> None:
    accounts = {"root", *(a.name for a in description.accounts)}
    qos = {"normal", *(q.name for q in description.qos)}
    if not description.accounting:
        for key in ("accounts", "users", "qos", "enforce"):
            if getattr(description, key):
                raise ConfigError(f"{key}: this key needs accounting.", hint="Set accounting = true.")
        if description.preemption.by == "qos":
            raise ConfigError("preemption.by: preemption by QOS needs accounting.", hint="Set accounting = true.")
    _check_tree(description, accounts)
    for user in description.users:
        if not user.accounts:
            raise ConfigError(
                f"users.accounts: the user {user.name} needs at least one account.", hint="Add `accounts` to the user."
            )
        _check_keys("users.accounts", user.accounts, accounts)
        _check_keys("users.default_account", [user.default_account], set(user.accounts))
        _check_keys("users.qos", [*user.qos, user.default_qos], qos)
    for level in description.qos:
        _check_keys("qos.preempt", level.preempt, qos)
    for partition in description.partitions:
        _check_keys("partitions.qos", [partition.qos, *partition.allow_qos], qos)
        _check_keys("partitions.allow_accounts", partition.allow_accounts, accounts)


def _check_tree(description: Description, accounts: set[str]) -> None:
    parents = {account.name: account.parent for account in description.accounts}
    if roots := [name for name in parents if name.lower() == "root"]:
        raise ConfigError(
            f"accounts.name: the account {roots[0]!r} exists in every cluster.", hint="Remove it from the description."
        )
    for name in parents:
        _check_keys("accounts.parent", [parents[name]], accounts)
    for name in parents:
        path = [name]
        while (above := parents.get(path[-1], "")) and above not in path:
            path.append(above)
        if above:
            raise ConfigError(
                f"accounts.parent: the accounts form a loop: {' -> '.join([*path, above])}.",
                hint="Correct `parent` of one of them.",
            )


def _check_keys(key: str, names: list[str] | tuple[str, ...], keys: set[str]) -> None:
    if unknown := {name for name in names if name} - keys:
        raise ConfigError(f"{key}: {_list(unknown)} is not described.", hint=f"The described names are {_list(keys)}.")


def _unique(key: str, names: list[str]) -> None:
    if twice := {name for name in names if names.count(name) > 1}:
        raise ConfigError(f"{key}: {_list(twice)} is given more than once.", hint="Give each name once.")


def _list(names: set[str]) -> str:
    return ", ".join(sorted(names))
