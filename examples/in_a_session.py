"""Run a cell in a session's own Jupyter, as a browser does that has opened its page.

``python examples/in_a_session.py PAGE CODE``; PAGE is the file that `jupyter slurm open` and ``Session.page()`` name.
"""

from __future__ import annotations

import asyncio
import json
import sys
import uuid
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import httpx
from tornado.httpclient import HTTPRequest
from tornado.websocket import WebSocketClientConnection, websocket_connect


class Form(HTMLParser):
    """The form of the page: where it is sent, and what it says."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.action, self.fields = "", dict[str, str]()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Take in a tag."""
        told = {name: value or "" for name, value in attrs}
        if tag == "form":
            self.action = told["action"]
        elif tag == "input":
            self.fields[told["name"]] = told["value"]


async def run_cell(page: str, code: str) -> str:
    """Log in with what the page says, start a kernel there, and return what a cell prints in it."""
    form = Form(page)
    base_url = urljoin(form.action, form.fields["next"])
    async with httpx.AsyncClient(trust_env=False, follow_redirects=True, timeout=60) as browser:
        (await browser.post(form.action, data=form.fields)).raise_for_status()
        headers = {"X-XSRFToken": browser.cookies.get("_xsrf") or "", "Referer": base_url}
        started = await browser.post(f"{base_url}api/kernels", json={}, headers=headers)
        kernel = started.raise_for_status().json()["id"]
        cookies = "; ".join(f"{cookie.name}={cookie.value}" for cookie in browser.cookies.jar)
        channels = f"ws{base_url.removeprefix('http')}api/kernels/{kernel}/channels"
        connection = await websocket_connect(HTTPRequest(channels, headers={"Cookie": cookies}))
        try:
            async with asyncio.timeout(120):
                return await _printed(connection, code)
        finally:
            connection.close()
            await browser.delete(f"{base_url}api/kernels/{kernel}", headers=headers)


async def _printed(connection: WebSocketClientConnection, code: str) -> str:
    """Have a cell run; return its text."""
    header = {
        "msg_id": uuid.uuid4().hex,
        "msg_type": "execute_request",
        "version": "5.3",
        "username": "",
        "session": "",
    }
    request: dict[str, Any] = {"header": header, "parent_header": {}, "metadata": {}, "channel": "shell", "buffers": []}
    request["content"] = {"code": code, "silent": False, "store_history": False, "allow_stdin": False}
    await connection.write_message(json.dumps(request))
    printed = ""
    while (told := await connection.read_message()) is not None:
        message = json.loads(told)
        if message["parent_header"].get("msg_id") != header["msg_id"]:
            continue
        if message["msg_type"] == "stream":
            printed += message["content"]["text"]
        elif message["msg_type"] == "error":
            raise RuntimeError("\n".join(message["content"]["traceback"]))
        elif message["msg_type"] == "status" and message["content"]["execution_state"] == "idle":
            return printed
    raise RuntimeError("the session's Jupyter has closed the connection")


if __name__ == "__main__":
    print(asyncio.run(run_cell(Path(sys.argv[1]).read_text(), sys.argv[2])), end="")
