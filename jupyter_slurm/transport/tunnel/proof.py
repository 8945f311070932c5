"""Whoever answers at the far end of a tunnel proves itself: the system there says whose the listening socket is.

Source: proc(5), /proc/net/tcp.
"""

from __future__ import annotations

from jupyter_slurm.errors import TunnelError, TunnelUnproven
from jupyter_slurm.runner.relay import listeners, way_to

__all__ = ["judge", "proof_command", "proven_address"]


def proof_command(mark: str) -> str:
    """Return text for a POSIX shell that prints who we are and who listens; ``mark`` sets it apart from the rest."""
    return f"echo {mark}; id -u; cat /proc/net/tcp; echo {mark}; cat /proc/net/tcp6 2>/dev/null; echo {mark}"


def proven_address(output: bytes, mark: str, host: str, port: int) -> str:
    """Return the address under which the person's own program is reached on a host.

    Raises
    ------
    TunnelError
        Nothing listens on the port, or the host does not say who does.
    TunnelUnproven
        It is somebody else who listens.
    """
    parts = output.decode("ascii", "replace").split(f"{mark}\n")
    user, _, table = parts[1].partition("\n") if len(parts) == 4 else ("", "", "")
    if not user.isdecimal() or "local_address" not in table:
        raise TunnelUnproven(f"{host} does not say who listens there", hint="It has no /proc/net/tcp.", why="unproven")
    return judge(*way_to(listeners(table, parts[2], port), int(user)), host, port)


def judge(address: str | None, others: list[int], host: str, port: int) -> str:
    """Return the address, or raise what its absence means."""
    if address is not None:
        return address
    if others:
        raise TunnelUnproven(
            f"port {port} of {host} belongs to another user ({', '.join(map(str, others))})",
            hint="Nothing was sent there. Start your program on another port: this one was taken before it began.",
            why="stranger",
        )
    raise TunnelError(
        f"nothing listens on port {port} of {host}",
        hint="Has the program started that is to listen there, and on that port? Its output says so.",
        why="refused",
    )
