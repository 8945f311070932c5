"""Run cells one after the other in one process, which a step of the allocation is. Python 3.8+, standard library only.

``step.py`` starts it, ``hold.py`` tells it on its standard input what to do, a line each: ``KEY`` runs the cell whose
job directory is KEY, beside that of the process; ``KEY INT`` and ``KEY KILL`` interrupt it, or have it never begin.
Each cell has output, figures, values and an end marker of its own; what it leaves in Python stays for the next one.
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

_MAX_LATE_BYTES = 65_536  # bytes of what threads print between two cells
_MEMORY_INTERVAL_S = 5.0  # seconds between two looks at the memory of this process
_MIN_MEMORY_CHANGE_BYTES = 1 << 20  # bytes by which it has changed
_CANCEL_TIMEOUT_S = 1.0  # seconds for what a cell awaited when it was interrupted


class ProcessExit(SystemExit):
    """``exit()`` in a cell: it ends the process, as it ends a kernel."""


def _ignore(*_: Any) -> None:
    """Do nothing about a signal. SIG_IGN would be inherited by what the next cells start."""


def _leave(*_: Any) -> None:
    raise ProcessExit(0)


def _refuse_input(*_: Any, **__: Any) -> str:
    raise EOFError("nobody can be asked in a remote cell: send what it needs with in=NAME")


def _leave_us_out(error: BaseException | None) -> None:
    """Have the traceback of who was asked end with the cell's own line."""
    trace = error.__traceback__ if error is not None else None
    while trace is not None:
        if trace.tb_next is not None and trace.tb_next.tb_frame.f_code is _refuse_input.__code__:
            trace.tb_next = None
        trace = trace.tb_next


