"""``~/.ssh/config`` without OpenSSH: the part that paramiko can read, and a clear error for the rest."""

from __future__ import annotations

import getpass
import io
import os
import re
from typing import Final

import paramiko

from jupyter_slurm.errors import ConfigError
from jupyter_slurm.transport.local.trusted_file import check_trusted
from jupyter_slurm.transport.ssh.config.algorithms import DEFAULTS, changed

__all__ = ["plain_settings"]

_SYSTEM: Final = "/etc/ssh/ssh_config"
_DEFAULTS: Final = {
    "port": "22",
    "userknownhostsfile": "~/.ssh/known_hosts ~/.ssh/known_hosts2",
    "globalknownhostsfile": "/etc/ssh/ssh_known_hosts /etc/ssh/ssh_known_hosts2",
}
_KEYS: Final = ("id_rsa", "id_ecdsa", "id_ecdsa_sk", "id_ed25519", "id_ed25519_sk")
_UNKNOWN: Final = re.compile(
    r"^\s*(?:(include)\b|match\s[^#\n]*\b(exec)\b|(canonicalizehostname)[\s=]+(?:yes|always))",
    re.IGNORECASE | re.MULTILINE,
)


def plain_settings(
    name: str, user: str | None, port: int | None, jump: str | None, config_file: str | None
) -> dict[str, list[str]]:
    """Return the settings of a host under the names of ``ssh -G``, with tokens expanded.

    Raises
    ------
    ConfigError
        The file uses a feature that only OpenSSH has.
    """
    config = paramiko.SSHConfig()
    # The first value wins, so forced values stand above all others, and Match sees them.
    forced = {"User": user, "Port": port, "ProxyJump": jump}
    config.parse(io.StringIO("".join(f"{key} {value}\n" for key, value in forced.items() if value is not None)))
    files = [os.path.expanduser("~/.ssh/config"), _SYSTEM] if config_file is None else [config_file]
    for path in files:
        if path == files[0] and config_file is None:
            check_trusted(path, "The SSH configuration", with_folders=False)  # as OpenSSH does
        _read(config, path)
    try:
        found = config.lookup(name)
    except (paramiko.ConfigParseError, paramiko.SSHException, ImportError) as error:
        raise ConfigError(
            f"~/.ssh/config cannot be read for {name} without OpenSSH: {error}", hint="Install OpenSSH."
        ) from error
    settings = {key: value if isinstance(value, list) else [value] for key, value in found.items() if value is not None}
    if settings.get("proxyjump", ["none"])[0].lower() != "none":
        settings.pop("proxycommand", None)
    if "pubkeyacceptedkeytypes" in settings:  # the older name
        settings.setdefault("pubkeyacceptedalgorithms", settings.pop("pubkeyacceptedkeytypes"))
    for key in DEFAULTS.keys() & settings.keys():
        settings[key] = [changed(key, settings[key][0])]
    settings.setdefault("user", [getpass.getuser()])
    settings.setdefault("identityfile", [f"~/.ssh/{key}" for key in _KEYS])
    for key, value in _DEFAULTS.items():
        settings.setdefault(key, [value])
    return settings


def _read(config: paramiko.SSHConfig, path: str) -> None:
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            text = file.read()
            unknown = _UNKNOWN.search(text)
            if unknown is not None:
                word = next(group for group in unknown.groups() if group)
                raise ConfigError(
                    f"{path} uses {word}, which needs OpenSSH, but `ssh` is not on the PATH.",
                    hint="Install the OpenSSH client, or name the hosts in the profile without ~/.ssh/config.",
                )
            file.seek(0)
            config.parse(file)
    except FileNotFoundError:
        return
    except (OSError, paramiko.ConfigParseError) as error:
        raise ConfigError(f"{path} cannot be read: {error}", hint="Correct the file.") from error
