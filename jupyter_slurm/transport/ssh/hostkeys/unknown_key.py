"""Error for a host key that nobody has accepted, with the way to accept it if no question is possible."""

from __future__ import annotations

from jupyter_slurm.domain.scripts.script import quote_argv
from jupyter_slurm.errors import HostKeyUnknown
from jupyter_slurm.transport.ssh.config.ssh_config import HostConfig

__all__ = ["may_confirm_key", "openssh_adds", "unknown_key"]


def may_confirm_key(host: HostConfig) -> bool:
    """Return whether a host's configuration allows asking the user about its key."""
    return host.strict != "yes" and not host.batch_mode


def unknown_key(host: HostConfig, fingerprint: str, key_type: str, command: str) -> HostKeyUnknown:
    """Return the error for an unaccepted key.

    Parameters
    ----------
    command : str
        Command that adds the key, for cases without a question.
    """
    if may_confirm_key(host):
        hint = "Compare the fingerprint with the one that the site publishes, connect again, and answer yes."
    else:
        line = "StrictHostKeyChecking yes" if host.strict == "yes" else "BatchMode yes"
        hint = (
            f"`{line}`, which your ssh configuration has for {host.name}, forbids to ask you. Compare the fingerprint "
            f"with the one that the site publishes; if it is the same, this adds the key: {command}"
        )
    return HostKeyUnknown(
        f"nobody has said yes to the key of {host.label}: {fingerprint}",
        hint=hint,
        host=host.name,
        fingerprint=fingerprint,
        key_type=key_type,
    )


def openssh_adds(host: HostConfig) -> str:
    """Return the OpenSSH command that asks about a host's key, and adds it."""
    words = ["ssh", *(["-F", host.config_file] if host.config_file else [])]
    words += ["-o", "StrictHostKeyChecking=ask", *(["-o", "BatchMode=no"] if host.batch_mode else [])]
    words += ["-J", ",".join(host.through)] if host.through else []
    words += ["-l", host.user, *(["-p", str(host.port)] if host.port != 22 else []), host.name, "true"]
    return quote_argv(words)
