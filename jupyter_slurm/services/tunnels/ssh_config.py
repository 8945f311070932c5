"""Entries of ``ssh_config(5)`` for the nodes of running jobs, and the jupyter_slurm file that holds them.

All values come from a profile, from ``ssh -G`` or from Slurm. Characters that could end a value and start another line,
or have a meaning in OpenSSH, are refused.
"""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from jupyter_slurm.domain.scripts.script import quote_argv
from jupyter_slurm.errors import ConfigError
from jupyter_slurm.sites.profile import Profile
from jupyter_slurm.transport.ssh.config.ssh_config import HostConfig
from jupyter_slurm.transport.ssh.forwarding.node import known_hosts_name
from jupyter_slurm.transport.ssh.hostkeys.known_hosts_entries import entries_for

__all__ = [
    "FILE",
    "SshConfigEntry",
    "SshConfigFiles",
    "config_text",
    "entry_for",
    "node_names",
    "parse_entries",
    "quote_value",
    "with_include",
    "without_include",
]

FILE: Final = "jupyter_slurm.conf"
_HEAD: Final = (
    "# Written by `jupyter slurm ssh-config --write`, which removes the entries of jobs that have ended.\n"
    "# Changes made here are lost.\n"
)
_WORD: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]{0,254}")
_JOB: Final = re.compile(r"\d+(?:[_+]\d+)?")
_MARK: Final = re.compile(r"# cluster=([\w.-]+) job=(\d+(?:[_+]\d+)?|-) submitted=(\d+) node=([\w.:-]+)", re.ASCII)
# Line ends for Python or OpenSSH, quotes, and in User what a shell of `Match exec` or a token would read. A cluster may
# name any user.
_REFUSED: Final = re.compile(r'[\x00-\x1f\x7f-\x9f\u2028\u2029"]|\$\{')
_REFUSED_IN_USER: Final = re.compile(r"^-|[\s%'`$;&<>|(){}]")
_KNOWN_HOSTS_FILE: Final = {
    "UserKnownHostsFile": ("~/.ssh/known_hosts", "~/.ssh/known_hosts2"),
    "GlobalKnownHostsFile": ("/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2"),
}
_KEYS: Final = frozenset(f"id_{kind}" for kind in ("rsa", "ecdsa", "ecdsa_sk", "ed25519", "ed25519_sk", "xmss", "dsa"))


@dataclass(frozen=True)
class SshConfigFiles:
    """Node that a user may log in to.

    Attributes
    ----------
    node : str
        Name in Slurm.
    address : str
        Address for the login node (NodeAddr).
    job : str
        Running job; empty: the node was requested by name.
    submitted : int
        Submission time of the job, seconds since the epoch: IDs are reused.
    is_first : bool
        Whether the node is the first one of the job, where the batch script runs.
    """

    node: str
    address: str
    job: str = ""
    submitted: int = 0
    is_first: bool = True


@dataclass(frozen=True)
class SshConfigEntry:
    """One section of the file, with its node."""

    cluster: str
    job: str
    submitted: int
    node: str
    text: str


def entry_for(
    cluster: str, place: SshConfigFiles, profile: Profile | None, login: HostConfig | None, control: str | None = None
) -> SshConfigEntry:
    """Return the section for a node.

    Parameters
    ----------
    cluster : str
        Name of the cluster.
    place : SshConfigFiles
        The node.
    profile, login : optional
        Connection to the login node, and the output of ``ssh -G`` for it; None: this machine reaches the node directly.
    control : str, optional
        Control socket of a login, used while it exists, so that there is no further prompt.

    Raises
    ------
    ConfigError
        A name or path is not allowed in such a file.
    """
    for what, text in (("a node", place.node), ("an address", place.address), ("a cluster", cluster)):
        if not _WORD.fullmatch(text):
            raise ConfigError(
                f"{text!r} cannot be {what} in the ssh configuration.", hint="Correct the name in the profile."
            )
    if place.job and not _JOB.fullmatch(place.job):
        raise ConfigError(f"{place.job!r} is not a job ID.", hint="List your jobs with `jupyter slurm jobs`.")
    lines = [f"HostName {place.address}"]
    # Many sites reassign addresses of nodes; the name identifies the machine.
    lines.append(f"HostKeyAlias {_alias(cluster if profile is not None else '', place.node, login)}")
    if profile is not None and login is not None:
        lines += [
            quote_value("User", login.user),
            _through(profile, control),
            *_identity(login),
            *_known_hosts_lines(login),
        ]
    names = node_names(cluster, place)
    text = f"Host {' '.join(names)}\n" + "".join(f"    {line}\n" for line in lines)
    return SshConfigEntry(cluster, place.job, place.submitted, place.node, text)


def node_names(cluster: str, place: SshConfigFiles) -> list[str]:
    """Return the node's host names: ``CLUSTER-JOB`` (its first node), ``CLUSTER-JOB-NODE``, ``CLUSTER-NODE``."""
    if not place.job:
        return [f"{cluster}-{place.node}"]
    job = f"{cluster}-{place.job}"
    return [*([job] if place.is_first else []), f"{job}-{place.node}", f"{cluster}-{place.node}"]


def config_text(entries: Iterable[SshConfigEntry]) -> str:
    """Return the text of the jupyter_slurm file."""
    return _HEAD + "".join(
        f"\n# cluster={one.cluster} job={one.job or '-'} submitted={one.submitted} node={one.node}\n{one.text}"
        for one in entries
    )


