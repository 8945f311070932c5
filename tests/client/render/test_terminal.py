"""Tests of control characters: against pyte, a terminal emulator, and against HTML's own parser."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any

import pyte
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_slurm.client.render.terminal import IncrementalFilter, Screen, plain, printable, tail_text
from jupyter_slurm.client.render.terminal_html import to_html

ROWS, COLUMNS = 60, 400
TEXT = st.text("ab cé", min_size=1, max_size=6)
LINE = ["\r", "\n", "\b", "\x1b[K", "\x1b[1K", "\x1b[2K", "\x1b[3C", "\x1b[2D", "\x1b[G", "\x1b[4G"]
ROW = ["\x1b[A", "\x1b[2A", "\x1b[B", "\x1b[J"]
REST = ["\x1b[31m", "\x1b[1;42m", "\x1b[0m", "\x1b[?25l", "\x1b]0;title\x07", "\x1b]8;;http://x\x1b\\"]
MOVE = st.sampled_from([*LINE, *ROW, *REST])


def _screen(*pieces: bytes, limit: int = 1_000_000) -> Screen:
    screen = Screen(limit)
    for piece in pieces:
        screen.feed(piece)
    return screen


def _reference(text: str) -> list[str]:
    terminal = pyte.Screen(COLUMNS, ROWS)
    terminal.set_mode(pyte.modes.LNM)  # a log has bare newlines, which a pty would have turned into CR LF
    pyte.Stream(terminal).feed(text)
    return [line.rstrip() for line in terminal.display]


def _trim(lines: list[str]) -> list[str]:
    while lines and not lines[-1]:
        lines.pop()
    return lines


def _never_below_the_end(parts: list[str]) -> bool:
    """Remove cursor movements below the last line: a terminal allows them, a log ends at its end."""
    row = last = 0
    for part in parts:
        if part == "\n":
            row += 1
            last = max(last, row)
        elif part.endswith("A") and part.startswith("\x1b["):
            row = max(0, row - int(part[2:-1] or 1))
        elif part == "\x1b[B":
            if row == last:
                return False
            row += 1
        elif part == "\x1b[J":
            last = row
    return True


@given(st.lists(TEXT | MOVE, max_size=40).filter(_never_below_the_end), st.integers(1, 7))
def test_it_shows_what_a_terminal_shows(parts: list[str], size: int) -> None:
    text = "".join(parts)
    data = text.encode()
    screen = _screen(*(data[i : i + size] for i in range(0, len(data), size)))
    shown = [line.rstrip() for line in plain(screen.text()).split("\n")]
    assert _trim(shown) == _trim(_reference(text))


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (b"\r  0%|   |\r 50%|#  |\r100%|###|\ndone\n", "100%|###|\ndone\n"),
        (b"outer 0\ninner 0\x1b[A\router 1\n\rinner 7\n", "outer 1\ninner 7\n"),
        (b"abc\b\bX", "aXc"),
        ("grün".encode()[:3] + "grün".encode()[3:], "grün"),
        (b"bad \xff byte", "bad \ufffd byte"),
        (b"a\x00b\x07c", "abc"),
        (b"old\n\x1b[2J\x1b[H", ""),
        (b"old\n\x1b[02J\x1b[H", "old\n"),  # clear_output(wait=True): not before new output
        (b"old\n\x1b[31m\x1b[02J\x1b[H\x1b[0mnew\nlines\n", "new\nlines\n"),
        (b"\x1b]0;evil title\x07text\x1b[6n\x1bP+q\x1b\\", "text"),
    ],
)
def test_what_progress_bars_do(data: bytes, shown: str) -> None:
    assert _screen(*(bytes([byte]) for byte in data)).text() == shown


def test_colours_survive_overwriting_and_line_ends() -> None:
    assert _screen(b"\x1b[31mred\nstill\x1b[0m no\n").text() == ("\x1b[0;31mred\x1b[0m\n\x1b[0;31mstill\x1b[0m no\n")
    assert _screen(b"\x1b[31mabc\x1b[0m\rX").text() == "X\x1b[0;31mbc\x1b[0m"


@given(st.binary(max_size=200) | st.text("<>&\"'/=abc \x1b[]0123;mK\x07\x9b\x9d8\\\r\n", max_size=120).map(str.encode))
def test_nothing_in_an_output_becomes_markup(read_html: Callable[[str], Any], data: bytes) -> None:
    text = _screen(data).text()
    collector = read_html(to_html(text))
    assert {tag for tag, _ in collector.seen} <= {"span"}
    for _, attributes in collector.seen:
        assert set(attributes) <= {"style"}
        assert re.fullmatch(r"[a-zC0-9#:;\-. %,()]*", attributes.get("style") or "")
    assert not re.search(r"[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f-\x9f]", text)
    assert not re.search(r"\x1b(?!\[[0-9;]*m)", text)


def _contrast(one: list[float], other: list[float]) -> float:
    """Return the contrast of two colours of 0 to 255 (WCAG 2.2)."""

    def luminance(color: list[float]) -> float:
        parts = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (each / 255 for each in color)]
        return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]

    low, high = sorted([luminance(one), luminance(other)])
    return (high + 0.05) / (low + 0.05)


def _rgb(code: str) -> list[float]:
    return [float(each) for each in bytes.fromhex(code.removeprefix("#"))]


@pytest.mark.parametrize("ground", [0x11, 0xFF], ids=["dark", "light"])
@pytest.mark.parametrize("code", [*range(30, 38), *range(90, 98), "38;5;17", "38;5;226", "38;2;0;0;90", "1;31"])
def test_a_colour_can_be_read_in_a_light_and_in_a_dark_theme(code: int | str, ground: float) -> None:
    html = to_html(_screen(f"\x1b[{code}mx\x1b[0m".encode()).text())
    found = re.search(r"(?:^|\W)color: color-mix\(in srgb, (#\w+) (\d+)%, currentColor\)", html)
    assert found
    part, text = int(found[2]) / 100, 0xDE if ground < 128 else 0x21  # JupyterLab's text: 87 % of white or of black
    mixed = [part * each + (1 - part) * text for each in _rgb(found[1])]
    assert _contrast(mixed, [ground] * 3) > 2.9


@pytest.mark.parametrize("code", [*range(40, 48), *range(100, 108), "48;5;17", "37;44", "97;41", "7"])
def test_text_on_a_ground_of_its_own_can_be_read(code: int | str) -> None:
    html = to_html(_screen(f"\x1b[{code}mx\x1b[0m".encode()).text())
    ground, text = (re.search(rf"(?<![-\w]){name}: (#\w+)", html) for name in ("background(?:-color)?", "color"))
    assert ground
    assert text
    assert _contrast(_rgb(text[1]), _rgb(ground[1])) > 3


@pytest.mark.parametrize(
    ("codes", "css"),
    [
        ("1;3;4;9", "font-weight: bold; font-style: italic; text-decoration: underline line-through"),
        ("8", "visibility: hidden"),
        ("32;44", "background-color: #0000ee; color: #00cd00"),
        ("91;40", "background-color: #000000; color: #ff0000"),
        ("31;7", "background-color: #cd0000; color: #ffffff"),
        ("31;42;7", "background-color: #cd0000; color: #00cd00"),
        ("48;5;255", "background-color: #eeeeee; color: #000000"),
        ("38;5;21;48;2;1;2;3", "background-color: #010203; color: #0000ff"),
        ("38;5;256", None),
        ("38;2;300;1;2", None),
        ("38;2;1", None),
        ("38", None),
        ("38;9;1", None),
    ],
)
def test_styles_are_those_of_xterm(codes: str, css: str | None) -> None:
    html = to_html(_screen(f"\x1b[{codes}mx&\x1b[0m y".encode()).text())
    assert html == (f'<span style="{css}">x&amp;</span> y' if css else "x&amp; y")


@given(st.text(st.characters(), max_size=60))
def test_printable_leaves_nothing_that_moves_or_hides(text: str) -> None:
    shown = printable(text)
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", shown)
    shown.encode("utf-8")


def test_an_odd_byte_is_shown_as_that_byte() -> None:
    assert printable(b"caf\xe9".decode("utf-8", "surrogateescape")) == "caf\\xe9"


@pytest.mark.parametrize(
    "data",
    [
        b"".join(b"epoch %d loss %f some text to fill the line\n" % (i, 1 / (i + 1)) for i in range(20_000)),
        b"".join(b"\r%3d%%|######   | %d/20000 [00:01<00:02]" % (i % 100, i) for i in range(20_000)),
        b"x" * 1_000_000,
        b"\x1b]" * 500_000,
        b"\x1b[999999999C" * 80_000,
        b"\n\x1b[A" * 250_000,
    ],
    ids=["lines", "bar", "one-line", "unended", "far-right", "up-and-down"],
)
def test_a_megabyte_is_quick_and_stays_small(data: bytes) -> None:
    screen = Screen(262_144)
    began = time.process_time()
    for start in range(0, len(data), 65_536):
        screen.feed(data[start : start + 65_536])
    text = screen.text()
    assert time.process_time() - began < 4.0  # about 0.05-0.8 s; quadratic algorithms take minutes
    assert len(text) <= 2 * 262_144


def test_the_end_is_kept() -> None:
    screen = _screen(*(b"line %d\n" % i for i in range(1000)), limit=100)
    assert screen.dropped
    assert len(screen.text()) <= 100
    assert screen.text().endswith("line 998\nline 999\n")
    assert screen.text().startswith("line ")


@given(
    st.lists(st.sampled_from([b"text", b"\x1b[31m", b"\r", b"\x1b]52;c;ZXZpbA==\x07", b"\x1b[6n", b"\x1bc", b"\x9b"]))
)
def test_a_terminal_gets_colours_and_movements_only(parts: list[bytes]) -> None:
    data = b"".join(parts)
    passed = IncrementalFilter()
    shown = "".join(passed.feed(data[i : i + 3]) for i in range(0, len(data), 3))
    assert "52;c" not in shown
    assert "[6n" not in shown
    assert "\x1bc" not in shown
    assert shown.count("text") == parts.count(b"text")


COLOURED = "".join(f"\x1b[38;5;{number % 256};48;5;{number % 7}m{number % 10}" for number in range(20_000))


def test_colours_count_where_the_end_is_kept() -> None:
    """A line with a separate colour for every character is twenty times as long as its text."""
    screen = _screen(*(COLOURED[i : i + 1000].encode() for i in range(0, len(COLOURED), 1000)))
    small = Screen(10_000)
    for i in range(0, len(COLOURED), 1000):
        small.feed(COLOURED[i : i + 1000].encode())
        assert len(small.text()) <= 15_000
    assert small.dropped
    assert screen.text().endswith(small.text()[-5000:])
    assert plain(small.text()).endswith("0123456789")
    small.feed(b"\x1b[0m\n" + b"x" * 100)
    assert len(small.text()) <= 15_100


@given(
    st.lists(st.sampled_from(["a", "bc", "\n", "\x1b[31m", "\x1b[0m", "\x1b[1;44m"]), max_size=60), st.integers(20, 60)
)
def test_the_end_of_a_text_is_cut_between_characters(parts: list[str], limit: int) -> None:
    screen = _screen("".join(parts).encode())
    text = screen.text()
    shown = tail_text(text, limit)
    assert len(shown) <= limit
    assert plain(text).endswith(plain(shown))
    assert "\x1b" not in plain(shown)
    assert text.endswith(shown) or "\n" not in shown.removesuffix("\n")
    if plain(text).strip("\n"):
        assert shown
