"""Cell under IPython in a job, which has no terminal, no history and no input. IPython 7.17 or newer."""

from __future__ import annotations

import base64
import contextlib
import html
import importlib
import re
import shutil
import sys
import tempfile
import threading
import time
import types
import warnings
from typing import TYPE_CHECKING, Any

from IPython.core.autocall import ExitAutocall
from IPython.core.compilerop import CachingCompiler
from IPython.core.displayhook import DisplayHook
from IPython.core.displaypub import DisplayPublisher
from IPython.core.interactiveshell import InteractiveShell
from traitlets import default
from traitlets.config import Config

if TYPE_CHECKING:
    from jupyter_slurm.runner.job_document import MimeBundle, Transient

_PICTURE_INTERVALS_S = 0.25, 60.0  # seconds between two pictures of a widget: shortest, and longest
_PICTURE_SHARE = 1 / 200  # of the time for which a cell has run: the interval after it
_WIDGET = "application/vnd.jupyter.widget-view+json"


class Publisher(DisplayPublisher):  # type: ignore[misc, unused-ignore]
    """Display publisher that writes into the display file."""

    record: Any = None
    widgets: Any = None

    def publish(
        self,
        data: MimeBundle,
        metadata: MimeBundle | None = None,
        *_: Any,
        transient: Transient | None = None,
        update: bool = False,
        **__: Any,
    ) -> None:
        """Record a MIME bundle."""
        if _WIDGET in data and not update:
            self.widgets.show(data)
        else:
            self.record.show(data, metadata or {}, (transient or {}).get("display_id"), update)

    def clear_output(self, wait: bool = False) -> None:
        """Clear the output so far."""
        self.record.clear(wait)


class Widgets:
    """Static pictures of ipywidgets, whose models live in this process, which no browser can reach.

    They follow changes by the cell (a bar of tqdm.notebook moves). The user cannot operate them.
    """

    def __init__(self, record: Any) -> None:
        self.record = record
        self._lock = threading.RLock()
        self._shown: dict[str, tuple[Any, str]] = {}  # display id: widget and its last recorded picture
        self._later: threading.Timer | None = None
        self.start_cell()
        with contextlib.suppress(ImportError):
            comm: Any = importlib.import_module("comm")
            watched = type("Comm", (comm.BaseComm,), {"publish_msg": lambda *_, **__: self.record_changes()})
            comm.create_comm = lambda *args, **named: watched(*args, **named)

    def start_cell(self) -> None:
        """Record changes often again, because a cell begins."""
        with self._lock:
            self._began, self._next = time.monotonic(), 0.0

    def show(self, data: MimeBundle) -> None:
        """Record a widget, given the MIME bundle that a front end would get."""
        module: Any = sys.modules.get("ipywidgets.widgets.widget")
        model = data[_WIDGET].get("model_id")
        known = getattr(module, "_instances", None) or getattr(getattr(module, "Widget", None), "widgets", {})
        with self._lock:
            name = f"widget-{len(self._shown)}"
            self._shown[name] = (known.get(model), "")
            self.record_changes(now=True)

    def record_changes(self, now: bool = False) -> None:
        """Record changes, a few times a second at most, and once a minute when the cell has run for hours."""
        with self._lock:
            wait = self._next - time.monotonic()
            if self._shown and wait > 0 and not now:
                if self._later is None:  # only the last of many changes counts
                    self._later = threading.Timer(wait, self.record_changes, kwargs={"now": True})
                    self._later.daemon = True
                    self._later.start()
                return
            self._later = None
            for name, (widget, before) in list(self._shown.items()):
                picture = _picture(widget)
                if picture != before:
                    self._shown[name] = (widget, picture)
                    data = {"text/plain": repr(widget), "text/html": picture}
                    self.record.show(data, {}, name, bool(before))
            shortest, longest = _PICTURE_INTERVALS_S
            interval = (time.monotonic() - self._began) * _PICTURE_SHARE
            self._next = time.monotonic() + min(longest, max(shortest, interval))


def _picture(widget: Any) -> str:
    """Return HTML that looks like a widget, or its name if it cannot be drawn."""
    try:
        return _drawn(widget)
    except Exception:  # noqa: BLE001 - it belongs to others, and the cell goes on whatever it does
        return f"<span>{html.escape(type(widget).__name__)}</span>"


def _drawn(widget: Any) -> str:
    kind = type(widget).__name__
    value: Any = getattr(widget, "value", None)
    label = html.escape(str(getattr(widget, "description", None) or ""))
    children = getattr(widget, "children", None)
    if children is not None:
        way = "column" if "VBox" in kind else "row"
        inside = "".join(map(_picture, children))
        return f'<div style="display:flex;flex-direction:{way};gap:.5em;align-items:baseline">{inside}</div>'
    if "Progress" in kind:
        low, high = float(widget.min), float(widget.max)
        return f'<span>{label} <progress value="{float(value) - low:g}" max="{high - low:g}"></progress></span>'
    if kind in ("HTML", "HTMLMath"):
        return f"<span>{label} {value}</span>"
    if isinstance(value, bytes):
        return f'<img src="data:image/{widget.format};base64,{base64.b64encode(value).decode()}">'
    return f"<span>{label} {html.escape(str(value) if value is not None else kind)}</span>"


