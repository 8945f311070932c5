"""Parser of site profiles: one TOML file a cluster, checked against ``profile.schema.json``."""

from __future__ import annotations

import functools
import json
import math
import os
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from importlib import resources
from typing import Any, cast

import fastjsonschema

from jupyter_slurm.documentation import page_url
from jupyter_slurm.domain.containers.image_reference import check_described, check_settings
from jupyter_slurm.domain.profile_tables import (
    AdviceTable,
    CommandsTable,
    ContainerTable,
    CostTable,
    EnvironmentTable,
    LaunchTable,
    StorageTable,
    TomlTable,
    VpnTable,
)
from jupyter_slurm.errors import ConfigError, UsageError
from jupyter_slurm.sites.profile_lines import line_number, profile_names
from jupyter_slurm.sites.shipped import shipped_names, shipped_text
from jupyter_slurm.transport.local.trusted_file import check_trusted

__all__ = [
    "Profile",
    "check_container",
    "check_environments",
    "check_table",
    "find_profile",
    "list_profiles",
    "load_profile",
    "parse_profile",
    "profile_items",
    "read_profile",
]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
_MAX_PROFILE_BYTES = 1_000_000
_KEYS = f"See the keys of a profile: {page_url('reference/site-profile')}"


@dataclass(frozen=True)
class Profile:
    """Facts about a cluster. Times are in seconds.

    Attributes
    ----------
    name : str
        The cluster's id for the user and in the API.
    host : str
        The login node, as ``~/.ssh/config`` names it.
    jump : tuple of str or None
        Jump hosts; None: as in ``~/.ssh/config``.
    user : str or None
    port : int or None
        None: as in ``~/.ssh/config``.
    ssh_config : str or None
        File to read instead of ``~/.ssh/config``.
    carrier : str
        ``paramiko`` or ``openssh``.
    max_age : float or None
        Time after which a login ends.
    prelude : str
        Shell text before every command.
    login_shell : bool
        Whether the environment is that of a login shell.
    patience : float
        Time limit of the login shell's start-up files.
    slurm_conf : str or None
        SLURM_CONF on the cluster.
    job_root : str
        Parent directory of the job directories on the cluster; ``~/`` is the home.
    poll_shortest : float
        Shortest interval between two regular queries of the queue; if longer than 10 s, the average of all.
    ports : tuple of two int
        First and last local port for tunnels.
    ways : tuple of str
        Routes to compute nodes, in the order of the attempts.
    node_ports : tuple of two int, or None
        First and last port of nodes for sessions reachable from the login node (``direct``).
    unproven : bool
        Whether a tunnel may lead to a port whose owner the node does not report.
    title, python : str
        Displayed name, and interpreter of Python cells on the nodes.
    environments : mapping
        Environments of jobs by name, with their descriptions.
    container : mapping
        Settings of all containers of jobs: ``runtime``, ``bind``, ``gpu_variable``, ``gpus``, ``image_dir``; of jobs
        that build images ``base``, ``build_dir``, ``build_options``; ``shared``, folders of the site.
    advice : mapping
        Advice of the site about jobs: ``cpus_per_gpu``, ``memory``.
    commands : mapping
        Commands on the login node: ``allowed``, ``time_limit``, ``cpu_limit``, ``start_ahead``.
    cost : mapping
        Price of an hour: ``unit``, ``cpu_hour``, and ``gpu_hour``, a number or one for each type.
    launch : mapping
        Initial values of a session's launch form: ``partition``, ``gpus``, ``gpu_type``, ``cpus``, ``memory``,
        ``time``, ``account``, ``qos``, ``env``, ``dir``.
    storage : mapping
        Storage of job files: ``shared``, ``local``, ``home_on_nodes``, ``expires``; and for reports about it
        ``usage_file``, ``usage_command``.
    known : mapping
        Tables used until the cluster has answered: ``partitions``, ``accounts``, ``qos``, ``gpus``.
    notes : tuple of str
        Notes for its users.
    trust : str or None
        Whether values and displays may run code on this computer; None: as in the settings.
    vpn : mapping or None
        VPN that the local computer needs: ``name``, ``url``.
    """

    name: str
    host: str
    jump: tuple[str, ...] | None = None
    user: str | None = None
    port: int | None = None
    ssh_config: str | None = None
    carrier: str = "paramiko"
    max_age: float | None = None
    prelude: str = ""
    login_shell: bool = False
    patience: float = 120.0
    slurm_conf: str | None = None
    job_root: str = "~/.local/share/jupyter_slurm/jobs"
    poll_shortest: float = 10.0
    ports: tuple[int, int] = (8000, 9000)
    ways: tuple[str, ...] = ("ssh", "nested", "step", "direct")
    node_ports: tuple[int, int] | None = None
    unproven: bool = False
    title: str = ""
    python: str = "python3"
    environments: Mapping[str, EnvironmentTable] = field(default_factory=dict)
    container: ContainerTable = field(default_factory=ContainerTable)
    cost: CostTable = field(default_factory=CostTable)
    advice: AdviceTable = field(default_factory=AdviceTable)
    commands: CommandsTable = field(default_factory=CommandsTable)
    launch: LaunchTable = field(default_factory=LaunchTable)
    storage: StorageTable = field(default_factory=StorageTable)
    known: Mapping[str, TomlTable] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    trust: str | None = None
    vpn: VpnTable | None = None


