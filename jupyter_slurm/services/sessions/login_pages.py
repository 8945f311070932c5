"""Login pages of sessions: the token is in no command line and no history, and in a file only for a limited time."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from html import escape

from jupyter_slurm.errors import TransportError
from jupyter_slurm.services.elapsed_time import AgeTimer
from jupyter_slurm.transport.local.files import make_private

__all__ = ["LoginPages"]

_PAGE_LIFETIME_S = 600.0  # seconds for which a login page exists: for one visit, perhaps by hand

_PAGE = """<!DOCTYPE html>
<html><head><meta charset="utf-8"><meta name="referrer" content="no-referrer"><title>Opening the session</title></head>
<body>
<form method="post" action="{login}" data-own="{own}"><input type="hidden" name="token" value="{token}">
<input type="hidden" name="password" value="{token}"><input type="hidden" name="next" value="{base_url}">
<noscript><button>Open the session</button></noscript></form>
<script>
const form = document.forms[0];
fetch(form.dataset.own, {{mode: "no-cors"}}) // some browsers do not know such host names
  .then(() => form.setAttribute("action", form.dataset.own), () => undefined)
  .then(() => form.submit());
</script></body></html>
"""


class LoginPages:
    """Login pages of one agent.

    Parameters
    ----------
    folder : str
        Folder that only the user can read.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._timers: dict[str, AgeTimer] = {}  # removal of each page, by key of the session

    def sweep(self) -> None:
        """Remove the pages of a killed agent: other users may have the ports by now."""
        with contextlib.suppress(OSError):
            for name in os.listdir(self._folder) if _is_private(self._folder) else ():
                os.unlink(os.path.join(self._folder, name))

    def clear(self) -> None:
        """Remove all pages: without an agent, other users can take the ports to which the pages post."""
        for key in list(self._timers):
            self.remove(key)

    def write(self, key: str, url: str, browser_url: str, token: str, *, form: str = "login") -> str:
        """Write the login page of a session, for ten minutes; return its path.

        The page logs in at the second URL if the browser knows its host name. ``form`` is the path of the login.

        Raises
        ------
        TransportError
            The page cannot be written, or other users could read it.
        """
        base_url = "/" + url.split("/", 3)[3]
        own = escape(f"{browser_url}{form}")
        page = _PAGE.format(login=escape(f"{url}{form}"), own=own, token=escape(token), base_url=escape(base_url))
        path = self._path(key)
        try:
            make_private(self._folder)
            if not _is_private(self._folder):
                raise TransportError(
                    f"{self._folder} is not a directory of yours that other users cannot open.",
                    hint=f"Remove {self._folder}, and try again.",
                )
            _write(path, page)
        except OSError as error:
            raise TransportError(
                f"{path} cannot be written: {error.strerror}.", hint=f"Check the free space: `df {self._folder}`."
            ) from error
        if before := self._timers.get(key):
            before.cancel()
        self._timers[key] = AgeTimer(_PAGE_LIFETIME_S, lambda: self.remove(key))
        return path

    def remove(self, key: str) -> None:
        """Remove the page of a session, if there is one."""
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()
            with contextlib.suppress(OSError):
                os.unlink(self._path(key))

    def _path(self, key: str) -> str:
        return os.path.join(self._folder, f"{key}.html")


def _is_private(folder: str) -> bool:
    """Return whether no other user can create a file in the folder, or replace the folder with a link."""
    found = os.lstat(folder)
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o022


def _write(path: str, text: str) -> None:
    """Write a file that only this user can read, in one step."""
    draft = f"{path}.{secrets.token_hex(4)}"
    with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(draft, path)
