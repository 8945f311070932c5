"""A compute node by SSH of its own, through whatever leads to the login node. Nobody is asked for a password."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import paramiko

from jupyter_slurm.errors import TransportError
from jupyter_slurm.transport.base import Stream
from jupyter_slurm.transport.ssh.config.ssh_config import HostConfig, way_to
from jupyter_slurm.transport.ssh.forwarding.dial import refused
from jupyter_slurm.transport.ssh.forwarding.socket_owner import SocketOwnerProof
from jupyter_slurm.transport.ssh.link.persistent import LinkObserver
from jupyter_slurm.transport.ssh.prompts import Prompt, Prompter
from jupyter_slurm.transport.ssh.via_paramiko.connection import HostChain
from jupyter_slurm.transport.ssh.via_paramiko.host_verification import personal_gate

__all__ = ["NodeBySsh", "known_name", "node_host"]

_PING, _DEADLINE = 5.0, 12.0  # seconds: a node that is gone without a word is found out within their sum


class _NoPrompter:
    async def ask(self, prompt: Prompt) -> Sequence[str] | None:
        """Decline: a node that asks for something is reached in another way."""
        return None


async def node_host(
    node: str, address: str, user: str, login: HostConfig | None, config_file: str | None, cluster: str = ""
) -> HostConfig:
    """Return what is known of reaching a node: its own entry in ``~/.ssh/config``, and the keys of the login node.

    Parameters
    ----------
    node, address, user : str
        Its name in Slurm, where the login node finds it, and who logs in.
    login : HostConfig or None
        The login node; None: this machine is it.
    config_file : str or None
        Instead of ``~/.ssh/config``.
    cluster : str
        Its name, for nodes of other machines' clusters: two of them may have a ``node1``.

    Raises
    ------
    ConfigError
        The name or the configuration cannot be used.
    """
    host = (await way_to(node, user=user, jump=(), config_file=config_file))[-1]
    by_hand = host.hostname if host.port == 22 else f"[{host.hostname}]:{host.port}"  # as ssh itself writes it down
    more = login.identity_files if login is not None else ()
    return replace(
        host,
        hostname=address if host.hostname.lower() == node.lower() else host.hostname,  # `ssh -G` lowers it
        host_key_alias=host.host_key_alias or known_name(cluster, node),
        host_key_second=by_hand if not host.host_key_alias else None,  # also as older versions accepted it
        identity_files=tuple(dict.fromkeys([*host.identity_files, *more])),
        proxy_command=None,
        through=(login.name,) if login is not None else (),
        batch_mode=True,
    )


def known_name(cluster: str, node: str) -> str:
    """Return what a node is called in known_hosts; ``cluster`` is empty where this machine is its login node."""
    return f"{cluster}-{node}" if cluster else node


class NodeBySsh:
    """See :class:`jupyter_slurm.transport.base.Route`.

    It is made in the event loop, and connected by :meth:`open` in a thread.

    Parameters
    ----------
    host : HostConfig
        The node.
    dial : callable, optional
        Connects from the login node; None: this machine is the login node.
    prompter : Prompter, optional
        Who is asked about a host key that is not known; None: nobody.
    """

    proof_lasts = False

    def __init__(
        self, host: HostConfig, dial: Callable[[str, int, float], Stream] | None, prompter: Prompter | None = None
    ) -> None:
        self._host = host
        reach = None if dial is None else _through(dial)
        gate = personal_gate(prompter or _NoPrompter())
        if prompter is not None:
            asking = gate.verify
            gate = replace(gate, verify=lambda node, key: asking(replace(node, batch_mode=False), key))
        self._chain = HostChain([host], gate, reach)
        self._prover = SocketOwnerProof(self._chain.open_session, host.name)

    def open(self) -> None:
        """Log in; see :meth:`HostChain.open`."""
        self._chain.open()
        watch = LinkObserver(self._chain, _PING, _DEADLINE, lambda: None)
        threading.Thread(target=watch.run, name=f"jupyter-slurm-watch-{self._host.name}", daemon=True).start()

    @property
    def is_alive(self) -> bool:
        """Whether nothing was seen to be broken."""
        return self._chain.is_alive

    def find(self, port: int) -> str:
        """Return the address there under which the person's own program is reached."""
        try:
            return self._prover.find(port)
        except paramiko.ChannelException as error:
            raise TransportError(f"{self._host.name} allows no session: {error}") from error
        except (paramiko.SSHException, OSError, EOFError) as error:
            self._chain.close()
            raise TransportError(f"the connection to {self._host.name} broke: {error}") from error

    def dial(self, address: str, port: int, timeout: float) -> Stream:
        """Connect there."""
        try:
            return self._chain.dial(address, port, timeout)
        except paramiko.ChannelException as error:
            raise refused(self._host.name, address, port, error) from None
        except (paramiko.SSHException, OSError, EOFError) as error:
            self._chain.close()
            raise TransportError(f"the connection to {self._host.name} broke: {error}") from error

    def close(self) -> None:
        """Let it go."""
        with contextlib.suppress(Exception):
            self._chain.close()


def _through(dial: Callable[[str, int, float], Stream]) -> Callable[[HostConfig, float], Any]:
    return lambda host, timeout: dial(host.hostname, host.port, timeout)
