r"""Terminal emulation for a job's output: ``\r``, ``\b``, cursor movements and colours.

pyte, the library for this, draws on a grid of fixed width: long lines would be cut or wrapped, and a megabyte takes
four seconds. This screen has lines of any length, keeps a bounded end of its input and supports only the sequences of
progress bars and loggers. Other sequences are dropped from the text, so that only text and colours remain.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from itertools import groupby

__all__ = ["IncrementalFilter", "Screen", "plain", "printable", "styled_parts", "tail_text"]

_TOKEN = re.compile(
    r"(?P<text>[^\x00-\x08\x0a-\x1f\x7f-\x9f]+)"
    r"|(?P<control>[\n\r\x08])"
    r"|(?:\x1b\[|\x9b)(?P<params>[0-?]*)[ -/]*(?P<final>[@-~])"
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x90-\x9f]{0,4096}(?:\x07|\x1b\\|\x9c)"
    r"|\x1b[ -/]*[0-OQ-WYZ\\`-~]"
    r"|[\x00-\x1f\x7f-\x9f]",
    re.DOTALL,
)
_PLAIN_LINES = re.compile(r"(?:^[^\x00-\x08\x0a-\x1f\x7f-\x9f]*\n)+", re.MULTILINE)
_UNFINISHED = re.compile(r"(?:\x1b(?:\[[0-?]*[ -/]*|[\]PX^_][^\x07\x1b\x9c]*\x1b?|[ -/]*)|\x9b[0-?]*[ -/]*)\Z")
_SGR = re.compile(r"\x1b\[[0-9;]*m")
_HARMLESS = re.compile(r"\x1b\[[0-9;]*[mKABCDG]|[\n\r\t\x08]")
_HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_MAX_COLUMN = 4096  # limit of a cursor movement: "\x1b[999999999C" must not cost memory
_MAX_PENDING_CHARACTERS = 4096  # a longer unfinished sequence is treated as text
_SET = {1: "bold", 2: "bold", 3: "italic", 4: "underline", 5: "blink", 7: "reverse", 8: "hidden", 9: "strike"}
_UNSET = {22: "bold", 23: "italic", 24: "underline", 25: "blink", 27: "reverse", 28: "hidden", 29: "strike"}


class _Decoder:
    """Incremental decoder of bytes: its pieces never end within a sequence."""

    def __init__(self) -> None:
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._pending = ""

    def feed(self, data: bytes) -> str:
        """Return the text that can be drawn now; a piece may end within a character or a sequence."""
        text = self._pending + self._decode(data)
        cut = _UNFINISHED.search(text)
        self._pending = text[cut.start() :] if cut and len(text) - cut.start() < _MAX_PENDING_CHARACTERS else ""
        return text[: len(text) - len(self._pending)]


class Screen:
    """The end of an output, as a terminal of unlimited width shows it.

    Parameters
    ----------
    limit : int
        Characters to keep, colours included; older lines are dropped (:attr:`dropped`).
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.dropped = False
        self._decoder = _Decoder()
        self._lines: list[str] = [""]  # text with colours; the line under the cursor may be unpacked
        self._row = 0
        self._column = 0
        self._chars: list[str] = []  # the line under the cursor, one entry a column
        self._styles: list[str] = []
        self._style: dict[str, str] = {}
        self._code = ""
        self._size = 0
        self._clears = False

    def feed(self, data: bytes) -> None:
        """Add output; a piece may end within a character or a sequence."""
        for piece in _blocks(self._decoder.feed(data)):
            at_start = not self._chars and self._column == 0 and self._row == len(self._lines) - 1
            if at_start and not self._code and _PLAIN_LINES.fullmatch(piece):
                self._append(piece)
            else:
                self._draw(piece)
        self._trim()

    def text(self) -> str:
        """Return the text of the screen: lines, with SGR sequences as the only control characters."""
        self._pack()
        return "\n".join(self._lines)

    def __bool__(self) -> bool:
        """Return whether any text exists."""
        return len(self._lines) > 1 or bool(self._chars) or bool(self._lines[0])

    def _append(self, block: str) -> None:
        """Append many plain lines in one step: most output is plain."""
        self._clear()
        self._lines[-1:] = block.split("\n")
        self._size += len(block)
        self._row = len(self._lines) - 1

    def _draw(self, text: str) -> None:
        for token in _TOKEN.finditer(text):
            if (piece := token["text"]) is not None:
                self._write(piece)
            elif (control := token["control"]) is not None:
                self._control(control)
            elif token["final"] == "m":
                self._select(token["params"])
            elif token["final"] is not None:
                self._move(token["final"], token["params"])

    def _write(self, text: str) -> None:
        self._clear()
        start, length = self._column, len(text)
        if start > len(self._chars):
            self._styles += [""] * (start - len(self._chars))
            self._chars += " " * (start - len(self._chars))
        self._chars[start : start + length] = text
        self._styles[start : start + length] = [self._code] * length
        self._column = start + length

    def _control(self, char: str) -> None:
        self._clear()
        if char == "\r":
            self._column = 0
        elif char == "\b":
            self._column = max(0, self._column - 1)
        else:
            self._move_to_line(self._row + 1, grow=True)
            self._column = 0

    def _move_to_line(self, row: int, *, grow: bool = False) -> None:
        """Move the cursor to another line; only a newline creates one."""
        self._pack()
        if grow and row == len(self._lines):
            self._lines.append("")
            self._size += 1
        self._row = min(max(row, 0), len(self._lines) - 1)
        self._chars, self._styles = _unpack(self._lines[self._row])

    def _move(self, final: str, params: str) -> None:
        if not all(part.isdecimal() or not part for part in params.split(";")):
            return  # a private mode, such as hiding the cursor
        first = params.split(";")[0]
        count = min(int(first), _MAX_COLUMN) if first and len(first) < 9 else (_MAX_COLUMN if first else 0)
        step = max(count, 1)
        if final == "A":
            self._move_to_line(self._row - step)
        elif final == "B":
            self._move_to_line(self._row + step)
        elif final == "C":
            self._column = min(self._column + step, max(len(self._chars), _MAX_COLUMN))
        elif final == "D":
            self._column = max(0, self._column - step)
        elif final == "G":
            self._column = step - 1
        elif final == "K":
            self._erase(count)
        elif final == "J" and count in (2, 3):  # clears from the beginning: the next text is the first line again
            self._clears = True
            if not params.startswith("0"):  # 0 waits for new output (clear_output(wait=True) of a cell)
                self._clear()
        elif final == "J" and count == 0:
            self._erase(0)
            self._size -= sum(len(line) + 1 for line in self._lines[self._row + 1 :])
            del self._lines[self._row + 1 :]

    def _clear(self) -> None:
        if self._clears:
            self._lines, self._row, self._column, self._size = [""], 0, 0, 0
            self._chars, self._styles, self.dropped, self._clears = [], [], False, False

    def _erase(self, mode: int) -> None:
        if mode == 0:
            del self._chars[self._column :], self._styles[self._column :]
        elif mode == 1:
            end = min(self._column + 1, len(self._chars))
            self._chars[:end], self._styles[:end] = " " * end, [""] * end
        elif mode == 2:
            self._chars, self._styles = [], []

    def _select(self, params: str) -> None:
        """Apply a colour sequence (SGR, ECMA-48 8.3.117) as a state, not as text, so that memory stays bounded."""
        codes = [int(part) if part.isdecimal() and len(part) < 4 else 0 for part in re.split("[;:]", params)]
        while codes:
            code = codes.pop(0)
            if code == 0:
                self._style.clear()
            elif code in _SET:
                self._style[_SET[code]] = str(code)
            elif code in _UNSET:
                self._style.pop(_UNSET[code], None)
            elif code in (38, 48):
                length = {5: 2, 2: 4}.get(codes[0] if codes else 0, len(codes))
                self._style["fg" if code == 38 else "bg"] = ";".join(map(str, [code, *codes[:length]]))
                del codes[:length]
            elif 30 <= code <= 39 or 90 <= code <= 97:
                self._style["fg"] = "" if code == 39 else str(code)
            elif 40 <= code <= 49 or 100 <= code <= 107:
                self._style["bg"] = "" if code == 49 else str(code)
        self._code = ";".join(value for value in self._style.values() if value)

    def _pack(self) -> None:
        packed = _pack(self._chars, self._styles)
        self._size += len(packed) - len(self._lines[self._row])
        self._lines[self._row] = packed

    def _trim(self) -> None:
        """Keep the end: drop whole lines, and the beginning of a single line that is too long."""
        weight = self._weight()
        if weight - self.limit > self.limit // 2:  # not for every few bytes
            surplus = _surplus(self._styles, self.limit)
            del self._chars[:surplus], self._styles[:surplus]
            self._column = max(0, self._column - surplus)
            self.dropped = True
            weight = self._weight()
        total, gone = self._size - len(self._lines[self._row]) + weight, 0
        while total > self.limit and gone < self._row:
            total -= len(self._lines[gone]) + 1
            self._size -= len(self._lines[gone]) + 1
            gone += 1
        if gone:
            del self._lines[:gone]
            self._row -= gone
            self.dropped = True

    def _weight(self) -> int:
        """Return the characters of the line under the cursor, colours included."""
        return len(_pack(self._chars, self._styles)) if any(self._styles) else len(self._chars)