def load_profile(name: str, folders: Sequence[str]) -> Profile:
    """Read the profile of a cluster.

    Parameters
    ----------
    name : str
        Name of the cluster: the file is ``NAME.toml``.
    folders : sequence of str
        Folders to search, in order.

    Raises
    ------
    ConfigError
        The profile does not exist, or is not valid.
    """
    path, raw = read_profile(name, folders)
    return parse_profile(name, raw, path)


def read_profile(name: str, folders: Sequence[str]) -> tuple[str, bytes]:
    """Return the path of the profile of a cluster, and its text; see :func:`load_profile`."""
    if (path := find_profile(name, folders)) is not None:
        check_trusted(path, "The site profile")
        try:
            with open(path, "rb") as file:
                return path, file.read(_MAX_PROFILE_BYTES)
        except OSError as error:
            raise ConfigError(f"{path} cannot be read: {error.strerror}.", hint="Check its permissions.") from None
    way = f"Set up the built-in profile with `jupyter slurm init --profile {name}`."
    raise ConfigError(
        f"There is no site profile {name!r} (known: {', '.join(list_profiles(folders)) or 'none'}).",
        hint=way if name in shipped_names() else "Create one with `jupyter slurm init`.",
    )


def find_profile(name: str, folders: Sequence[str]) -> str | None:
    """Return the path of the first profile of that name; None if there is none."""
    paths = (os.path.join(folder, f"{name}.toml") for folder in folders if _NAME.fullmatch(name))
    return next(filter(os.path.lexists, paths), None)


def list_profiles(folders: Sequence[str]) -> list[str]:
    """Return the names of all profiles, sorted."""
    names = set()
    for folder in folders:
        try:
            found = os.listdir(folder)
        except OSError:
            continue
        names |= {entry.removesuffix(".toml") for entry in found if entry.endswith(".toml")}
    return sorted(name for name in names if _NAME.fullmatch(name))


def parse_profile(name: str, raw: bytes, path: str) -> Profile:
    """Parse the text of a profile; ``path`` appears in error messages."""
    data, text = _read(name, raw, path)
    return _profile(name, data, path, text)


def profile_items(name: str, raw: bytes, path: str) -> TomlTable:
    """Return a profile merged with the profile that it extends.

    Raises
    ------
    ConfigError
        The profile is not valid.
    """
    data, text = _read(name, raw, path)
    _profile(name, data, path, text)
    return data