class CellDisplayHook(DisplayHook):  # type: ignore[misc, unused-ignore]
    """Display hook that shows the value of an expression without a prompt."""

    def write_output_prompt(self) -> None:
        """Write no prompt: the cell has one in the notebook."""

    def write_format_data(self, format_dict: MimeBundle, md_dict: MimeBundle | None = None) -> None:
        """Show a value in all its forms."""
        assert self.shell is not None
        self.shell.display_pub.publish(format_dict, md_dict or {})

    def finish_displayhook(self) -> None:
        """Write no empty line."""
        self._is_active = False


class Compiler(CachingCompiler):  # type: ignore[misc, unused-ignore]
    """Compiler that names the cell as the notebook does. Code that the cell compiles is named by IPython."""

    cell: str | None = None

    def get_code_name(self, raw_code: str, transformed_code: str, number: int) -> str:
        """Return the name of code for tracebacks."""
        name, self.cell = self.cell, None
        return name or str(super().get_code_name(raw_code, transformed_code, number))


class CellExit(ExitAutocall):  # type: ignore[misc, unused-ignore]
    """``exit`` and ``quit``, with or without a call, with an exit code as in Python."""

    def __call__(self, code: Any = None) -> None:
        """End the cell."""
        shell: Any = self._ip
        shell.ask_exit(code)


class Shell(InteractiveShell):  # type: ignore[misc, unused-ignore]
    """IPython shell as in a kernel, with a file in place of a front end."""

    def init_virtualenv(self) -> None:
        """Leave sys.path unchanged: the job's Python was chosen, and VIRTUAL_ENV may be that of the notebook."""

    before_error: Any = staticmethod(lambda error: None)
    """Callback with an error, before the error is shown."""

    def showtraceback(self, *args: Any, **named: Any) -> None:
        """Show an error. sys.exit is not an error."""
        error = sys.exc_info()[1]
        if not isinstance(error, SystemExit):
            self.before_error(error)
            super().showtraceback(*args, **named)

    def _showtraceback(self, etype: Any, evalue: Any, stb: Any) -> None:
        sys.stdout.flush()
        sys.stderr.write(self.InteractiveTB.stb2text(stb) + "\n")

    def enable_gui(self, gui: str | None = None) -> None:
        """Start no event loop: a node has no screen. ``%matplotlib inline`` requests one, too."""

    @default("exiter")
    def _exiter_default(self) -> Any:
        exiter: Any = CellExit
        return exiter(self)

    def ask_exit(self, code: Any = None) -> None:
        """End the cell: ``exit`` and ``quit``."""
        raise SystemExit(code)


def _new_folder(record: Any) -> str:
    """Create a folder for IPython's profile, which IPython needs to start; on the node, if possible."""
    try:
        return tempfile.mkdtemp(prefix="ipython-")
    except OSError:
        return tempfile.mkdtemp(prefix="ipython-", dir=record.folder)


def start(main: types.ModuleType, record: Any) -> Any:
    """Start IPython, for one cell or for many."""
    config, folder = Config(), _new_folder(record)
    config.HistoryManager.enabled = False
    config.HistoryManager.hist_file = ":memory:"
    try:
        shell: Any = Shell.instance(
            config=config,
            ipython_dir=folder,
            user_module=main,
            displayhook_class=CellDisplayHook,
            display_pub_class=Publisher,
        )
    finally:
        shutil.rmtree(folder, ignore_errors=True)  # a killed job must not leave it on the node
    shell.db = {}
    shell.display_pub.record, shell.display_pub.widgets = record, Widgets(record)
    compiler: Any = Compiler
    shell.compile = compiler()
    warnings.filterwarnings("ignore", message="To exit: use", module="IPython")
    return shell


def run(shell: Any, source: str, filename: str) -> BaseException | None:
    """Run a cell as a notebook does. Return the exception that ended it early; errors are already shown."""
    number = re.search(r"\d+", filename)
    shell.compile.cell = filename
    shell.display_pub.widgets.start_cell()
    shell.execution_count = int(number[0]) if number else 1
    result = shell.run_cell(source, store_history=True)
    shell.display_pub.widgets.record_changes(now=True)
    error: BaseException | None = result.error_before_exec or result.error_in_exec
    return error


def loop() -> Any:
    """Return the event loop of awaiting cells; None if unknown, or if nothing was awaited."""
    helpers = sys.modules.get("IPython.core.async_helpers")
    find = getattr(helpers, "get_asyncio_loop", None) if "asyncio" in sys.modules else None  # IPython 8
    return find and find()
