"""Process that runs cells one after the other, in a step of the allocation. Python 3.8+, standard library only.

``step.py`` starts it. ``hold.py`` sends requests to its standard input, one a line. ``KEY`` runs the cell with job
directory KEY, a sibling of that of the process. ``KEY INT`` and ``KEY KILL`` interrupt the cell, or prevent its start.
Each cell has its own output, figures, values and end marker. Its Python state stays for the next cell.
"""

from __future__ import annotations

import asyncio
import builtins
import contextlib
import faulthandler
import getpass
import json
import linecache
import os
import signal
import sys
import threading
import time
import types
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jupyter_slurm.runner.job_directory import JobDirectory

_MAX_LATE_BYTES = 65_536  # bytes of output that threads print between two cells
_MEMORY_INTERVAL_S = 5.0  # seconds between two measurements of the memory of this process
_MIN_MEMORY_CHANGE_BYTES = 1 << 20  # smallest change in bytes that is recorded
_RETRY_INTERVAL_S = 5.0  # seconds before the next attempt to record the end of a cell
_CANCEL_TIMEOUT_S = 1.0  # seconds for the coroutine that an interrupted cell awaited


class ProcessExit(SystemExit):
    """``exit()`` in a cell, which ends the process as it ends a kernel."""


def _ignore(*_: Any) -> None:
    """Ignore a signal. SIG_IGN would be inherited by programs that later cells start."""


def _leave(*_: Any) -> None:
    raise ProcessExit(0)


def _refuse_input(*_: Any, **__: Any) -> str:
    raise EOFError("input() is not possible in a remote cell. Send values with in=NAME.")


def _leave_us_out(error: BaseException | None) -> None:
    """Cut the traceback of a refused input request after the cell's own line."""
    trace = error.__traceback__ if error is not None else None
    while trace is not None:
        if trace.tb_next is not None and trace.tb_next.tb_frame.f_code is _refuse_input.__code__:
            trace.tb_next = None
        trace = trace.tb_next


class Memory:
    """File that records the memory use of this process, where the system provides it (proc(5)).

    Parameters
    ----------
    place : cell.JobDirectory
        The job directory of the process.
    """

    def __init__(self, place: JobDirectory) -> None:
        self._place, self._path = place, os.path.join(place.folder, "memory.json")
        self._lock, self._noted = threading.Lock(), 0
        threading.Thread(target=self._watch, daemon=True, name="memory").start()

    def note(self) -> None:
        """Record the memory use if it has changed. Errors are ignored."""
        with contextlib.suppress(OSError, ValueError), self._lock:
            with open("/proc/self/status", encoding="ascii", errors="replace") as file:
                lines = dict(line.split(":", 1) for line in file if ":" in line)
            now, most = (int(lines[name].split()[0]) << 10 for name in ("VmRSS", "VmHWM"))
            if abs(now - self._noted) >= _MIN_MEMORY_CHANGE_BYTES:
                told = {"format": 1, "now": now, "most": most, "time": time.time()}
                self._place.put(self._path, json.dumps(told))
                self._noted = now

    def _watch(self) -> None:
        while True:
            self.note()
            time.sleep(_MEMORY_INTERVAL_S)