class Memory:
    """The file that says how much memory this process has, where the system tells that (proc(5)).

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
        """Write it down, where it is another than before; never a reason to fail."""
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
    """The cells that wait, the one that runs, and what they share.

    Parameters
    ----------
    cell, step : module
        ``cell/run.py`` and ``step.py``, which started us.
    place : cell.JobDirectory
        The job directory of the process.
    """

    def __init__(self, cell: Any, step: Any, place: JobDirectory) -> None:
        self._cell, self._step, self._folder = cell, step, os.path.dirname(place.folder)
        self._lock = threading.Lock()
        self._waiting: list[str] = []
        self._running: str | None = None
        self._pid = os.getpid()
        self._stopped = ""  # what was to be interrupted
        self._between = place.folder
        self._late_files: list[tuple[int, str, int]] = []  # files, and how long they were at the end of the cell before
        self._is_over = self._is_silent = False
        self._loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self._loop)
        self._news = asyncio.Event()  # of the loop that was just set, in old Pythons
        self._main = cell.prepare([""])
        self._named: dict[str, Any] = {}
        self._record = place.display()
        self._shell = cell.ipython()
        place.note()
        if self._shell is not None:
            self._ipython = self._shell.start(self._main, self._record)
            self._ipython.loop_runner = self._finish
            awaits = self._ipython.should_run_async
            # As in a kernel, the loop runs under whatever a cell does; what that runs in turn (%%capture) is under it.
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
        vars(builtins)["input"] = getpass.getpass = _refuse_input
        self._memory = Memory(place)

    def serve(self, requests: int) -> int:
        """Run what is asked for on a file descriptor, until the process is to end."""
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
        """Have a coroutine end; what other ones a cell has started goes on meanwhile.

        One that is interrupted while it awaits something is cancelled: nothing of the cell runs later.
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
        """Have a task end soon, without a word of its own: what ended it is told by who waits for it."""
        self._is_silent = True
        task.cancel()
        timer = self._loop.call_later(_CANCEL_TIMEOUT_S, self._loop.stop)
        try:
            if not task.done():
                self._loop.run_forever()
            if task.done() and not task.cancelled():
                task.exception()  # it is known
        finally:
            timer.cancel()
            self._is_silent = False

    async def _wait(self) -> None:
        self._news = asyncio.Event()
        while not self._waiting and not self._is_over:
            await self._news.wait()
            self._news.clear()

    # -- what is asked for, in a thread of its own

    def _listen(self, requests: int) -> None:
        with os.fdopen(requests, encoding="ascii") as lines:
            for line in lines:
                key, _, what = line.strip().partition(" ")
                with self._lock:
                    self._take(key, what)
                self._wake()
        self._is_over = True  # whoever held the allocation is gone
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
        """Send SIGINT as a terminal does: to what the cell has started, too."""
        if os.getpgrp() == os.getpid():
            os.killpg(0, signal.SIGINT)
        else:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    # -- one cell

    def _run(self, key: str) -> bool:
        """Run a cell; return whether there may be another one."""
        folder = os.path.join(self._folder, key)
        try:
            self._step.redirect(folder)
            self._bring_late()
            code = self._run_in(self._cell.JobDirectory(folder), key)
        except KeyboardInterrupt:  # before the cell's first line, or after its last one
            code = 130
            signal.signal(signal.SIGINT, _ignore)
        except ProcessExit:
            if os.getpid() != self._pid:
                os._exit(0)
            return False  # who waits for the cell hears of it from whoever started us
        except SystemExit as stop:
            code = self._cell.exit_code(stop)
        except Exception as error:  # noqa: BLE001 - whatever is wrong with this one, the next may run
            self._cell.print_error(error, "")
            code = 1
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        if os.getpid() != self._pid:  # a child that the cell has forked has come to its end: it is not the process
            os._exit(code & 0xFF)
        with self._lock:
            self._running = None
        self._memory.note()
        self._leave_files(folder)
        self._end(folder, code & 0xFF, is_interrupted=code == 130)
        return True

    def _leave_files(self, folder: str) -> None:
        """Have threads print elsewhere: whether who waits for the cell saw what its files get later is not known.

        Programs that the cell has started keep them.
        """
        self._late_files = []
        with contextlib.suppress(OSError):  # then they print on where they did
            left = self._lengths(self._between)
            self._step.redirect(self._between)
            self._late_files = [*self._lengths(folder), *left]

    @staticmethod
    def _lengths(folder: str) -> list[tuple[int, str, int]]:
        """Return the files for what is printed, with their descriptors, and how long they are."""
        paths = ((number, os.path.join(folder, name)) for number, name in ((1, "stdout"), (2, "stderr")))
        return [(number, path, os.path.getsize(path) if os.path.exists(path) else 0) for number, path in paths]

    def _bring_late(self) -> None:
        """Put out first what was printed since the cell before: nobody has waited for that."""
        for number, path, seen in self._late_files:
            with contextlib.suppress(OSError), open(path, "rb") as file:
                file.seek(max(seen, os.fstat(file.fileno()).st_size - _MAX_LATE_BYTES))
                os.write(number, file.read(_MAX_LATE_BYTES))

    def _run_in(self, place: JobDirectory, key: str) -> int:
        self._step.record_start(place)
        self._record.close()
        self._record = place.display()
        signal.signal(signal.SIGINT, signal.default_int_handler)  # from here on an interrupt is for the cell
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
        """Return what tracebacks call a cell: another notebook, or one that began anew, may have had its number."""
        name: str = place.job["cell"]["filename"]
        while name in linecache.cache:
            name += "'"
        return name

    def _end(self, folder: str, code: int, *, is_interrupted: bool) -> None:
        """Leave how a cell ended."""
        end = {"format": 1, "exit_code": code, "time": time.time(), "restarts": 0, "interrupted": is_interrupted}
        try:
            place = self._cell.JobDirectory(folder)
            place.put(os.path.join(folder, "end.json"), json.dumps(end))
            place.publish_event("ended")
        except (OSError, ValueError) as error:
            sys.stderr.write(f"the end of this cell could not be recorded: {error}\n")


def serve(cell: Any, step: Any, place: JobDirectory) -> int:
    """Be the process: what cells say goes to their own directories, what is said between them to the process's."""
    requests, nothing = os.dup(0), os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    cell.take_any_text()
    with contextlib.suppress(OSError):
        faulthandler.enable()  # a cell that crashes says where
    return Process(cell, step, place).serve(requests)
