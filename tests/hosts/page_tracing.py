"""Processor time of the main thread of a page, from a trace of Chromium: the same on a busy machine and on a quiet one."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

__all__ = ["trace_tasks"]

_CATEGORIES = ["devtools.timeline", "disabled-by-default-devtools.timeline"]
_FRAME, _TASK = "FireAnimationFrame", "RunTask"


def trace_tasks(browser: Browser, page: Page, act: Callable[[], object]) -> list[float]:
    """Return the milliseconds of processor time of each task of the page's main thread during an act.

    A frame is as late as its longest task. The page asks for its frames by ``requestAnimationFrame``.
    """
    browser.start_tracing(page=page, categories=_CATEGORIES)
    try:
        act()
    finally:
        trace = browser.stop_tracing()
    events = [event for event in json.loads(trace)["traceEvents"] if event.get("ph") == "X"]
    frames = [(event["pid"], event["tid"]) for event in events if event["name"] == _FRAME]
    thread = max(set(frames), key=frames.count)
    return [
        event.get("tdur", 0) / 1000
        for event in events
        if event["name"] == _TASK and (event["pid"], event["tid"]) == thread
    ]
