"""Routes to the files of a cluster."""

from __future__ import annotations

import base64
import binascii
import posixpath
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from jupyter_slurm.agent.api.app import Call, Reply
from jupyter_slurm.errors import UsageError

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api
    from jupyter_slurm.services.agent_core import Core
    from jupyter_slurm.services.files.cluster_files import ClusterFiles

__all__ = ["FILES"]

_PART_BYTES = 1 << 20


def _files(core: Core, call: Call) -> ClusterFiles:
    return core.cluster(call.path["cluster"]).files


async def _read(core: Core, call: Call) -> Reply:
    asked = call.body
    data, size, version = await _files(core, call).read(
        asked["path"], asked.get("offset", 0), asked.get("limit", _PART_BYTES), asked.get("version")
    )
    return Reply(data, headers={"X-Total-Size": str(size), "X-Version": version})


async def _write(core: Core, call: Call) -> Reply:
    data = _decode(call.body["data"], base64.b64decode)
    return Reply({"entry": await _files(core, call).write(call.body["path"], call.body, data)})


async def _change(core: Core, call: Call) -> api.FileChange:
    asked = call.body
    return {"entry": await _files(core, call).change(asked["action"], asked["path"], asked.get("to"))}


async def _download(core: Core, call: Call) -> Reply:
    if call.query["path"] is None:
        raise UsageError("The path is missing.", hint="Send it in base64 as `path`.")
    path = _decode(call.query["path"], base64.urlsafe_b64decode).decode("utf-8", "surrogateescape")
    name, exchange = posixpath.basename(path).encode("utf-8", "surrogateescape"), call.exchange
    pieces = _files(core, call).stream(path)
    try:
        async for data, size in pieces:
            exchange.set_header("Content-Type", "application/octet-stream")
            exchange.set_header("Content-Disposition", f"attachment; filename*=UTF-8''{quote(name, safe='')}")
            exchange.set_header("X-Total-Size", str(size))
            if data:
                await exchange.send(data)
        if not exchange.is_started:
            return Reply(b"")
    except OSError:  # the client has gone
        exchange.disconnect()
        return Reply(None)
    finally:
        await pieces.aclose()
    exchange.end()
    return Reply(None)


def _decode(text: str, decode: Callable[[str], bytes]) -> bytes:
    try:
        return decode(text)
    except (binascii.Error, ValueError):
        raise UsageError("The request holds a value that is not base64.", hint="Encode it as base64.") from None


FILES: Mapping[str, Callable[[Core, Call], Any]] = {
    "listFiles": lambda core, call: _files(core, call).list_directory(call.body["path"]),
    "getFileEntry": lambda core, call: _files(core, call).describe(call.body["path"]),
    "readFile": _read,
    "writeFile": _write,
    "changeFile": _change,
    "downloadFile": _download,
}
"""The answers about files, by operation ID."""
