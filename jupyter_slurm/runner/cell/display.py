"""Rich output of a cell in a file of the job directory: ``display.jsonl`` (``display.TASK.jsonl``).

Each line is a JSON object. A run of the job begins with a header, ``{"format": 1, "job": …, "restarts": …}``. These
messages follow, in order::

    {"type": "display", "data": {MIME type: content}, "metadata": {…}, "id": null or a display id}
    {"type": "update",  …the same; every output with that id gets the new content}
    {"type": "clear",   "wait": true: clear only when new output arrives}
    {"type": "full"}    no further messages are kept

The first three have ``"at": {"stdout": bytes, "stderr": bytes}``: the bytes printed before the message. The value is
null for a stream that is not a file (for example with several tasks in a step).

Binary content is base64, as in a notebook. Lines are only appended; a killed job leaves an incomplete line.
"""

from __future__ import annotations

import base64
import builtins
import json
import os
import stat
import sys
import threading
import traceback
from typing import TYPE_CHECKING, Any, Mapping

if TYPE_CHECKING:
    from jupyter_slurm.runner.job_document import DisplayMessage, MimeBundle

FORMAT = 1
# Marks in the text itself, which separate text printed before and after a clear. 02 equals 2 and marks a delayed clear.
CLEAR, CLEAR_LATER = "\x1b[2J\x1b[H", "\x1b[02J\x1b[H"
MAX_RECORD_BYTES = 64 * 1024 * 1024
MAX_MESSAGE_BYTES = 16 * 1024 * 1024
_UPDATES_SHARE = 0.5  # of a record: the rest is left to other figures, although a progress bar runs for days

_METHODS = {
    "text/html": "_repr_html_",
    "text/markdown": "_repr_markdown_",
    "image/svg+xml": "_repr_svg_",
    "image/png": "_repr_png_",
    "image/jpeg": "_repr_jpeg_",
    "text/latex": "_repr_latex_",
    "application/json": "_repr_json_",
    "application/javascript": "_repr_javascript_",
}


class DisplayRecord:
    """Display file, created at the first message."""

    def __init__(self, path: str, job: str, restarts: int) -> None:
        self._path, self._header = path, {"format": FORMAT, "job": job, "restarts": restarts}
        self.folder = os.path.dirname(path)
        self._lock = threading.RLock()
        self._file = -1
        self._size = 0
        self._updated = 0  # bytes of updates
        self._is_full = self._has_dropped_updates = False
        self._has_shown = False
        self.printed = _printed  # position of the text streams; by default of the files of this process

    def show(self, data: MimeBundle, metadata: MimeBundle, name: str | None = None, update: bool = False) -> None:
        """Record a MIME bundle, with its display id if it has one. A bundle of plain text only is printed."""
        if set(data) <= {"text/plain"} and name is None:
            self._print(data)
            return
        kind = "update" if update else "display"
        message: DisplayMessage = {"type": kind, "data": data, "metadata": metadata, "id": name}
        with self._lock:
            if self._append(message):
                self._has_shown = True
            elif not update:
                self._print(data)

    def clear(self, wait: bool) -> None:
        """Clear the output so far."""
        for stream in (sys.stdout, sys.stderr):
            stream.write(CLEAR_LATER if wait else CLEAR)
            stream.flush()
        with self._lock:
            if self._has_shown:
                self._append({"type": "clear", "wait": wait})
                self._has_shown = False

    def close(self) -> None:
        """Close the file. The next message opens it again."""
        with self._lock:
            if self._file >= 0:
                os.close(self._file)
                self._file = -1

    def relay(self, message: DisplayMessage) -> None:
        """Record a message from the display file of another process."""
        with self._lock:
            self._append(message)

    def _append(self, message: DisplayMessage) -> bool:
        """Write a message. Return whether it was kept."""
        for stream in (sys.stdout, sys.stderr):
            stream.flush()  # so that text printed before is visible before
        line = _line({**_bounded(message), "at": self.printed()})
        try:
            if self._file < 0:
                self._open()
            is_update = message.get("type") == "update"
            if is_update and self._updated + len(line) > MAX_RECORD_BYTES * _UPDATES_SHARE:
                self._drop_updates()
            elif self._size + len(line) <= MAX_RECORD_BYTES:
                self._write(line)
                self._updated += len(line) if is_update else 0
                return True
            elif not self._is_full:
                self._is_full = True
                self._write(_line({"type": "full"}))
                sys.stderr.write(
                    f"No more figures and tables of this job are kept: {self._path} has {_size(MAX_RECORD_BYTES)}.\n"
                )
        except OSError as error:
            if not self._is_full:
                self._is_full = True
                sys.stderr.write(f"Figures and tables of this cell could not be kept: {error}.\n")
        return False

    def _drop_updates(self) -> None:
        if not self._has_dropped_updates:
            self._has_dropped_updates = True
            size = _size(int(MAX_RECORD_BYTES * _UPDATES_SHARE))
            sys.stderr.write(
                f"No more updates of figures and progress bars are kept: {self._path} has {size} of them. New figures "
                "are kept.\n"
            )

    def _open(self) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        self._file = os.open(self._path, flags, 0o600)
        self._size = os.fstat(self._file).st_size
        torn = self._size > 0 and os.pread(self._file, 1, self._size - 1) != b"\n"  # an earlier run was killed
        self._write((b"\n" if torn else b"") + _line(self._header))

    def _write(self, line: bytes) -> None:
        left = memoryview(line)
        while left:
            left = left[os.write(self._file, left) :]
        self._size += len(line)

    @staticmethod
    def _print(data: MimeBundle) -> None:
        if "text/plain" in data:
            sys.stdout.write(f"{data['text/plain']}\n")