class Process:
    """Queue of cells, the running cell, and their shared state.

    Parameters
    ----------
    cell, step : module
        ``cell/run.py`` and ``step.py``, which started this process.
    place : cell.JobDirectory
        The job directory of the process.
    """

    def __init__(self, cell: Any, step: Any, place: JobDirectory) -> None:
        self._cell, self._step, self._folder = cell, step, os.path.dirname(place.folder)
        self._lock = threading.Lock()
        self._waiting: list[str] = []
        self._running: str | None = None
        self._pid = os.getpid()
        self._stopped = ""  # key of the cell to interrupt
        self._unrecorded: list[tuple[str, str]] = []  # folders and ends of cells, while the disk is full
        self._between = place.folder
        self._late_files: list[tuple[int, str, int]] = []  # files, with their lengths at the end of the previous cell
        self._is_over = self._is_silent = False
        self._loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self._loop)
        self._news = asyncio.Event()  # bound to the loop that was just set, in old Pythons
        self._main = cell.prepare([""])
        self._named: dict[str, object] = {}
        self._record = place.display()
        self._shell = cell.ipython()
        place.note()
        if self._shell is not None:
            self._ipython = self._shell.start(self._main, self._record)
            self._ipython.loop_runner = self._finish
            awaits = self._ipython.should_run_async
            # As in a kernel, the loop runs below every cell, and below code that the cell runs in turn (%%capture).
            self._ipython.should_run_async = lambda *args, **named: (
                not self._loop.is_running() or awaits(*args, **named)
            )
            self._ipython.ask_exit = _leave
            self._ipython.before_error = _leave_us_out
            shows = self._ipython.showtraceback
            self._ipython.showtraceback = lambda *args, **named: None if self._is_silent else shows(*args, **named)
        else:
            self._plain, self._alone = cell.load("cell.display").PlainDisplay(self._record), cell.load("cell.plain")
            vars(builtins)["exit"] = vars(builtins)["quit"] = _leave
        cell.load("variables.values_file")
        cell.add_working_directory(has_ipython=self._shell is not None)
        vars(builtins)["input"] = getpass.getpass = _refuse_input
        self._memory = Memory(place)

    def serve(self, requests: int) -> int:
        """Run the requests from a file descriptor until the process is to end."""
        signal.signal(signal.SIGINT, _ignore)
        threading.Thread(target=self._listen, args=(requests,), daemon=True, name="requests").start()
        while True:
            self._finish(self._wait())
            with self._lock:
                if not self._waiting:
                    return 0
                key = self._running = self._waiting.pop(0)
            if not self._run(key):
                return 0

    def _finish(self, coroutine: Any) -> Any:
        """Run a coroutine to its end, while other coroutines of the cell continue.

        A coroutine that is interrupted while it awaits is cancelled, so that no part of the cell runs later.
        """
        task = self._loop.create_task(coroutine)
        task.add_done_callback(lambda _: self._loop.stop())
        try:
            while not task.done():  # a cell may have stopped the loop
                self._loop.run_forever()
        except BaseException:
            self._cancel(task)
            raise
        return task.result()

    def _cancel(self, task: Any) -> None:
        """End a task soon and silently: the waiting code reports the reason."""
        self._is_silent = True
        task.cancel()
        timer = self._loop.call_later(_CANCEL_TIMEOUT_S, self._loop.stop)
        try:
            if not task.done():
                self._loop.run_forever()
            if task.done() and not task.cancelled():
                task.exception()  # marks the exception as retrieved
        finally:
            timer.cancel()
            self._is_silent = False

    async def _wait(self) -> None:
        self._news = asyncio.Event()
        while not self._waiting and not self._is_over:
            timer = self._loop.call_later(_RETRY_INTERVAL_S, self._news.set) if self._unrecorded else None
            await self._news.wait()
            if timer is not None:
                timer.cancel()
            self._news.clear()
            self._record_ends()

    # -- requests, read in a separate thread

    def _listen(self, requests: int) -> None:
        with os.fdopen(requests, encoding="ascii") as lines:
            for line in lines:
                key, _, what = line.strip().partition(" ")
                with self._lock:
                    self._take(key, what)
                self._wake()
        self._is_over = True  # the holder of the allocation has ended
        self._wake()

    def _wake(self) -> None:
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._news.set)

    def _take(self, key: str, what: str) -> None:
        if not what:
            self._waiting.append(key)
        elif key == self._running:
            self._stopped = key
            self._interrupt()
        elif key in self._waiting:
            self._waiting.remove(key)
            self._end(os.path.join(self._folder, key), 130, is_interrupted=True)

    @staticmethod
    def _interrupt() -> None:
        """Send SIGINT as a terminal does: also to processes that the cell has started."""
        if os.getpgrp() == os.getpid():
            os.killpg(0, signal.SIGINT)
        else:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    # -- one cell

    def _run(self, key: str) -> bool:
        """Run a cell. Return whether another cell may follow."""
        folder = os.path.join(self._folder, key)
        try:
            self._step.redirect(folder)
            self._bring_late()
            code = self._run_in(self._cell.JobDirectory(folder), key)
        except KeyboardInterrupt:  # before the first line of the cell, or after its last line
            code = 130
            signal.signal(signal.SIGINT, _ignore)
        except ProcessExit:
            if os.getpid() != self._pid:
                os._exit(0)
            return False  # the step that started this process reports its end to those who wait for the cell
        except SystemExit as stop:
            code = self._cell.exit_code(stop)
        except Exception as error:  # noqa: BLE001 - whatever is wrong with this one, the next may run
            with contextlib.suppress(OSError):  # the disk may be full
                self._cell.print_error(error, "")
            code = 1
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        if os.getpid() != self._pid:  # a child forked by the cell has ended: it is not the process
            os._exit(code & 0xFF)
        with self._lock:
            self._running = None
        self._memory.note()
        self._leave_files(folder)
        self._end(folder, code & 0xFF, is_interrupted=code == 130)
        return True

    def _leave_files(self, folder: str) -> None:
        """Redirect later output of threads: nobody may read the files of the cell after its end.

        Programs that the cell has started keep these files open.
        """
        self._late_files = []
        with contextlib.suppress(OSError):  # on failure, threads print into the old files
            left = self._lengths(self._between)
            self._step.redirect(self._between)
            self._late_files = [*self._lengths(folder), *left]

    @staticmethod
    def _lengths(folder: str) -> list[tuple[int, str, int]]:
        """Return the output files with their descriptors and lengths."""
        paths = ((number, os.path.join(folder, name)) for number, name in ((1, "stdout"), (2, "stderr")))
        return [(number, path, os.path.getsize(path) if os.path.exists(path) else 0) for number, path in paths]

    def _bring_late(self) -> None:
        """Print first the output since the previous cell, which nobody has read."""
        for number, path, seen in self._late_files:
            with contextlib.suppress(OSError), open(path, "rb") as file:
                file.seek(max(seen, os.fstat(file.fileno()).st_size - _MAX_LATE_BYTES))
                os.write(number, file.read(_MAX_LATE_BYTES))

    def _run_in(self, place: JobDirectory, key: str) -> int:
        self._step.record_start(place)
        self._record.close()
        self._record = place.display()
        signal.signal(signal.SIGINT, signal.default_int_handler)  # from now on, an interrupt is for the cell
        try:
            if self._stopped == key:
                raise KeyboardInterrupt
            with self._cell.values_of(place, vars(self._main), self._named):
                error = self._run_source(place.job["cell"]["source"], self._name(place))
                if isinstance(error, ProcessExit):
                    raise error
        finally:
            signal.signal(signal.SIGINT, _ignore)
        return int(self._cell.exit_code(error))

    def _run_source(self, source: str, filename: str) -> BaseException | None:
        if self._shell is not None:
            publisher = self._ipython.display_pub
            publisher.record = publisher.widgets.record = self._record
            error: BaseException | None = self._shell.run(self._ipython, source, filename)
            return error
        self._plain.record = self._record
        loop = types.SimpleNamespace(run_until_complete=self._finish)
        try:
            self._alone.run(self._plain, source, filename, self._main, loop)
        except BaseException as error:  # noqa: BLE001 - whatever a cell raises is shown as a notebook shows it
            if not isinstance(error, SystemExit):
                _leave_us_out(error)
                self._cell.print_error(error, filename)
            return error
        return None

    @staticmethod
    def _name(place: JobDirectory) -> str:
        """Return the name of a cell for tracebacks. Another notebook or an earlier run may use the same number."""
        name: str = place.job["cell"]["filename"]
        while name in linecache.cache:
            name += "'"
        return name

    def _end(self, folder: str, code: int, *, is_interrupted: bool) -> None:
        """Record how a cell ended."""
        end = {"format": 1, "exit_code": code, "time": time.time(), "restarts": 0, "interrupted": is_interrupted}
        self._record_end(folder, json.dumps(end))

    def _record_end(self, folder: str, end: str) -> None:
        try:
            place = self._cell.JobDirectory(folder)
            place.put(os.path.join(folder, "end.json"), end)
            place.publish_event("ended")
        except OSError as error:
            with contextlib.suppress(OSError):
                sys.stderr.write(f"the end of this cell could not be recorded yet: {error}\n")
            self._unrecorded.append((folder, end))
        except ValueError as error:
            with contextlib.suppress(OSError):
                sys.stderr.write(f"the end of this cell could not be recorded: {error}\n")

    def _record_ends(self) -> None:
        """Record the ends of earlier cells: the disk may have room again."""
        unrecorded, self._unrecorded = self._unrecorded, []
        for folder, end in unrecorded:
            if os.path.isdir(folder):
                self._record_end(folder, end)


def serve(cell: Any, step: Any, place: JobDirectory) -> int:
    """Run the process. Output of a cell goes to its own job directory, other output to that of the process."""
    requests, nothing = os.dup(0), os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    cell.take_any_text()
    with contextlib.suppress(OSError):
        faulthandler.enable()  # a crash of a cell shows its place
    return Process(cell, step, place).serve(requests)
