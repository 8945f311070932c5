"""Fixtures: an inventory of the routes of a Jupyter server."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

# A server extension that lists the handlers of the package in the server, whatever their names.
_WALK = """
import json
from pathlib import Path
from tornado.web import RequestHandler
from tornado.websocket import WebSocketHandler

def _jupyter_server_extension_points():
    return [{"module": "walk"}]

def rules(router):
    for rule in router.rules:
        if hasattr(rule.target, "rules"):
            yield from rules(rule.target)
        elif isinstance(rule.target, type):
            yield rule

def write(serverapp):
    found = []
    for rule in rules(serverapp.web_app.default_router):
        if any(each.__module__.startswith("jupyter_slurm") for each in rule.target.__mro__):
            methods = [name for name in RequestHandler.SUPPORTED_METHODS
                       if getattr(rule.target, name.lower()) is not RequestHandler._unimplemented_method]
            found.append({"handler": rule.target.__name__, "pattern": rule.matcher.regex.pattern,
                          "methods": methods, "websocket": issubclass(rule.target, WebSocketHandler)})
    Path("routes.json").write_text(json.dumps(found))

def _load_jupyter_server_extension(serverapp):
    serverapp.io_loop.add_callback(write, serverapp)  # when all extensions are loaded
"""
_CONFIG = """
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
c.ServerApp.jpserver_extensions = {"walk": True}
"""


@pytest.fixture(scope="module")
def walked(start_jupyter: Callable[..., Any], wait_for: Callable[..., Any]) -> tuple[Any, list[dict[str, Any]]]:
    """Provide a server, and its handlers of the package: handler, pattern, methods, whether WebSocket."""
    files = {"walk.py": _WALK, "config.py": _CONFIG}
    server = start_jupyter(
        "server", "--config=config.py", "--ServerApp.allow_unauthenticated_access=False", files=files
    )
    path = Path(server.home, "routes.json")

    def read() -> Any:
        return json.loads(path.read_text()) if path.exists() and path.read_text().endswith("]") else None

    return server, wait_for(read, "the routes of the server")
