"""Starter of commands that run once, and holder of file locks, on a login node: much faster than a shell.

A shell starts a process for each folder, lock and move, a dozen for one submission. This program runs in the foreground
of such a shell and takes its requests (a JSON array of words each, in one line). Unknown requests are passed to a
shell. The answers are those of the shell functions in ``transport/ssh/shell/functions.py``, which describes words and
promises. One lock is on PREFIX.out until PREFIX.exit is written, one on a new folder's first file. Python 3.6+,
standard library.
"""

import contextlib
import errno
import fcntl
import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from typing import Dict, Iterator, List, Optional, Tuple

# LIMITS ARGV…; a bash takes options and functions from its environment.
_LIMITED = b"""set +efuC; unset -f ulimit shift 2>/dev/null
for l in $0; do ulimit -S "-${l%%=*}" "${l#*=}" 2>/dev/null; done; exec "$@" """
_ENDINGS = (b".out", b".err", b".once")
_Files = List[Tuple[bytes, bytes, bytes]]  # kind, name, content


def write_all(file: int, data: bytes) -> None:
    """Write all data."""
    while data:
        data = data[os.write(file, data) :]


def new_file(path: bytes) -> int:
    """Create a file that must not exist."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)


def lock(file: int) -> bool:
    """Lock an open file, if its file system supports locks; False: another process has the lock."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno not in (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES)
    return True


def content(path: bytes) -> bytes:
    """Return the content of a file; empty if it does not exist."""
    with contextlib.suppress(FileNotFoundError), open(path, "rb") as file:
        return file.read()
    return b""


def reason(error: OSError) -> bytes:
    """Return the system's text for an error, as coreutils print it."""
    return os.fsencode(error.strerror or "it failed")


def make(path: bytes, kind: bytes, told: bytes) -> None:
    """Create a file of a new folder: from its content, or as a link to an existing file."""
    if kind != b"link":
        with os.fdopen(new_file(path), "wb") as file:
            # As printf %b writes data from the client.
            file.write(re.sub(rb"\\(\\|0000)", lambda found: b"\\" if found.group(1) == b"\\" else b"\0", told))
        return
    try:
        os.link(told, path)
    except OSError:
        shutil.copyfile(told, path)


def reserve(base: bytes, opened: List[int]) -> bool:
    """Create the files of a command that runs once, and keep them open; False: they exist."""
    for ending in _ENDINGS:
        try:
            opened.append(new_file(base + ending))
        except OSError as error:
            if error.errno == errno.EEXIST and not opened:
                return False
            for made in _ENDINGS[: len(opened)]:
                os.unlink(base + made)
            raise
    return True


class CommandContext:
    """Circumstances of a command, and the command: UMASK CWD #LIMITS L=V… #VARIABLES NAME=VALUE… ARGV…."""

    def __init__(self, words: List[bytes], env: Dict[bytes, bytes], umask: int) -> None:
        self.umask, self.cwd = int(words[0] or b"%o" % umask, 8), words[1] or None
        count = int(words[2])
        self.limits, words = b" ".join(words[3 : 3 + count]), words[3 + count :]
        count = int(words[0])
        pairs = (word.partition(b"=") for word in words[1 : 1 + count])
        self.env = {**env, **{name: value for name, _, value in pairs}}
        self.argv = words[1 + count :]

    def find_missing(self) -> Optional[str]:
        """Return the reason why the command cannot start."""
        here = -1
        with contextlib.suppress(OSError):
            here = os.open(".", os.O_RDONLY)
        try:
            if self.cwd is not None:
                os.chdir(self.cwd)
            path = os.fsdecode(self.env.get(b"PATH", os.fsencode(os.defpath)))
            return None if shutil.which(os.fsdecode(self.argv[0]), path=path) else "missing"
        except OSError:
            return "folder"
        finally:
            if here >= 0:
                os.fchdir(here)
                os.close(here)

    def start(self, out: int, err: int) -> "subprocess.Popen[bytes]":
        """Start the command in its own session, without a shell, which would take as long as some commands."""
        before = os.umask(self.umask)
        try:
            return self.popen([b"/bin/sh", b"-c", _LIMITED, self.limits] if self.limits else [], out, err)
        except OSError as error:
            if error.errno != errno.ENOEXEC:
                raise
            return self.popen([b"/bin/sh", b"-c", _LIMITED, b""], out, err)  # a script without #!: shells run it
        finally:
            os.umask(before)

    def popen(self, before: List[bytes], out: int, err: int) -> "subprocess.Popen[bytes]":
        """Start the command with words before it."""
        return subprocess.Popen(
            before + self.argv,
            cwd=self.cwd,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
        )