def _line(message: Mapping[str, object]) -> bytes:
    return json.dumps(message, default=_plain, separators=(",", ":")).encode("ascii") + b"\n"


def _printed() -> dict[str, int | None]:
    """Return the position of the text streams: the bytes in the file of each stream."""
    sizes: dict[str, int | None] = {}
    for number, stream in ((1, "stdout"), (2, "stderr")):
        try:
            found = os.fstat(number)
        except OSError:  # the cell has closed it
            sizes[stream] = None
        else:
            sizes[stream] = found.st_size if stat.S_ISREG(found.st_mode) else None
    return sizes


def _plain(value: Any) -> Any:
    return base64.b64encode(value).decode("ascii") if isinstance(value, bytes) else str(value)


def _size(count: int) -> str:
    return f"{count / 1048576:.0f} MB" if count >= 1048576 else f"{count / 1024:.0f} kB"


def _bounded(message: DisplayMessage) -> DisplayMessage:
    """Return a message without parts that are too large. Its text names these parts."""
    data, left_out = dict(message.get("data") or {}), []
    sizes = {kind: len(_line({"": content})) for kind, content in data.items()}
    for kind in sorted(sizes, key=lambda kind: -sizes[kind]):
        if sum(sizes[kind] for kind in data) > MAX_MESSAGE_BYTES:
            del data[kind]
            left_out.append(
                f"[{kind} of {_size(sizes[kind])} is not kept: it is larger than {_size(MAX_MESSAGE_BYTES)}]"
            )
    if not left_out:
        return message
    data["text/plain"] = "\n".join([*left_out, str(data.get("text/plain", ""))[:1000]]).rstrip()
    return {**message, "data": data}


def bundle(value: Any) -> tuple[MimeBundle, MimeBundle]:
    """Return data and metadata of a value by MIME type, in all forms that the value defines itself, as IPython does."""
    data: MimeBundle = {"text/plain": repr(value)}
    metadata: MimeBundle = {}
    if isinstance(value, type):
        return data, metadata
    for kind, method in {"": "_repr_mimebundle_", **_METHODS}.items():
        found = _call_method(value, method)
        content, about = found if isinstance(found, tuple) and len(found) == 2 else (found, None)
        if content is None:
            continue
        data.update(content if not kind else {kind: content})
        if about:
            metadata.update(about if not kind else {kind: about})
    if "image/png" not in data and type(value).__module__ == "matplotlib.figure":
        data["image/png"] = _png(value)
    return data, metadata


def _call_method(value: Any, method: str) -> Any:
    try:
        function = getattr(value, method, None)
        return function() if callable(function) else None
    except Exception:  # noqa: BLE001 - one form of the user's object is broken. The others are shown
        traceback.print_exc()
        return None


def _png(figure: Any) -> bytes:
    import io

    file = io.BytesIO()
    figure.savefig(file, format="png", bbox_inches="tight")
    return file.getvalue()


class PlainDisplay:
    """``display`` and the value of the last line, for a Python without IPython."""

    def __init__(self, record: DisplayRecord) -> None:
        self.record = record
        self._last = 0

    def install(self) -> None:
        """Define ``display`` for the cell, and show the value of its last line."""
        vars(builtins)["display"] = self.display
        sys.displayhook = self.hook

    def display(
        self, *values: Any, display_id: Any = None, update: bool = False, **_: Any
    ) -> RecordedDisplayHandle | None:
        """Show values, as IPython's ``display`` does."""
        if display_id is True:
            self._last += 1
            display_id = f"plain-{self._last}"
        for value in values:
            self.record.show(*bundle(value), name=display_id, update=update)
        return None if display_id is None else RecordedDisplayHandle(self, display_id)

    def hook(self, value: Any) -> None:
        """Show the value of an expression."""
        if value is not None:
            vars(builtins)["_"] = value
            self.record.show(*bundle(value))

    def figures(self) -> None:
        """Show the figures of matplotlib that are open at the end of the cell."""
        pyplot = sys.modules.get("matplotlib.pyplot")
        if pyplot is not None and pyplot.get_backend().lower() == "agg":
            for number in pyplot.get_fignums():
                self.display(pyplot.figure(number))
            pyplot.close("all")


class RecordedDisplayHandle:
    """Result of ``display(…, display_id=…)``."""

    def __init__(self, plain: PlainDisplay, display_id: str) -> None:
        self.display_id, self._plain = display_id, plain

    def display(self, value: Any) -> None:
        """Show another output with the same id."""
        self._plain.display(value, display_id=self.display_id)

    def update(self, value: Any) -> None:
        """Replace the output."""
        self._plain.display(value, display_id=self.display_id, update=True)
