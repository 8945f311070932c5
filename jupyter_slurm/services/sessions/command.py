"""Command of a session without Jupyter: its check, and the derived name and base URL."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from jupyter_slurm.errors import UsageError
from jupyter_slurm.services.sessions.apps import APPS, command_of, find_app, words_of
from jupyter_slurm.services.sessions.session_jobs import NAME
from jupyter_slurm.services.slurm.client import printable

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["base_url_of", "check_command", "folders_of", "stem_of", "with_app"]


def check_command(command: Sequence[str] | None) -> None:
    """Refuse a command without a placeholder for the port."""
    if command and not any(place in word for word in command for place in ("{port}", "{socket}")):
        raise UsageError(
            printable(f"{shlex.join(command)} does not name the port on which the server must listen."),
            hint="Write {port} where the command takes a port, and {host} where it takes an address, for "
            "example -- python3 -m http.server --bind {host} {port}. Or write {socket} for the path of a Unix socket.",
        )


def folders_of(requested: api.Launch) -> dict[str, str]:
    """Return the folders that the keywords of the app name, by keyword."""
    name, values = requested.get("app") or "", cast("dict[str, str]", requested.get("app_values") or {})
    folders = APPS[name].folders if name in APPS else ()
    return {keyword: value for keyword, value in values.items() if keyword in folders and "://" not in value}


def with_app(requested: api.Launch) -> dict[str, Any]:
    """Return what the runner needs to serve a named app; the requested command if there is none.

    Raises
    ------
    UsageError
        The app and its keywords do not fit.
    """
    name, command, values = (
        requested.get("app"),
        requested.get("command"),
        cast("dict[str, str]", requested.get("app_values") or {}),
    )
    if requested.get("ssh"):
        return {"command": command, "app": "ssh"}
    if name and name != "jupyter" and command:
        raise UsageError(f"app={name} and a command after -- cannot be combined.", hint="Use one of them.")
    if name in (None, "jupyter"):
        for keyword in values:
            raise UsageError(f"{keyword}= belongs to an app.", hint=f"Write app= too, or omit {keyword}=.")
        return {"command": command} if command else {}
    app = find_app(name)
    more = {
        "install": app.install,
        "package": app.package,
        "lowest": app.lowest,
        "older": {before: [*words, *words_of(name, values)] for before, words in app.older.items()},
        "files": dict(app.files),
    }
    return {"command": command_of(name, values), **{key: value for key, value in more.items() if value}}


def stem_of(command: Sequence[str] | None) -> str:
    """Return the stem of default session names."""
    stem = os.path.basename(command[0])[:50] if command else "jupyter"
    return stem if NAME.fullmatch(stem) else "server"


def base_url_of(own: str, command: Sequence[str] | None) -> str:
    """Return the base URL of a session: a command has its own if it contains the placeholder for it."""
    return own if not command or any("{base_url}" in word for word in command) else "/"