class IncrementalFilter:
    """Filter for a real terminal: colours and simple movements pass, other sequences (titles, clipboards …) do not."""

    def __init__(self) -> None:
        self._decoder = _Decoder()

    def feed(self, data: bytes) -> str:
        """Return the text to write now."""
        found = _TOKEN.finditer(self._decoder.feed(data))
        return "".join(t[0] for t in found if t["text"] is not None or _HARMLESS.fullmatch(t[0]))


def _blocks(text: str) -> Iterator[str]:
    """Split text into stretches of plain lines and the rest."""
    start = 0
    for block in _PLAIN_LINES.finditer(text):
        if block.start() > start:
            yield text[start : block.start()]
        yield block[0]
        start = block.end()
    if start < len(text):
        yield text[start:]


def _pack(chars: list[str], styles: list[str]) -> str:
    if not any(styles):
        return "".join(chars)
    parts: list[str] = []
    current = ""
    for char, style in zip(chars, styles, strict=True):
        if style != current:
            parts.append(f"\x1b[0;{style}m" if style else "\x1b[0m")
            current = style
        parts.append(char)
    if current:
        parts.append("\x1b[0m")
    return "".join(parts)


def _surplus(styles: list[str], limit: int) -> int:
    """Return the number of characters to drop from the beginning of a line so that the rest fits with its colours."""
    start = len(styles)
    for style, run in groupby(reversed(styles)):
        length = len(list(run))
        marks = len(f"\x1b[0;{style}m\x1b[0m") if style else 0
        if length + marks > limit:
            return start - max(0, limit - marks)
        start, limit = start - length, limit - length - marks
    return 0