def parse_entries(text: str) -> list[SshConfigEntry]:
    """Parse the jupyter_slurm file; foreign content is left out."""
    entries: list[SshConfigEntry] = []
    about: re.Match[str] | None = None
    lines: list[str] = []
    for line in [*re.findall(r"[^\n]*\n|[^\n]+", text), "\n"]:
        if line.startswith(("#", "\n")):
            if about is not None and lines:
                job = "" if about[2] == "-" else about[2]
                entries.append(SshConfigEntry(about[1], job, int(about[3]), about[4], "".join(lines)))
            about, lines = _MARK.fullmatch(line.rstrip("\n")), []
        elif about is not None:
            lines.append(line)
    return entries


def with_include(text: str) -> str | None:
    """Return the text of ``~/.ssh/config`` with an Include of the file at its top; None: already present.

    Below a Host or Match line the Include would apply only to that one, and earlier settings would win.
    """
    for line in text.splitlines():
        words = line.replace("=", " ", 1).split()
        key = words[0].lower() if words else ""
        if key in ("host", "match"):
            break
        if key == "include" and any(os.path.basename(word.strip('"')) == FILE for word in words[1:]):
            return None
    return f"Include {FILE}\n\n{text}"


def without_include(text: str) -> str:
    """Return the text of ``~/.ssh/config`` without the line that :func:`with_include` adds."""
    return re.sub(rf"^Include {re.escape(FILE)}\n\n?", "", text, count=1, flags=re.MULTILINE)


def quote_value(key: str, value: str) -> str:
    """Return one line, with the value as one literal word for OpenSSH."""
    if not value or _REFUSED.search(value) or (key == "User" and _REFUSED_IN_USER.search(value)):
        raise ConfigError(
            f"{value!r} cannot be used as {key} in the ssh configuration.",
            hint="Use a name without quotes, spaces and control characters.",
        )
    escaped = value.replace("%", "%%")
    return f'{key} "{escaped}"' if re.search(r"[\s#']", value) else f"{key} {escaped}"


def _through(profile: Profile, control: str | None) -> str:
    """Return the line that leads through the login node, by the route of the profile.

    ProxyJump cannot express some routes: another file, no jump host although the file names one, or an open login.
    These use an ssh command.
    """
    user, _, host = profile.host.rpartition("@")
    user = profile.user or user
    if profile.ssh_config is None and profile.jump != () and control is None:
        last = f"[{host}]" if ":" in host else host
        last = (f"{user}@" if user else "") + last + (f":{profile.port}" if profile.port else "")
        return f"ProxyJump {','.join([*(profile.jump or ()), last]).replace('%', '%%')}"
    options = ["-S", control] if control is not None else []
    options += ["-F", profile.ssh_config] if profile.ssh_config is not None else []
    options += ["-l", user] if user else []
    options += ["-p", str(profile.port)] if profile.port else []
    options += ["-J", ",".join(profile.jump) or "none"] if profile.jump is not None else []
    command = quote_argv([*options, "--", host]).replace("%", "%%")
    if re.search(r"[\x00-\x1f\x7f]", command):
        raise ConfigError(
            f"{command!r} cannot be used in the ssh configuration.",
            hint="Rename the file of the profile: use letters, digits and dashes only.",
        )
    # ssh(1): brackets are for addresses with colons, quoted for the shell of ProxyCommand.
    return f"ProxyCommand ssh -W '[%h]:%p' {command}"


def _identity(login: HostConfig) -> list[str]:
    """Return the identity for the login node: homes are shared, and so are the keys that open the nodes."""
    files = [path for path in login.identity_files if os.path.exists(path) or os.path.exists(f"{path}.pub")]
    home = os.path.join(_home(), ".ssh")
    if all(os.path.dirname(path) == home and os.path.basename(path) in _KEYS for path in files):
        files = []  # OpenSSH tries those by itself
    lines = [quote_value("IdentityFile", path) for path in files]
    lines += [quote_value("CertificateFile", path) for path in login.certificate_files if os.path.exists(path)]
    if login.identities_only:
        lines.append("IdentitiesOnly yes")
    if login.identity_agent and login.identity_agent != os.environ.get("SSH_AUTH_SOCK"):
        lines.append(quote_value("IdentityAgent", login.identity_agent))
    return lines


def _known_hosts_lines(login: HostConfig) -> list[str]:
    """Return the known_hosts settings of the node: the files and the strictness of the login node."""
    lines = []
    for key, files in (
        ("UserKnownHostsFile", login.user_known_hosts),
        ("GlobalKnownHostsFile", login.global_known_hosts),
    ):
        usual = tuple(path.replace("~", _home(), 1) for path in _KNOWN_HOSTS_FILE[key])
        if tuple(files) != usual:
            lines.append(f"{key} {_files(key, files)}")
    return [*lines, "StrictHostKeyChecking yes"] if login.strict == "yes" else lines


def _alias(cluster: str, node: str, login: HostConfig | None) -> str:
    """Return the name of a node in known_hosts, with that of its cluster, because two clusters may have a ``node1``.

    If nobody can accept a key, the name in the present known_hosts is used.
    """
    name = known_hosts_name(cluster, node)
    if login is not None and login.strict == "yes":
        files = [*login.user_known_hosts, *login.global_known_hosts]
        known = [each for each in (name, node) if any(entries_for(each.lower(), files))]
        return [*known, name][0]
    return name


def _files(key: str, files: Sequence[str]) -> str:
    return " ".join(quote_value(key, path).partition(" ")[2] for path in files) or "none"


def _home() -> str:
    """Return the home directory as OpenSSH knows it: from the user database, not from HOME."""
    return pwd.getpwuid(os.getuid()).pw_dir
