"""Provisioner of the kernel proxy for Jupyter: start, restart, end and detachment."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Mapping
from subprocess import TimeoutExpired
from typing import Any

from jupyter_client.connect import KernelConnectionInfo
from jupyter_client.kernelspec import NoSuchKernel
from jupyter_client.launcher import launch_kernel
from jupyter_client.provisioning.local_provisioner import LocalProvisioner

from jupyter_slurm.client.kernels.kernelspecs import PROVISIONER
from jupyter_slurm.client.shutdown import is_leaving
from jupyter_slurm.kernels import state_file
from jupyter_slurm.kernels.__main__ import DISPLAY_NAME_VARIABLE
from jupyter_slurm.kernels.release import schedule_release

__all__ = ["SlurmProvisioner"]

_NOTEBOOK_VARIABLE = "JPY_SESSION_NAME"  # set by a Jupyter server
_RELEASE_TIMEOUT_S = 5.0  # seconds
_MAX_STARTS, _START_WINDOW_S = 3, 60.0  # proxies in a number of seconds


class SlurmProvisioner(LocalProvisioner):
    """Starts the proxy of a remote kernel (``jupyter_slurm.kernels``).

    A killed proxy is started again, and its kernel keeps all variables. The kernel outlives a Jupyter server that
    stops. A kernel that is shut down without a request (``now=True``) is released nevertheless.
    """

    _cmd: list[str]
    _launch_arguments: dict[str, Any] = {}  # noqa: RUF012  (replaced as a whole)
    _ends = False
    _is_detached = False
    _had_died = False

    async def pre_launch(self, **kwargs: Any) -> dict[str, Any]:
        """Read the kernelspec again: a changed image or option needs no new notebook."""
        # Meant for a local ipykernel: `jupyter run` adds the name of its script.
        kwargs.pop("extra_arguments", None)
        manager = self.parent
        if manager is not None:
            with contextlib.suppress(NoSuchKernel):  # a removed kernelspec keeps its old content
                told = manager.kernel_spec_manager.get_kernel_spec(manager.kernel_name)
                if (told.metadata.get("kernel_provisioner") or {}).get("provisioner_name") == PROVISIONER:
                    self.kernel_spec = manager._kernel_spec = told
        return await super().pre_launch(**kwargs)

    async def launch_kernel(self, cmd: list[str], **kwargs: Any) -> KernelConnectionInfo:
        """Start the proxy."""
        if cmd[1:2] == ["-m"]:  # a kernelspec of an earlier version: without the folder of the notebook in the path
            cmd = [cmd[0], "-P", *cmd[1:]]
        self._cmd, self._ends, self._is_detached, self._had_died = cmd, False, False, False
        self._start_times: list[float] = []
        env = _own_variables(os.environ if kwargs.get("env") is None else kwargs["env"])
        kwargs["env"] = {**env, DISPLAY_NAME_VARIABLE: self._display_name}
        self._launch_arguments = dict(kwargs)
        return await super().launch_kernel(cmd, **kwargs)

    async def poll(self) -> int | None:
        """Return whether the proxy has ended; a killed proxy is started again instead."""
        self._follow_notebook()
        code = await super().poll()
        is_stopping = self._ends or getattr(self.parent, "shutting_down", True)
        if code is None or code >= 0 or is_stopping or not self.has_process:
            return code
        self._had_died = True
        now = time.monotonic()
        self._start_times = [at for at in self._start_times if now - at < _START_WINDOW_S]
        if len(self._start_times) >= _MAX_STARTS or not self._state:
            return code
        self._start_times.append(now)
        self.process = launch_kernel(self._cmd, **self._scrub_kwargs(self._launch_arguments))
        self.pid = self.process.pid
        self.pgid = os.getpgid(self.pid)
        return None

    async def send_signal(self, signum: int) -> None:
        """Send the proxy a signal; in place of the interrupt before the stop of a server, request the detachment."""
        if signum == signal.SIGINT and is_leaving() and self.has_process:
            self._is_detached = self._ends = True
            self._follow_notebook()
            await super().send_signal(signal.SIGHUP)
            await self._wait(_RELEASE_TIMEOUT_S)
            return
        await super().send_signal(signum)

    async def kill(self, restart: bool = False) -> None:
        """Kill the proxy; :meth:`cleanup` ends the kernel."""
        self._had_died = self._had_died or await self._is_over()
        self._ends = True
        await super().kill(restart)

    async def terminate(self, restart: bool = False) -> None:
        """Terminate the proxy; :meth:`cleanup` ends the kernel."""
        self._ends = True
        await super().terminate(restart)

    async def cleanup(self, restart: bool = False) -> None:
        """Release the remains of a proxy that had no time for it."""
        if not (self._is_detached or is_leaving()) and self._state:
            if not restart:
                self._release()
            elif not self._had_died:
                self._request_restart()
        await super().cleanup(restart)

    @property
    def slurm_place(self) -> dict[str, object] | None:
        """Return the place of the kernel's GPUs, for displays: ``cluster``, ``allocation``; None if unknown."""
        left = self._state
        return {name: left.get(name) for name in ("cluster", "allocation")} if left.get("cluster") else None

    @property
    def _display_name(self) -> str:
        return str(getattr(self.kernel_spec, "display_name", ""))

    @property
    def _state(self) -> state_file.KernelState:
        return state_file.read(self._file)

    @property
    def _file(self) -> str:
        return os.path.abspath(str(getattr(self.parent, "connection_file", "")))

    async def _is_over(self) -> bool:
        return self.has_process and await super().poll() is not None

    async def _wait(self, seconds: float) -> None:
        if self.process is not None:
            with contextlib.suppress(TimeoutExpired):
                await asyncio.to_thread(self.process.wait, seconds)

    def _release(self) -> None:
        schedule_release(self._file, self._launch_arguments.get("env") or None)

    def _follow_notebook(self) -> None:
        """Write the owner of the kernel again if Jupyter has renamed its notebook (``KernelManager.update_env``)."""
        asked = (getattr(self.parent, "_launch_args", None) or {}).get("env") or {}
        notebook, env = asked.get(_NOTEBOOK_VARIABLE), self._launch_arguments.get("env") or {}
        if not notebook or env.get(_NOTEBOOK_VARIABLE) in (None, notebook):
            return
        env[_NOTEBOOK_VARIABLE] = notebook
        with contextlib.suppress(OSError):  # the kernel is found by its former notebook
            state_file.write_owner(self._file, notebook, str(getattr(self.parent, "kernel_name", "")))

    def _request_restart(self) -> None:
        """Request that the next proxy starts another kernel in the allocation, in place of this one."""
        with contextlib.suppress(OSError):
            post = state_file.KernelStateFile(self._file)
            if post.data.get("state") != "unknown":  # otherwise the next proxy looks its kernel up again
                post.write(state="restarting")
            post.close()


def _own_variables(env: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a kernel without the notebook of this process.

    A Jupyter server sets the notebook of each kernel. A client in a cell, such as papermill, passes on its own.
    """
    notebook = os.environ.get(_NOTEBOOK_VARIABLE)
    return {name: value for name, value in env.items() if (name, value) != (_NOTEBOOK_VARIABLE, notebook)}