def tail_text(text: str, limit: int) -> str:
    """Return the last lines of a screen's text that fit into a number of characters; of a longer line, its end."""
    if len(text) <= limit:
        return text
    if start := text.find("\n", len(text) - limit, -1) + 1:
        return text[start:]
    chars, styles = _unpack(text[text.rfind("\n", 0, -1) + 1 :])
    surplus = _surplus(styles, limit)
    return _pack(chars[surplus:], styles[surplus:])


def _unpack(line: str) -> tuple[list[str], list[str]]:
    chars: list[str] = []
    styles: list[str] = []
    for style, part in styled_parts(line):
        chars += part
        styles += [style] * len(part)
    return chars, styles


def styled_parts(text: str) -> Iterator[tuple[str, str]]:
    """Split a screen's text into parts of one style each: the numbers of its SGR sequence, and the part."""
    style, start = "", 0
    for mark in _SGR.finditer(text):
        yield style, text[start : mark.start()]
        style, start = mark[0][4:-1], mark.end()  # every style of a screen begins with 0
    yield style, text[start:]


def plain(text: str) -> str:
    """Return a screen's text without colours."""
    return _SGR.sub("", text)


def printable(text: str) -> str:
    r"""Return text with visible escapes (``\x1b``) for controls, changes of direction and invalid bytes.

    Parameters
    ----------
    text : str
        Any text: names, reasons, the output of a command. Line ends and tabs stay.
    """
    return _HIDDEN.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    if 0xDC80 <= code <= 0xDCFF:  # a byte that is not valid UTF-8 (PEP 383)
        code -= 0xDC00
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
