"""Route to a host according to ``~/.ssh/config``. OpenSSH itself is queried if it is installed.

Sources: ssh(1), ssh_config(5); ``ssh -G`` prints the configuration after Include, Match and canonicalisation.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pwd
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from jupyter_slurm.errors import CommandMissing, ConfigError
from jupyter_slurm.transport.local.transport import LocalTransport
from jupyter_slurm.transport.ssh.config.config_trust import check_config_file
from jupyter_slurm.transport.ssh.config.paramiko_config import plain_settings
from jupyter_slurm.transport.ssh.config.proxy_jump import as_jump, parse_jump

__all__ = ["HostConfig", "resolve_route"]

_HOST: Final = re.compile(r"[A-Za-z0-9_.:][A-Za-z0-9_.:%+-]{0,254}")
# Stricter than OpenSSH 9.6 and later: these values go into ProxyCommand, which a shell reads.
_ODD: Final = r"\x00-\x20\x7f'`\";&<>|(){}$*?!"
_USER: Final = re.compile(rf"[^\\{_ODD}-](?:[^{_ODD}]{{0,126}}[^\\{_ODD}])?")
_SSH_TIMEOUT_S: Final = 30.0
_MAX_JUMP_HOSTS: Final = 32
_METHODS: Final = {
    "publickey": "pubkeyauthentication",
    "keyboard-interactive": "kbdinteractiveauthentication",
    "password": "passwordauthentication",
}


@dataclass(frozen=True)
class HostConfig:
    """One host of a route, with all facts needed to reach it. No field is secret.

    Attributes
    ----------
    name : str
        Name in the profile or in ProxyJump; ``%n`` of ssh_config(5).
    hostname, port, user
        Destination and user of the connection.
    through : tuple of str
        Names of the hosts before it; empty: reached directly from this computer.
    proxy_command : str or None
        Text for ``/bin/sh -c "exec …"``, tokens expanded; only from the user's own configuration.
    identity_files, certificate_files : tuple of str
        Paths; the files may be missing.
    identity_agent : str or None
        The agent's socket; None: no agent.
    authentications : tuple of str
        Allowed methods, in the order of preference.
    host_key_alias : str or None
        The name in known_hosts, instead of ``hostname``.
    host_key_second : str or None
        Another name in known_hosts. A key known by this name is accepted, but no key is recorded under this name.
    strict : str
        ``yes`` (an unknown host key is refused without a question), else ``ask``.
    connect_timeout : float or None
        Seconds; None: the system's.
    address_family : str
        ``any``, ``inet`` or ``inet6``.
    config_file : str or None
        The configuration file, if not ``~/.ssh/config``.
    """

    name: str
    hostname: str
    port: int = 22
    user: str = ""
    through: tuple[str, ...] = ()
    proxy_command: str | None = None
    identity_files: tuple[str, ...] = ()
    certificate_files: tuple[str, ...] = ()
    identity_agent: str | None = None
    identities_only: bool = False
    authentications: tuple[str, ...] = tuple(_METHODS)
    password_prompts: int = 3
    batch_mode: bool = False
    host_key_alias: str | None = None
    host_key_second: str | None = None
    user_known_hosts: tuple[str, ...] = ()
    global_known_hosts: tuple[str, ...] = ()
    revoked_host_keys: str | None = None
    hash_known_hosts: bool = False
    strict: str = "ask"
    host_key_algorithms: tuple[str, ...] = ()
    pubkey_algorithms: tuple[str, ...] = ()
    ca_signature_algorithms: tuple[str, ...] = ()
    ciphers: tuple[str, ...] = ()
    macs: tuple[str, ...] = ()
    kex: tuple[str, ...] = ()
    required_rsa_size: int = 1024
    connect_timeout: float | None = None
    address_family: str = "any"
    bind_address: str | None = None
    control_path: str | None = None
    config_file: str | None = None

    @property
    def label(self) -> str:
        """Return the label shown to the user: the name, the address, and the hosts before it."""
        where = f"{self.user}@{self.hostname}" + (f" port {self.port}" if self.port != 22 else "")
        through = f", through {' and '.join(self.through)}" if self.through else ""
        return f"{self.name} ({where}{through})"


async def resolve_route(
    name: str,
    *,
    user: str | None = None,
    port: int | None = None,
    jump: Sequence[str] | None = None,
    config_file: str | None = None,
) -> list[HostConfig]:
    """Resolve a name of a profile to the hosts of the route, the nearest first and the target last.

    Parameters
    ----------
    name : str
        ``host`` or ``user@host``: a name in ``~/.ssh/config``, a host name or an address. From profiles only.
    user, port : optional
        Override the configuration.
    jump : sequence of str, optional
        Jump hosts, instead of ProxyJump; empty: none.
    config_file : str, optional
        Instead of ``~/.ssh/config`` and the system's file (``ssh -F``).

    Raises
    ------
    ConfigError
        The name or the configuration cannot be used, or the route contains a loop.
    """
    if "@" in name:
        user, _, name = name.rpartition("@")
    forced = None if jump is None else (",".join(jump) or "none")
    if config_file is not None:  # OpenSSH checks only the file that it reads by itself
        await asyncio.to_thread(check_config_file, config_file)
    return await _Way(config_file).hops(name, user, port, forced)


class _Way:
    """One resolution. It records the names already resolved, to detect loops."""

    def __init__(self, config_file: str | None) -> None:
        self._config_file = config_file
        self._visited: list[tuple[str, str | None, int | None, str | None]] = []

    async def hops(self, name: str, user: str | None, port: int | None, jump: str | None) -> list[HostConfig]:
        """Return the hosts up to ``name``. ``jump`` is a value for ``ssh -J``, and overrides the configuration."""
        step = (name, user, port, jump)
        if step in self._visited or len(self._visited) >= _MAX_JUMP_HOSTS:
            path = " -> ".join(seen[0] for seen in [*self._visited, step])
            raise ConfigError(
                f"The jump hosts form a loop: {path}.",
                hint="Correct ProxyJump in ~/.ssh/config. `Host * !NAME` excludes the jump host itself.",
            )
        self._visited.append(step)
        _check(name, user)
        for element in jump.split(",") if jump and jump != "none" else ():
            jump_user, jump_name, _ = parse_jump(element)
            _check(jump_name, jump_user)
        settings = await _query_ssh(name, user, port, jump, self._config_file)
        host = replace(_host(name, settings), config_file=self._config_file)
        via = settings.get("proxyjump", ["none"])[0]
        if host.proxy_command:
            via = as_jump(host.proxy_command, partial(_is_target, host), self._config_file) or via
            # else a command; then ssh -G prints no ProxyJump
        if via.lower() == "none":
            return [replace(host, proxy_command=host.proxy_command and _expand(host.proxy_command, host))]
        host = replace(host, proxy_command=None)
        extra, _, last = _expand(via, host).rpartition(",")
        jump_user, jump_name, jump_port = parse_jump(last)
        before = await self.hops(jump_name, jump_user, jump_port, extra or None)
        return [*before, replace(host, through=tuple(hop.name for hop in before))]


def _check(name: str, user: str | None) -> None:
    if not _HOST.fullmatch(name):
        raise ConfigError(
            f"{name!r} is not a valid host name: only letters, digits and . : _ - + are allowed, and no - "
            "at the beginning.",
            hint="Give the host an entry with a plain name in ~/.ssh/config (Host NAME).",
        )
    if user is not None and not _USER.fullmatch(user):
        raise ConfigError(
            f"{user!r} is not a valid user name on {name}.",
            hint="Correct the user name in the profile or in ~/.ssh/config.",
        )


async def _query_ssh(
    name: str, user: str | None, port: int | None, jump: str | None, config_file: str | None
) -> dict[str, list[str]]:
    """Return the settings of a host, from OpenSSH, or from paramiko if OpenSSH is not installed."""
    options = ["-T"]
    options += ["-F", config_file] if config_file is not None else []
    options += ["-l", user] if user is not None else []
    options += ["-p", str(port)] if port is not None else []
    options += ["-J", jump] if jump is not None else []
    try:
        settings = _parse(await _ssh_g([*options, "--", name], name))
    except CommandMissing:
        return plain_settings(name, user, port, jump, config_file)
    await _expand_files(settings, options, name)
    if "proxycommand" in settings and settings.get("proxyusefdpass") == ["yes"]:
        raise ConfigError(
            f"ProxyUseFdpass, which ~/.ssh/config sets for {name}, is not supported.",
            hint="Remove ProxyUseFdpass from ~/.ssh/config for this host.",
        )
    return settings


async def _ssh_g(arguments: Sequence[str], name: str) -> str:
    with contextlib.closing(LocalTransport(workers=1)) as here:
        done = await here.run(["ssh", "-G", *arguments], timeout=_SSH_TIMEOUT_S)
    if done.exit_code != 0:
        said = [line for line in done.stderr.decode(errors="replace").splitlines() if "Pseudo-terminal" not in line]
        raise ConfigError(
            f"OpenSSH does not accept its configuration for {name}: {' '.join(said)[:2000] or 'no reason given'}",
            hint=f"Correct ~/.ssh/config. `ssh -G {name}` shows the same error.",
        )
    return done.stdout.decode("utf-8", "surrogateescape")


def _parse(text: str) -> dict[str, list[str]]:
    settings: dict[str, list[str]] = {}
    for line in text.splitlines():
        key, _, value = line.partition(" ")
        settings.setdefault(key.lower(), []).append(value)
    return settings


async def _expand_files(settings: dict[str, list[str]], options: Sequence[str], name: str) -> None:
    """Expand the tokens in the paths of keys and certificates, which ``ssh -G`` prints unexpanded.

    ``ssh -G`` does expand ControlPath, with the same tokens. So OpenSSH is queried again with the paths as ControlPath,
    and every version applies its own tokens (``%C`` and ``%j`` have changed).
    """
    keys = ("identityfile", "certificatefile")
    texts = [text for key in keys for text in settings.get(key, []) if re.search(r"%|\$\{", text)]
    if not texts:
        return
    mark = "\x1f"
    quoted = mark.join(texts).replace("\\", "\\\\").replace('"', '\\"')
    answer = _parse(await _ssh_g([*options, "-o", f'ControlPath="{mark}{quoted}"', "--", name], name))
    expanded = dict(zip(texts, answer["controlpath"][0].split(mark)[1:], strict=True))
    for key in keys:
        settings[key] = [expanded.get(text, text) for text in settings.get(key, [])]


def _expand(text: str, host: HostConfig) -> str:
    """Expand the tokens of ProxyCommand and ProxyJump (ssh_config(5), TOKENS).

    Raises
    ------
    ConfigError
        The token is not supported.
    """
    values = {
        "%": "%",
        "h": host.hostname,
        "k": host.host_key_alias or host.name,
        "n": host.name,
        "p": str(host.port),
        "r": host.user,
    }

    def value(match: re.Match[str]) -> str:
        if match[1] not in values:
            raise ConfigError(
                f"%{match[1]} has no meaning in ProxyCommand or ProxyJump of {host.name}.",
                hint="Correct it in ~/.ssh/config. ssh_config(5) lists the valid tokens under TOKENS.",
            )
        return values[match[1]]

    return re.sub(r"%(.?)", value, text, flags=re.DOTALL)


def _is_target(host: HostConfig, text: str) -> bool:
    """Return whether ``ssh -W`` means this host; paramiko has already expanded the value."""
    name, _, port = _expand(text, host).rpartition(":")
    name = name.removeprefix("[").removesuffix("]")
    return (name.lower(), port) == (host.hostname.lower(), str(host.port))


class _Settings:
    """Settings of a host in the form of ``ssh -G``."""

    def __init__(self, settings: Mapping[str, Sequence[str]]) -> None:
        self._settings = settings

    def one(self, key: str, default: str = "") -> str:
        value = self._settings.get(key, [default])[0]
        return default if value.lower() == "none" else value

    def names(self, key: str) -> tuple[str, ...]:
        return tuple(self.one(key).split(",")) if self.one(key) else ()

    def paths(self, key: str) -> tuple[str, ...]:
        return tuple(_tilde(path) for path in self._settings.get(key, ()) if path.lower() != "none")

    def on(self, key: str, default: str = "no") -> bool:
        return self.one(key, default) in ("yes", "true")


def _host(name: str, settings: Mapping[str, Sequence[str]]) -> HostConfig:
    """Build a host from the output of ``ssh -G``."""
    said = _Settings(settings)
    user, hostname = settings["user"][0], settings.get("hostname", [name])[0]
    _check(hostname, user)
    wanted = said.names("preferredauthentications") or tuple(_METHODS)
    return HostConfig(
        name=name,
        hostname=hostname,
        port=int(said.one("port", "22")),
        user=user,
        proxy_command=said.one("proxycommand") or None,
        identity_files=said.paths("identityfile"),
        certificate_files=said.paths("certificatefile"),
        identity_agent=_agent(settings.get("identityagent", ["SSH_AUTH_SOCK"])[0]),
        identities_only=said.on("identitiesonly"),
        authentications=tuple(method for method in wanted if method in _METHODS and said.on(_METHODS[method], "yes")),
        password_prompts=int(said.one("numberofpasswordprompts", "3")),
        batch_mode=said.on("batchmode"),
        host_key_alias=said.one("hostkeyalias") or None,
        user_known_hosts=_split_known_hosts(said.one("userknownhostsfile")),
        global_known_hosts=_split_known_hosts(said.one("globalknownhostsfile")),
        revoked_host_keys=_tilde(said.one("revokedhostkeys")) or None,
        hash_known_hosts=said.on("hashknownhosts"),
        strict="yes" if said.one("stricthostkeychecking") in ("yes", "true") else "ask",
        host_key_algorithms=said.names("hostkeyalgorithms"),
        pubkey_algorithms=said.names("pubkeyacceptedalgorithms") or said.names("pubkeyacceptedkeytypes"),
        ca_signature_algorithms=said.names("casignaturealgorithms"),
        ciphers=said.names("ciphers"),
        macs=said.names("macs"),
        kex=said.names("kexalgorithms"),
        required_rsa_size=int(said.one("requiredrsasize", "1024")),
        connect_timeout=float(said.one("connecttimeout")) if said.one("connecttimeout") else None,
        address_family=said.one("addressfamily", "any"),
        bind_address=said.one("bindaddress") or None,
        control_path=said.one("controlpath") or None,
    )


def _split_known_hosts(value: str) -> tuple[str, ...]:
    """Split the list of files. ``ssh -G`` prints spaces in paths unquoted, but all paths are absolute."""
    return tuple(_tilde(path) for path in re.split(r" (?=[/~])", value) if path and path.lower() != "none")


def _tilde(path: str) -> str:
    """Expand ``~`` as OpenSSH does: by the user database, not by HOME."""
    if not path.startswith("~"):
        return path
    name, _, rest = path[1:].partition("/")
    try:
        entry = pwd.getpwnam(name) if name else pwd.getpwuid(os.getuid())
    except KeyError:
        return path
    return os.path.join(entry.pw_dir, rest)


def _agent(value: str) -> str | None:
    """Return the agent's socket for IdentityAgent."""
    if value.lower() == "none":
        return None
    if value == "SSH_AUTH_SOCK":
        return os.environ.get("SSH_AUTH_SOCK") or None
    if value.startswith("$") and not value.startswith("${"):
        return os.environ.get(value[1:]) or None
    return _tilde(value) or None