def _read(name: str, raw: bytes, path: str) -> tuple[TomlTable, str]:
    if name == "local" or name.startswith("local-"):
        raise ConfigError(
            f"{path}: {name!r} is the name of the Slurm of this computer.", hint="Give the file another name."
        )
    try:
        text = raw.decode("utf-8").replace("\r\n", "\n")
        data: TomlTable = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        line = re.search(r"at line (\d+)", str(error))
        place = f"{path}:{line[1]}" if line else path
        raise ConfigError(f"{place} is not TOML: {error}", hint="Correct the syntax of this line.") from None
    if "extends" in data:
        data = _extended(data, path, text)
    _check(data, path, _KEYS, text)
    if found := re.fullmatch(r"([^:]+):(\d+)", data["login"]["host"]):
        raise ConfigError(
            f"{_at(path, text, ['login', 'host'])}: login.host: {found[0]!r} contains a port.",
            hint=f'Write host = "{found[1]}" and port = {found[2]}.',
        )
    return data, text


def _extended(data: TomlTable, path: str, text: str) -> TomlTable:
    """Merge a profile into the one that it extends: each of its keys replaces the key of the base."""
    names, named = shipped_names(), data["extends"]
    if not isinstance(named, str) or named not in names:
        near = get_close_matches(str(named), names, n=1)
        raise ConfigError(
            f"{_at(path, text, ['extends'])}: extends: there is no built-in profile {named!r}.",
            hint=f"Did you mean {near[0]}?" if near else f"The built-in profiles are {', '.join(names)}.",
        )
    return _merged(tomllib.loads(shipped_text(named)), {key: data[key] for key in data if key != "extends"})


def _merged(base: TomlTable, upon: TomlTable) -> TomlTable:
    both = {
        key: _merged(base[key], upon[key])
        for key in base.keys() & upon.keys()
        if isinstance(base[key], Mapping) and isinstance(upon[key], Mapping)
    }
    return {**base, **upon, **both}


def _at(path: str, text: str, keys: Sequence[str]) -> str:
    """Return the file, and the line if known."""
    line = line_number(text, keys)
    return path if line is None else f"{path}:{line}"


def _profile(name: str, data: TomlTable, path: str, text: str) -> Profile:
    login, shell, slurm = data["login"], data.get("shell", {}), data.get("slurm", {})
    tunnels = data.get("tunnels", {})
    for key in ("ports", "node_ports"):
        first, last = tunnels.get(key, (8000, 9000))
        if first > last:
            place = _at(path, text, ["tunnels", key])
            raise ConfigError(f"{place}: tunnels.{key}: {first} is after {last}.", hint="Write the lower port first.")
    first, last = tunnels.get("ports", (8000, 9000))
    chosen = {
        "jump": tuple(login["jump"]) if "jump" in login else None,
        "ssh_config": os.path.expanduser(login["ssh_config"]) if "ssh_config" in login else None,
        **{key: login[key] for key in ("user", "port", "vpn", "carrier", "max_age") if key in login},
        **{key: shell[key] for key in ("prelude", "login_shell", "patience") if key in shell},
        **({"python": data["python"]["path"]} if "path" in data.get("python", {}) else {}),
        **{key: slurm[key] for key in ("job_root", "poll_shortest") if key in slurm},
        **({"ways": tuple(tunnels["ways"])} if "ways" in tunnels else {}),
        "environments": check_environments(data.get("env", {}), path, text),
        "container": check_container(data.get("container", {}), path, text),
        **{table: data.get(table, {}) for table in ("cost", "advice", "commands", "launch", "storage")},
        "known": profile_names(data, lambda keys: _at(path, text, keys)),
        "notes": tuple(data.get("notes", ())),
        **({"node_ports": tuple(tunnels["node_ports"])} if "node_ports" in tunnels else {}),
        "unproven": tunnels.get("unproven", False),
        "trust": data.get("trust"),
    }
    return Profile(
        name, login["host"], slurm_conf=slurm.get("conf"), ports=(first, last), title=data.get("title", name), **chosen
    )


