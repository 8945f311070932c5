"""Cells of other notebooks in a kernel, for its keeper (``keeper.py``): ``%%remote kernel``.

``allocation/hold.py`` sends requests to the keeper's standard input, one a line, as to a process for cells
(``allocation/process.py``). ``KEY`` runs the cell with job directory KEY, a sibling of that of the kernel. ``KEY INT``
and ``KEY KILL`` interrupt the cell, or prevent its start. The kernel gets an execute request as for a cell of its own
notebook, in turn with these (``run_cell.py``). Messages that the kernel publishes for the cell are written to the files
of the cell.

Python 3.8+, standard library only.
"""

from __future__ import annotations

import contextlib
import json
import os
import runpy
import sys
import time
from typing import TYPE_CHECKING, Any, Callable, Mapping

# The runner is not a package: its files are loaded by path.
_LOADER = __file__[: -len("kernel/cells.py")] + "loader.py"
load = runpy.run_path(_LOADER)["load"]
if TYPE_CHECKING:
    from jupyter_slurm.runner.allocation import step
    from jupyter_slurm.runner.cell import display
    from jupyter_slurm.runner.job_directory import JobDirectory
    from jupyter_slurm.runner.job_document import CellNews, DisplayMessage, MessageContent
    from jupyter_slurm.runner.kernel import run_cell
else:
    step = load("allocation.step")
    display = load("cell.display")
    JobDirectory = load("job_directory").JobDirectory
    run_cell = load("kernel.run_cell")

_MAX_ENDED_CELLS = 100  # ended cells whose threads may still print
_READ_SIZE = 65_536
_WIDGET = "application/vnd.jupyter.widget-view+json"
_FORMS = {"display_data": "display", "execute_result": "display", "update_display_data": "update"}
# Not output: the proxy needs the status of the kernel and the models of widgets.
_FOR_THE_FRONT = {"status", "comm_open", "comm_msg", "comm_close"}


def _code(folder: str) -> str:
    """Return code for the kernel that runs the cell of a job directory and defines no name in the namespace."""
    loaded = f"__import__('runpy').run_path({_LOADER!a})['load']('kernel.run_cell')"
    return f"await (__import__('sys').modules.get('jupyter_slurm_kernel_run_cell') or {loaded}).run({folder!a})"


def why_lost(code: int, died: Mapping[str, object], *, is_unused: bool, is_end_requested: bool) -> str:
    """Explain, for cells of other notebooks, why their kernel has ended."""
    if is_unused or is_end_requested:
        return "it was not used" if is_unused else "its notebook ended or restarted it"
    if died.get("signal"):
        return f"by signal {died['signal']}"
    return str(died.get("why") or ("exit()" if code == 0 else f"exit code {code}"))


