"""Kernels on nodes, as this Jupyter server has them: which can be chosen, and where the one of a notebook runs.

They are files of this machine and processes of this server, of which the agent knows nothing.
"""

# `authorized` is typed for plain functions only.
# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any, Final

from jupyter_server.auth.decorator import authorized
from tornado import web

from jupyter_slurm.agent.api.schema import Operation
from jupyter_slurm.client.kernels import kernelspecs
from jupyter_slurm.client.kernels.kernelspecs import KernelSpec
from jupyter_slurm.errors import SlurmError
from jupyter_slurm.server.agent_access import AgentAccess
from jupyter_slurm.server.problem_handler import ProblemHandler

__all__ = ["HANDLERS"]

_TEXT: Final = {"type": "string", "minLength": 1, "maxLength": 4096, "pattern": "^[^\\x00-\\x1f\\x7f]*$"}
_WANTED: Final = Operation(
    "addKernel",
    "POST",
    "/kernelspecs",
    parameters=(),
    body_schema={
        "type": "object",
        "additionalProperties": False,
        "required": ["words"],
        "properties": {"words": {"type": "array", "minItems": 1, "maxItems": 256, "items": _TEXT}},
    },
    needs_body=True,
    components={},
)


class _KernelHandler(ProblemHandler):
    """What these handlers have in common."""

    def initialize(self, access: AgentAccess) -> None:
        """Tornado's constructor."""
        self._access = access
        self._track_activity = self.request.method not in ("GET", "HEAD")  # a tab that looks is no person at work

    @web.authenticated
    @authorized("read")
    async def options(self, *_: str) -> None:  # type: ignore[override]  # theirs lets anybody in
        """Other origins have no business here."""
        raise web.HTTPError(405)

    async def _answer_with(self, act: Callable[[], Any], status: int = 200) -> None:
        """Answer with what comes of something that touches files, or asks the agent."""
        try:
            told = await asyncio.to_thread(act)
        except SlurmError as error:
            self.tell(error)
            return
        self.set_status(status)
        self.finish(json.dumps(told))


class KernelSpecsHandler(_KernelHandler):
    """The kernels that can be chosen and run on nodes."""

    @web.authenticated
    @authorized("read")
    async def get(self) -> None:
        """List them."""
        await self._answer_with(lambda: {"kernelspecs": [_as_dict(each) for each in kernelspecs.listed()]})

    @web.authenticated
    @authorized("write")
    async def post(self) -> None:
        """Add one."""
        try:
            words = _WANTED.read_body(self.request.body)["words"]
            await self._access.register()  # the cluster of this server may be the one that is meant
        except SlurmError as error:
            self.tell(error)
            return
        await self._answer_with(lambda: _as_dict(kernelspecs.add(words)), 201)


class KernelSpecHandler(_KernelHandler):
    """One of them."""

    @web.authenticated
    @authorized("write")
    async def delete(self, name: str) -> None:
        """Remove it; what runs goes on."""
        await self._answer_with(lambda: _as_dict(kernelspecs.remove(name)))


class KernelHandler(_KernelHandler):
    """A kernel that this server has started."""

    @web.authenticated
    @authorized("read")
    async def get(self, kernel: str) -> None:
        """Tell where it runs; null: it is none of ours, or nothing is known of it yet."""
        if kernel not in self.kernel_manager:
            raise web.HTTPError(404, "There is no such kernel.")
        # Not by its class: front doors never import each other.
        provisioner = getattr(self.kernel_manager.get_kernel(kernel), "provisioner", None)
        told = getattr(provisioner, "slurm_place", None)
        self.finish(json.dumps({"place": told}))


def _as_dict(spec: KernelSpec) -> dict[str, str | list[str]]:
    return {"name": spec.name, "display_name": spec.display_name, "words": list(spec.words)}


HANDLERS: Final = [
    (r"jupyter-slurm/api/server/kernelspecs", KernelSpecsHandler),
    (r"jupyter-slurm/api/server/kernelspecs/([a-z0-9._-]{1,128})", KernelSpecHandler),
    (r"jupyter-slurm/api/server/kernels/([0-9a-f-]{36})", KernelHandler),
]
"""Their addresses, below the server's own."""