def check_environments(data: TomlTable, path: str, text: str = "") -> Mapping[str, EnvironmentTable]:
    """Return validated environments of jobs; ``path`` and ``text`` appear in error messages.

    Raises
    ------
    ConfigError
        An environment is not valid.
    """
    if not data:
        return {}
    _check({"login": {"host": "any"}, "env": data}, path, _KEYS, text)
    for name, one in data.items():
        place = f"{_at(path, text, ['env', name])}: env.{name}"
        if "venv" in one and "conda" in one:
            raise ConfigError(f"{place} sets both venv and conda.", hint=f"Leave one of them out. {_KEYS}")
        try:
            check_described(one)
        except UsageError as error:
            raise ConfigError(f"{place}: {error.message}", hint=error.hint) from None
    return data


def check_container(data: TomlTable, path: str, text: str = "") -> ContainerTable:
    """Return the validated settings of all containers; ``path`` and ``text`` appear in error messages.

    Raises
    ------
    ConfigError
        A setting is not valid.
    """
    if not data:  # a first submission does not wait for the checker
        return {}
    _check({"login": {"host": "any"}, "container": dict(data)}, path, _KEYS, text)
    try:
        check_settings(cast("ContainerTable", data))
    except UsageError as error:
        key = error.details["option"]
        place = _at(path, text, ["container", key])
        raise ConfigError(f"{place}: container.{key}: {error.message}", hint=error.hint) from None
    return cast("ContainerTable", data)


def check_table(name: str, text: TomlTable, path: str) -> TomlTable:
    """Return a table such as ``[advice]``, validated; ``path`` appears in error messages.

    Raises
    ------
    ConfigError
        The table is not valid.
    """
    if text:
        _check({"login": {"host": "any"}, name: dict(text)}, path, _KEYS)
    return text


def _check(data: TomlTable, path: str, hint: str, text: str = "") -> None:
    """Validate a profile; the error names the key, and its line if the text is given."""
    try:
        _checker()(data)
    except fastjsonschema.JsonSchemaValueException as error:
        keys = [str(part) for part in error.path[1:]]
        known = list(error.definition.get("properties", {})) if error.rule == "additionalProperties" else []
        for key in error.value if known else ():
            if key not in known:
                near = get_close_matches(key, known, n=1)
                raise ConfigError(
                    f"{_at(path, text, [*keys, key])}: {'.'.join([*keys, key])} is not a valid key.",
                    hint=f"Did you mean {near[0]}?" if near else f"The valid keys are {', '.join(known)}. {hint}",
                ) from None
        where = ".".join(keys) or "the profile"
        raise ConfigError(f"{_at(path, text, keys)}: {where} {error.message.partition(' ')[2]}.", hint=hint) from None
    _check_values(data, [], lambda keys: f"{_at(path, text, keys)}: {'.'.join(keys)}", hint)


def _check_values(value: Any, keys: list[str], place: Callable[[list[str]], str], hint: str) -> None:
    """Refuse values without a meaning in a profile: TOML 1.0 allows nan, inf and a NUL in a text."""
    if isinstance(value, float) and not math.isfinite(value):
        raise ConfigError(f"{place(keys)}: {value} is not a finite number.", hint=hint)
    if isinstance(value, str) and "\0" in value:
        raise ConfigError(f"{place(keys)} holds a NUL byte.", hint="Remove the NUL byte.")
    inner = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
    for key, one in inner:
        _check_values(one, [*keys, str(key)], place, hint)


@functools.cache
def _checker() -> Callable[[Any], Any]:
    text = resources.files("jupyter_slurm.sites").joinpath("profile.schema.json").read_text("utf-8")
    checker: Callable[[Any], Any] = fastjsonschema.compile(json.loads(text))
    return checker