class RunningCell:
    """Cell with its files.

    Parameters
    ----------
    folder : str
        Job directory of the cell.
    """

    def __init__(self, folder: str) -> None:
        self.folder, self.key = folder, os.path.basename(folder)
        self.has_begun = self.is_over = self.is_stopped = False
        self.is_answered = self.is_done = False  # whether the last request for the cell has a reply, and is done
        self.code: int | None = None
        self._files: dict[str, int] = {}
        self._place: JobDirectory | None = None
        self._record: Any = None
        self._has_shown = self._is_lacking = False
        self._problem = self._unrecorded = ""  # the last problem of recording, and an end that is not written yet

    @property
    def place(self) -> Any:
        """Job directory; may raise OSError or ValueError."""
        if self._place is None:
            self._place = JobDirectory(self.folder)
        return self._place

    def withdraw(self) -> bool:
        """Prevent the start of the cell; False: it has started."""
        with contextlib.suppress(OSError):
            return bool(run_cell.take(self.folder))
        return False

    def mark_started(self) -> None:
        """Record the start of the cell."""
        self.has_begun = True
        with contextlib.suppress(OSError, ValueError):
            step.record_start(self.place)

    def write(self, stream: str, text: str) -> None:
        """Write text to the output of the cell. Errors are ignored."""
        left = memoryview(text.encode("utf-8", "backslashreplace"))
        try:
            while left:
                left = left[os.write(self._open(stream), left) :]
        except OSError as error:
            if not self._is_lacking:
                self._is_lacking = True
                sys.stderr.write(f"output of the cell {self.key} is lost: {error.strerror}\n")
        if self.is_over:  # a thread of the cell still prints
            self.close()

    def _open(self, stream: str) -> int:
        name = "stderr" if stream == "stderr" else "stdout"
        if name not in self._files:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
            self._files[name] = os.open(os.path.join(self.folder, name), flags, 0o600)
        return self._files[name]

    def show(self, kind: str, content: MessageContent) -> None:
        """Record a displayed message. A message of plain text only is printed."""
        data, name = dict(content.get("data") or {}), (content.get("transient") or {}).get("display_id")
        data.pop(_WIDGET, None)  # its model is in the kernel's own notebook
        if set(data) <= {"text/plain"} and name is None:
            self.write("stdout", f"{data.get('text/plain', '')}\n")
            return
        self._has_shown = True
        self._keep({"type": _FORMS[kind], "data": data, "metadata": content.get("metadata") or {}, "id": name})

    def clear(self, wait: bool) -> None:
        """Clear the output so far."""
        for stream in ("stdout", "stderr"):
            self.write(stream, display.CLEAR_LATER if wait else display.CLEAR)
        if self._has_shown:
            self._has_shown = False
            self._keep({"type": "clear", "wait": wait})

    def _keep(self, message: DisplayMessage) -> None:
        with contextlib.suppress(OSError, ValueError):
            if self._record is None:
                self._record = self.place.display()
                self._record.printed = self._printed
            self._record.relay(message)

    def _printed(self) -> dict[str, int | None]:
        """Return the position of the text streams."""
        sizes: dict[str, int | None] = dict.fromkeys(("stdout", "stderr"))
        for stream in ("stdout", "stderr"):
            with contextlib.suppress(OSError):
                sizes[stream] = os.fstat(self._open(stream)).st_size
        return sizes

    def end(self, code: int, **said: Any) -> None:
        """Record how the cell ended."""
        self.is_over = True
        self.close()
        end = {"format": 1, "exit_code": code, "time": time.time(), "restarts": 0, "interrupted": code == 130, **said}
        self._unrecorded = json.dumps(end)
        self.record_end()

    def record_end(self) -> None:
        """Write the end of the cell if that was not possible before."""
        if not self._unrecorded:
            return
        try:
            self.place.put(os.path.join(self.folder, "end.json"), self._unrecorded)
            self._unrecorded = ""
            self.place.publish_event("ended")
        except OSError as error:
            self._report(f"the end of the cell {self.key} could not be recorded yet: {error}")
        except ValueError as error:
            self._unrecorded = ""
            self._report(f"the end of the cell {self.key} could not be recorded: {error}")

    def _report(self, problem: str) -> None:
        """Print a problem of recording, each one once."""
        if problem != self._problem:
            self._problem = problem
            sys.stderr.write(f"{problem}\n")

    def close(self) -> None:
        """Close the files of the cell."""
        for number in self._files.values():
            os.close(number)
        self._files.clear()
        if self._record is not None:
            self._record.close()