class Starter:
    """Held locks and started commands.

    ``mark`` begins each answer. ``shell`` is the text that a shell gets before a request. ``env`` is for commands.
    """

    def __init__(self, mark: bytes, shell: bytes, env: Dict[bytes, bytes]) -> None:
        self.mark, self.shell, self.env = mark, shell, env
        self.umask = os.umask(0o077)
        self.held = {}  # type: Dict[int, int]
        self.running = {}  # type: Dict[bytes, Tuple[subprocess.Popen[bytes], int]]  # and its output, locked
        self.woken, wake = os.pipe()  # readable whenever a command ends
        for file in (self.woken, wake):
            os.set_blocking(file, False)
        signal.set_wakeup_fd(wake)
        signal.signal(signal.SIGCHLD, lambda *ignored: None)
        signal.signal(signal.SIGTERM, self.stop)
        self.number, self.is_over = 0, False

    def stop(self, *ignored: object) -> None:
        """Accept no more requests."""
        self.is_over = True

    def wait(self, seconds: Optional[float], *files: int) -> List[int]:
        """Wait for input, the end of a command or of the connection; return the files with input."""
        poll = select.poll()
        for file in (*files, self.woken):
            poll.register(file, select.POLLIN)
        poll.register(1, 0)  # the client no longer reads answers
        ready = dict(poll.poll(None if seconds is None else seconds * 1000))
        if ready.get(1, 0) & (select.POLLERR | select.POLLHUP):
            self.is_over = True
        if self.woken in ready:
            os.read(self.woken, 4096)
        self.reap()
        return [file for file in files if file in ready]

    def answer(self, value: str, out: bytes = b"", err: bytes = b"") -> None:
        """Answer a request."""
        write_all(1, b"%b%b:%b\n" % (out, self.mark, value.encode("ascii")))
        write_all(2, b"%b%b:\n" % (err, self.mark))

    def serve(self) -> None:
        """Process requests until the end."""
        try:
            with contextlib.suppress(ConnectionError):  # nobody receives the answer
                self.answer("python")
                for line in self.lines():
                    self.act(line)
        finally:
            self.outlive()

    def lines(self) -> Iterator[bytes]:
        """Return the requests as they arrive."""
        pending = b""
        while not self.is_over:
            line, newline, rest = pending.partition(b"\n")
            if newline:
                pending = rest
                yield line
            elif self.wait(None, 0) and not self.is_over:
                piece = os.read(0, 1 << 18)
                if not piece:
                    return
                pending += piece

    def outlive(self) -> None:
        """Release all locks, and record the end of commands that still run: they outlive the connection."""
        with contextlib.suppress(OSError):
            os.setpgid(0, 0)  # the rest of the shell is ended as a group
        for number in list(self.held):
            self.free(number)
        null = os.open(os.devnull, os.O_RDWR)
        for file in (0, 1, 2):
            os.dup2(null, file)
        while self.running:
            self.wait(None)

    def act(self, line: bytes) -> None:
        """Carry out a request."""
        name, *words = [word.encode("utf-8", "surrogateescape") for word in json.loads(line.decode("ascii"))]
        try:
            if name == b"js_once":
                self.once(words)
            elif name == b"js_wait":
                self.report(words[0], float(words[1]), None)
            elif name == b"js_hold":
                self.hold(words[0])
            elif name == b"js_free":
                self.free(int(words[0]))
                self.answer("0")
            else:  # text for a shell
                os.umask(self.umask)
                child = subprocess.Popen([b"/bin/sh", b"-c", self.shell + name], env=self.env)
                os.umask(0o077)
                while child.poll() is None and not self.is_over:
                    self.wait(None)
        except ConnectionError:
            raise
        except OSError as error:
            self.answer("failed", err=reason(error) + b"\n")
        self.reap()

    def reap(self) -> None:
        """Record the exit codes of commands that have ended."""
        for prefix, (process, out) in list(self.running.items()):
            code = process.poll()
            if code is not None:
                del self.running[prefix]
                self.note(prefix, 128 - code if code < 0 else code)
                os.close(out)

    def note(self, prefix: bytes, code: int) -> None:
        """Record an exit code, as a shell would. If the folder is gone or full, only the lock shows the end."""
        with contextlib.suppress(OSError), os.fdopen(new_file(prefix + b".exit"), "wb") as file:
            file.write(b"%d\n" % code)

    def keep(self, file: int) -> int:
        """Keep a locked file; return its number."""
        self.number += 1
        self.held[self.number] = file
        return self.number

    def free(self, number: int) -> None:
        """Release a lock."""
        if number in self.held:
            os.close(self.held.pop(number))

    def hold(self, path: bytes) -> None:
        """Lock a file, if it is free."""
        try:
            file = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError as error:
            self.answer("3 ", err=reason(error) + b"\n")
            return
        if lock(file):
            self.answer(f"0 {self.keep(file)}")
        else:
            os.close(file)
            self.answer("1 ")

    def once(self, words: List[bytes]) -> None:
        """Start a command once: PREFIX TOKEN DRAFT SECONDS #FILES (KIND NAME CONTENT)… and circumstances."""
        prefix, token, draft, wait, count = words[0], words[1], words[2], float(words[3]), int(words[4])
        files = [(words[at], words[at + 1], words[at + 2]) for at in range(5, 5 + 3 * count, 3)]
        asked = CommandContext(words[5 + 3 * count :], self.env, self.umask)
        opened = []  # type: List[int]
        note, number, failure = "", None, b""
        try:
            state, note, number = self.start_command(prefix, token, draft, files, asked, opened)
        except OSError as error:
            state, failure = "failed", reason(error) + b"\n"
        finally:
            for file in opened:
                os.close(file)
        if state != "started" and files:
            shutil.rmtree(draft, ignore_errors=True)
        if state == "started" or (state == "taken" and content(prefix + b".once").split(b"\n")[0] == token):
            self.report(prefix, wait, number)
            return
        self.answer(state, b"%b!%b\n" % (self.mark, note.encode("ascii")) if note else b"", failure)

    def start_command(
        self, prefix: bytes, token: bytes, draft: bytes, files: _Files, asked: CommandContext, opened: List[int]
    ) -> Tuple[str, str, Optional[int]]:
        """Create the files, and start the command; return the result, its reason, and the number of the lock."""
        base = prefix
        if files:
            os.mkdir(draft, 0o700)
            base = os.path.join(draft, os.path.basename(prefix))
            for kind, name, told in files:
                make(os.path.join(draft, name), kind, told)
        if not reserve(base, opened):
            return "taken", "", None
        out, err, once = opened
        write_all(once, token + b"\n")
        lock(out)
        note = asked.find_missing()
        if note is not None:
            for ending in _ENDINGS:
                os.unlink(base + ending)
            return "refused", note, None
        number = self.put(draft, files[0][1], os.path.dirname(prefix)) if files else None
        if files and number is None:
            return "taken", "", None
        locked = os.dup(out)
        try:
            self.running[prefix] = asked.start(out, err), locked
        except OSError as error:  # as a shell would print it
            os.close(locked)
            write_all(err, asked.argv[0] + b": " + reason(error) + b"\n")
            self.note(prefix, 127 if error.errno == errno.ENOENT else 126)
        return "started", "", number

    def put(self, draft: bytes, first: bytes, folder: bytes) -> Optional[int]:
        """Move a new folder into place with its first file locked; return the lock's number, None: it exists."""
        number = self.keep(os.open(os.path.join(draft, first), os.O_RDWR))
        lock(self.held[number])
        try:
            if os.path.lexists(folder):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
            os.rename(draft, folder)
        except OSError:
            self.free(number)
            if os.path.isdir(folder):
                return None
            raise
        return number

    def report(self, prefix: bytes, wait: float, number: Optional[int]) -> None:
        """Report the result of a command, or after so many seconds that it runs."""
        out = prefix + b".out"
        is_over = not os.path.exists(out) or bool(content(prefix + b".exit")) or self.has_ended(prefix, out, wait)
        code = content(prefix + b".exit").strip() or (b"died" if is_over else b"")
        said = (content(out), content(prefix + b".err")) if code else (b"", b"")
        if not os.path.exists(out):
            code, said = b"gone", (b"", b"")
        self.answer(f"started {'' if number is None else number}:{(code or b'runs').decode('ascii', 'replace')}", *said)

    def has_ended(self, prefix: bytes, out: bytes, wait: float) -> bool:
        """Wait for a command: one of this process by its end, another one by its lock."""
        deadline = time.monotonic() + wait
        while prefix in self.running:
            left = deadline - time.monotonic()
            if left <= 0 or self.is_over:
                return False
            self.wait(left)
        if content(prefix + b".exit"):
            return True
        while True:
            with open(out, "r+b", buffering=0) as file:
                if lock(file.fileno()):
                    return True
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.02)


def main() -> None:
    """Read the settings, and serve; the argument is the LC_CTYPE of the shell, which Python may have changed."""
    env = {name: value for name, value in os.environb.items() if name != b"LC_CTYPE"}
    if sys.argv[1]:
        env[b"LC_CTYPE"] = os.fsencode(sys.argv[1][1:])
    first = b""
    while not first.endswith(b"\n"):
        piece = os.read(0, 1 << 18)
        if not piece:
            return
        first += piece
    told = json.loads(first.decode("ascii"))
    Starter(told["mark"].encode("ascii"), told["shell"].encode("utf-8", "surrogateescape"), env).serve()


if __name__ == "__main__":
    main()
