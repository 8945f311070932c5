"""Remote kernels of this Jupyter server: the available kernelspecs, and the place of a notebook's kernel.

They are files of this machine and processes of this server, unknown to the agent.
"""

# `authorized` is typed for plain functions only.
# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from jupyter_server.auth.decorator import authorized
from tornado import web

from jupyter_slurm.agent.api.schema import Operation
from jupyter_slurm.errors import SlurmError
from jupyter_slurm.server.agent_access import AgentAccess
from jupyter_slurm.server.problem_handler import ProblemHandler

if TYPE_CHECKING:
    from jupyter_slurm.client.kernels.kernelspecs import KernelSpec

__all__ = ["HANDLERS"]

_TEXT_SCHEMA: Final = {"type": "string", "minLength": 1, "maxLength": 4096, "pattern": "^[^\\x00-\\x1f\\x7f]*$"}
_ADD_KERNEL: Final = Operation(
    "addKernel",
    "POST",
    "/kernelspecs",
    parameters=(),
    body_schema={
        "type": "object",
        "additionalProperties": False,
        "required": ["words"],
        "properties": {
            "cluster": _TEXT_SCHEMA,  # its ID in the API: a name may be that of another cluster, too
            "words": {"type": "array", "minItems": 1, "maxItems": 256, "items": _TEXT_SCHEMA},
        },
    },
    needs_body=True,
    schemas={},
)


class _KernelHandler(ProblemHandler):
    """Base of these handlers."""

    def initialize(self, access: AgentAccess) -> None:
        """Initialize the handler (Tornado's constructor)."""
        self._access = access
        self._track_activity = self.request.method not in ("GET", "HEAD")  # a polling tab is not user activity

    async def _answer_with(self, act: Callable[[], Any], status: int = 200) -> None:
        """Answer with the result of a function that reads files or asks the agent."""
        try:
            told = await asyncio.to_thread(act)
        except SlurmError as error:
            self.send_problem(error)
            return
        self.set_status(status)
        self.finish(json.dumps(told))


class KernelSpecsHandler(_KernelHandler):
    """The available kernelspecs of remote kernels."""

    @web.authenticated
    @authorized("read")
    async def get(self) -> None:
        """List the kernelspecs."""
        from jupyter_slurm.client.kernels import kernelspecs  # not at the start of the server, which a user awaits

        await self._answer_with(lambda: {"kernelspecs": [_as_dict(each) for each in kernelspecs.listed()]})

    @web.authenticated
    @authorized("write")
    async def post(self) -> None:
        """Add a kernelspec."""
        from jupyter_slurm.client.kernels import kernelspecs

        try:
            asked = _ADD_KERNEL.read_body(self.request.body)
            await self._access.register()  # the request may mean the cluster of this server
        except SlurmError as error:
            self.send_problem(error)
            return
        await self._answer_with(lambda: _as_dict(kernelspecs.add(asked["words"], cluster_id=asked.get("cluster"))), 201)


class KernelSpecHandler(_KernelHandler):
    """A kernelspec of a remote kernel."""

    @web.authenticated
    @authorized("write")
    async def delete(self, name: str) -> None:
        """Remove the kernelspec; running kernels continue."""
        from jupyter_slurm.client.kernels import kernelspecs

        await self._answer_with(lambda: _as_dict(kernelspecs.remove(name)))


class KernelHandler(_KernelHandler):
    """A kernel that this server has started."""

    @web.authenticated
    @authorized("read")
    async def get(self, kernel: str) -> None:
        """Return the place of the kernel; null: it is not a remote kernel, or its place is unknown."""
        if kernel not in self.kernel_manager:
            raise web.HTTPError(404, "This server has no such kernel.")
        # Not by its class: front ends never import each other.
        provisioner = getattr(self.kernel_manager.get_kernel(kernel), "provisioner", None)
        told = getattr(provisioner, "slurm_place", None)
        self.finish(json.dumps({"place": told}))


def _as_dict(spec: KernelSpec) -> dict[str, str | list[str]]:
    return {"name": spec.name, "display_name": spec.display_name, "words": list(spec.arguments)}


HANDLERS: Final = [
    (r"jupyter-slurm/api/server/kernelspecs", KernelSpecsHandler),
    (r"jupyter-slurm/api/server/kernelspecs/([a-z0-9._-]{1,128})", KernelSpecHandler),
    (r"jupyter-slurm/api/server/kernels/([0-9a-f-]{36})", KernelHandler),
]
"""The addresses of the handlers, below that of the server."""