class RunningCells:
    """Those that wait, the one that runs, and the last ones that did.

    Parameters
    ----------
    folder : str
        The job directory of the kernel.
    send_request : callable
        Sends the kernel an execute_request with a content; returns its id.
    interrupt : callable
        Interrupts the kernel.
    """

    def __init__(
        self, folder: str, send_request: Callable[[MessageContent], str], interrupt: Callable[[], None]
    ) -> None:
        self._folder, self._send_request, self._interrupt = os.path.dirname(folder), send_request, interrupt
        self._cells: dict[str, RunningCell] = {}  # by their keys
        self._requests: dict[str, RunningCell] = {}  # by ids of requests
        self._line = b""
        self._has_begun = False
        self._refuses = self._gone = ""  # reasons why the kernel accepts no cells, and why it has ended
        self._shown: set[str] = set()  # display ids

    def __contains__(self, number: str) -> bool:
        return number in self._requests

    # -- requests

    def receive(self) -> bool:
        """Process standard input; False: it has ended."""
        with contextlib.suppress(OSError):
            if data := os.read(0, _READ_SIZE):
                *lines, self._line = (self._line + data).split(b"\n")
                for line in lines:
                    key, _, what = line.decode("ascii", "replace").strip().partition(" ")
                    self._take(key, what)
                return True
        return False

    def record_ends(self) -> None:
        """Write ends that could not be written before: the disk may have room again."""
        for one in self._cells.values():
            one.record_end()

    def _take(self, key: str, what: str) -> None:
        known = self._cells.get(key)
        if not what and known is None:
            self._forget()
            self._cells[key] = known = RunningCell(os.path.join(self._folder, key))
            self._send(known)
        elif what and known is not None and not known.is_over:
            if known.withdraw():
                known.end(130)
            elif known.has_begun:
                self._interrupt()
            else:
                known.is_stopped = True  # interrupted when the kernel reports its start

    def _forget(self) -> None:
        over = [key for key, one in self._cells.items() if one.is_over]
        for key in over[:-_MAX_ENDED_CELLS]:
            del self._cells[key]
        self._requests = {number: one for number, one in self._requests.items() if one.key in self._cells}

    def _send(self, one: RunningCell) -> None:
        """Send the request for a cell, if possible."""
        if self._gone:
            self._lose(one)
        elif self._refuses:
            one.mark_started()
            one.write("stderr", f"{self._refuses}\n")
            one.end(1)
        elif self._has_begun:
            one.is_answered = one.is_done = False
            asked: MessageContent = {"code": _code(one.folder), "silent": True, "store_history": False}
            asked.update({"user_expressions": {}, "allow_stdin": False, "stop_on_error": False})
            self._requests[self._send_request(asked)] = one

    def start(self, info: MessageContent) -> None:
        """Send the cells that waited for the start of the kernel; ``info`` is the kernel's description of itself."""
        self._has_begun = True
        if info.get("implementation") != "ipython":
            language = (info.get("language_info") or {}).get("name") or info.get("implementation")
            self._refuses = f"Only an ipykernel can run cells of other notebooks, and this kernel is for {language}."
        for one in self._waiting():
            self._send(one)

    def lose(self, why: str) -> None:
        """End all remaining cells, because the kernel has ended."""
        self._gone = why
        for one in self._waiting():
            self._lose(one)

    def _lose(self, one: RunningCell) -> None:
        if not (one.has_begun or one.withdraw()):
            one.mark_started()  # its kernel had no time to report the start
        one.end(1, interrupted=not one.has_begun, lost=self._gone)

    def _waiting(self) -> list[RunningCell]:
        return [one for one in self._cells.values() if not one.is_over]

    # -- messages of the kernel

    def reply(self, number: str, content: MessageContent) -> None:
        """Process the reply to a request for a cell."""
        one = self._requests[number]
        if one.is_over:
            return
        # an earlier cell has failed, which aborts later cells of its own notebook
        if content.get("status") == "aborted":
            del self._requests[number]
            self._send(one)
            return
        for payload in content.get("payload") or []:
            if isinstance(payload, dict) and payload.get("source") == "page":
                one.write("stdout", str((payload.get("data") or {}).get("text/plain", "")))
        if content.get("status") != "ok" and one.code is None:
            one.code = 130 if content.get("ename") in ("KeyboardInterrupt", "CancelledError") else 1
        one.is_answered = True
        self._settle(one)

    def publish(self, number: str, kind: str, content: MessageContent) -> bool:
        """Process a message published for a request of a cell; return whether the proxy needs it."""
        one = self._requests[number]
        data = content.get("data") or {}
        if kind == "stream":
            one.write(str(content.get("name")), str(content.get("text", "")))
        elif kind == "display_data" and run_cell.NEWS in data:
            self._apply_news(one, data[run_cell.NEWS])
        elif kind in _FORMS:
            return self._show(one, kind, content)
        elif kind == "error":
            one.write("stderr", "\n".join(map(str, content.get("traceback") or [])) + "\n")
        elif kind == "clear_output":
            one.clear(bool(content.get("wait")))
        elif kind == "status" and content.get("execution_state") == "idle":
            one.is_done = True
            self._settle(one)
        return kind in _FOR_THE_FRONT

    def _show(self, one: RunningCell, kind: str, content: MessageContent) -> bool:
        name = (content.get("transient") or {}).get("display_id")
        if kind == "update_display_data" and name not in self._shown:
            return True  # the kernel's notebook has shown the output
        if name is not None:
            self._shown.add(name)
        one.show(kind, content)
        return False

    def _apply_news(self, one: RunningCell, news: CellNews) -> None:
        if "begun" in news:
            one.mark_started()
            if one.is_stopped:
                self._interrupt()
        elif isinstance(news.get("exit_code"), int):
            one.code = news["exit_code"]

    @staticmethod
    def _settle(one: RunningCell) -> None:
        """End a cell whose request is done, after all of its output has arrived."""
        if one.is_answered and one.is_done and not one.is_over:
            if not one.has_begun:
                one.mark_started()
            one.end(1 if one.code is None else one.code)
