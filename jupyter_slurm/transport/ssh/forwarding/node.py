"""Route to a compute node by its own SSH connection through the login node. The user is never asked for a password."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import paramiko

from jupyter_slurm.errors import TransportError
from jupyter_slurm.transport.base import Stream
from jupyter_slurm.transport.ssh.config.ssh_config import HostConfig, resolve_route
from jupyter_slurm.transport.ssh.forwarding.dial import refused
from jupyter_slurm.transport.ssh.forwarding.socket_owner import SocketOwnerProof
from jupyter_slurm.transport.ssh.link.persistent import LinkObserver
from jupyter_slurm.transport.ssh.prompts import Prompt, Prompter
from jupyter_slurm.transport.ssh.via_paramiko.connection import HostChain
from jupyter_slurm.transport.ssh.via_paramiko.login_verification import login_verification

__all__ = ["NodeBySsh", "known_hosts_name", "node_host"]

_PING_INTERVAL_S, _ANSWER_TIMEOUT_S = 5.0, 12.0  # seconds: a node that vanishes is detected within their sum


class _NoPrompter:
    async def ask(self, prompt: Prompt) -> Sequence[str] | None:
        """Decline every question: a node that asks one is reached by another route."""
        return None


async def node_host(
    node: str, address: str, user: str, login: HostConfig | None, config_file: str | None, cluster: str = ""
) -> HostConfig:
    """Return the host configuration of a node: its own entry in ``~/.ssh/config``, and the keys of the login node.

    Parameters
    ----------
    node, address, user : str
        Its name in Slurm, its address as seen from the login node, and the user.
    login : HostConfig or None
        The login node; None: this computer is the login node.
    config_file : str or None
        Instead of ``~/.ssh/config``.
    cluster : str
        Name of the cluster, for nodes of remote clusters: two clusters may have a ``node1``.

    Raises
    ------
    ConfigError
        The name or the configuration cannot be used.
    """
    host = (await resolve_route(node, user=user, jump=(), config_file=config_file))[-1]
    by_hand = host.hostname if host.port == 22 else f"[{host.hostname}]:{host.port}"  # the form in which ssh records it
    more = login.identity_files if login is not None else ()
    return replace(
        host,
        # `ssh -G` converts it to lower case
        hostname=address if host.hostname.lower() == node.lower() else host.hostname,
        host_key_alias=host.host_key_alias or known_hosts_name(cluster, node),
        # also the form in which older versions recorded it
        host_key_second=by_hand if not host.host_key_alias else None,
        identity_files=tuple(dict.fromkeys([*host.identity_files, *more])),
        proxy_command=None,
        through=(login.name,) if login is not None else (),
        batch_mode=True,
    )


def known_hosts_name(cluster: str, node: str) -> str:
    """Return the name of a node in known_hosts; ``cluster`` is empty if this computer is its login node."""
    return f"{cluster}-{node}" if cluster else node


class NodeBySsh:
    """See :class:`jupyter_slurm.transport.base.Route`.

    The object is created in the event loop, and connected by :meth:`open` in a thread.

    Parameters
    ----------
    host : HostConfig
        The node.
    dial : callable, optional
        Connects from the login node; None: this computer is the login node.
    prompter : Prompter, optional
        Asks the user about an unknown host key; None: no question.
    """

    proof_lasts = False

    def __init__(
        self, host: HostConfig, dial: Callable[[str, int, float], Stream] | None, prompter: Prompter | None = None
    ) -> None:
        self._host = host
        reach = None if dial is None else _through(dial)
        gate = login_verification(prompter or _NoPrompter())
        if prompter is not None:
            asking = gate.verify
            gate = replace(gate, verify=lambda node, key: asking(replace(node, batch_mode=False), key))
        self._chain = HostChain([host], gate, reach)
        self._prover = SocketOwnerProof(self._chain.open_session, host.name)

    def open(self) -> None:
        """Log in; see :meth:`HostChain.open`."""
        self._chain.open()
        watch = LinkObserver(self._chain, _PING_INTERVAL_S, _ANSWER_TIMEOUT_S, lambda: None)
        threading.Thread(target=watch.run, name=f"jupyter-slurm-watch-{self._host.name}", daemon=True).start()

    @property
    def is_alive(self) -> bool:
        """Return whether no break was detected."""
        return self._chain.is_alive

    def find(self, port: int) -> str:
        """Return the address on the node under which the user's own program listens."""
        try:
            return self._prover.find(port)
        except paramiko.ChannelException as error:
            raise TransportError(
                f"{self._host.name} allows no session: {error}",
                hint=f"Run `ssh {self._host.name}` on the login node to see the cause.",
            ) from error
        except (paramiko.SSHException, OSError, EOFError) as error:
            self._chain.close()
            raise TransportError(f"The connection to {self._host.name} broke: {error}", hint="Try again.") from error

    def dial(self, address: str, port: int, timeout: float) -> Stream:
        """Connect to the port."""
        try:
            return self._chain.dial(address, port, timeout)
        except paramiko.ChannelException as error:
            raise refused(self._host.name, address, port, error) from None
        except (paramiko.SSHException, OSError, EOFError) as error:
            self._chain.close()
            raise TransportError(f"The connection to {self._host.name} broke: {error}", hint="Try again.") from error

    def close(self) -> None:
        """Close the connection."""
        with contextlib.suppress(Exception):
            self._chain.close()


def _through(dial: Callable[[str, int, float], Stream]) -> Callable[[HostConfig, float], Any]:
    return lambda host, timeout: dial(host.hostname, host.port, timeout)
