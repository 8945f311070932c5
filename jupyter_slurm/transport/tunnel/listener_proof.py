"""Proof of a listener's owner at the remote end of a tunnel: the remote system reports whose the listening socket is.

Source: proc(5), /proc/net/tcp; ss(8).
"""

from __future__ import annotations

from typing import Final

from jupyter_slurm.errors import TunnelError, TunnelUnproven
from jupyter_slurm.runner.login_node.relay import listeners, route_to

__all__ = ["proof_command", "proven_address", "untold", "verify_address"]

_ALONE: Final = "v6only:1"


def proof_command(mark: str, port: int) -> str:
    """Return text for a POSIX shell that prints the user and the listeners; ``mark`` separates it from other output.

    Only the rows in question are printed: a busy node has megabytes of them. For a listener on ``::`` the rows do not
    show whether it accepts IPv6 only, as asyncio and tornado make it; ss(8) does, if installed.
    """
    rows = f'grep -h -e local_address -e ":{port:04X} [0-9A-F]*:0000 0A " /proc/net/tcp /proc/net/tcp6 2>/dev/null'
    alone = f'PATH=$PATH:/usr/sbin ss -ltne "sport = :{port}" 2>/dev/null | grep -o {_ALONE}'
    asked = f'js=$({rows}); printf "%s\\n" "$js"; case $js in *" {0:032X}:{port:04X} "*) {alone} ;; esac'
    return f"echo {mark}; id -u; {asked}; echo {mark}"


def proven_address(output: bytes, mark: str, host: str, port: int) -> str:
    """Return the address under which the user's own program listens on a host.

    Raises
    ------
    TunnelError
        Nothing listens on the port, or the host does not report the listener's owner.
    TunnelUnproven
        The listener belongs to another user.
    """
    parts = output.decode("ascii", "replace").split(f"{mark}\n")
    user, _, tables = parts[1].partition("\n") if len(parts) == 3 else ("", "", "")
    lines = tables.splitlines()
    heads = [at for at, line in enumerate(lines) if "local_address" in line]
    if not user.isdecimal() or not heads or "rem_address" not in lines[heads[0]]:
        raise untold(host)
    middle = heads[1] if len(heads) > 1 else len(lines)
    four, six = "\n".join(lines[:middle]), "\n".join(lines[middle:])
    return verify_address(*route_to(listeners(four, six, port), int(user), _ALONE in lines), host, port)


def untold(host: str) -> TunnelUnproven:
    """Return the error for a host that does not report the listener's owner."""
    return TunnelUnproven(
        f"{host} does not report who listens on the port.",
        hint="The host runs no commands for you, or has no /proc/net/tcp. To connect without proof, set "
        "`unproven = true` under [tunnels] in the profile.",
        why="unproven",
    )


def verify_address(address: str | None, other_owners: list[int], host: str, port: int) -> str:
    """Return the address, or raise the error for its absence."""
    if address is not None:
        return address
    if other_owners:
        raise TunnelUnproven(
            f"Port {port} of {host} belongs to another user ({', '.join(map(str, other_owners))}).",
            hint="Nothing was sent. Start your program on another port: another user has taken this one.",
            why="stranger",
        )
    raise TunnelError(
        f"No program listens on port {port} of {host}.",
        hint="Check in the output of your program that it has started, and that it listens on this port.",
        why="refused",
    )
