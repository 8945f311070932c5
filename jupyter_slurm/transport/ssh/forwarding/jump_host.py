"""Routes to the ports of a jump host, through the existing login on that host."""

from __future__ import annotations

import threading

import paramiko

from jupyter_slurm.errors import TransportError
from jupyter_slurm.transport.base import Stream
from jupyter_slurm.transport.ssh.forwarding.dial import refused, wait_for
from jupyter_slurm.transport.ssh.forwarding.socket_owner import SocketOwnerProof
from jupyter_slurm.transport.ssh.link.persistent import PersistentLink
from jupyter_slurm.transport.ssh.protocols import LinkLost, Session
from jupyter_slurm.transport.tunnel.listener_proof import untold

__all__ = ["HopPorts"]

_LINK_TIMEOUT_S = 60.0  # seconds for the link to come up


class HopPorts:
    """See :class:`jupyter_slurm.transport.base.Route`.

    Parameters
    ----------
    link : PersistentLink
        The connection.
    number : int
        Index of the host, counted from the nearest.
    """

    is_alive = True
    proof_lasts = False

    def __init__(self, link: PersistentLink, number: int) -> None:
        self._link, self._number, self._name = link, number, link.hosts[number]
        self._prover = SocketOwnerProof(self._session, self._name)
        self._lock = threading.Lock()
        self._generation = -1
        self._ports: dict[int, int] = {}  # port: the connection by which its owner was checked

    def find(self, port: int) -> str:
        """Return the address on the host under which the user's own program listens."""
        wait_for(self._link, _LINK_TIMEOUT_S)
        generation = self._link.generation
        with self._lock:
            if generation != self._generation:
                self._prover.close()  # a new connection may reach another host behind the same name
                self._generation = generation
        try:
            address = self._prover.find(port)
        except paramiko.ChannelException:
            raise untold(self._name) from None
        except (paramiko.SSHException, OSError, EOFError) as error:
            raise self._lost() from error
        self._ports[port] = generation
        return address

    def dial(self, address: str, port: int, timeout: float) -> Stream:
        """Connect to the port."""
        wait_for(self._link, timeout)
        try:
            stream = self._link.hop(self._number).dial(address, port, timeout)
        except paramiko.ChannelException as error:
            raise refused(self._name, address, port, error) from None
        except (paramiko.SSHException, OSError, EOFError) as error:
            raise self._lost() from error
        if self._ports.get(port, self._link.generation) != self._link.generation:
            stream.close()
            raise TransportError(f"The connection to {self._name} was lost and made again.", hint="Try again.")
        return stream

    def close(self) -> None:
        """Close the route."""
        self._prover.close()

    def _session(self, timeout: float) -> Session:
        return self._link.hop(self._number).open_session(timeout)

    def _lost(self) -> LinkLost:
        return LinkLost(f"The connection to {self._name} broke.", host=self._name)
