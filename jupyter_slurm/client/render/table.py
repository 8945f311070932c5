"""Results of Slurm commands: a table, or the unchanged text."""

from __future__ import annotations

import html
import importlib
from collections.abc import Collection, Iterator, Sequence
from typing import Any, overload

from jupyter_slurm.client.render.terminal import printable

__all__ = ["CommandText", "Table"]

_MAX_EDGE_ROWS = 200  # rows shown from the beginning and from the end; the object has all rows
_MAX_VALUE_CHARACTERS = 200  # characters shown of a value that is not text
_MAX_FIELD_COLUMNS = 100  # columns of text for one field


class CommandText(str):
    """The output of a command: a string that a notebook shows as text."""

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        # A single value is shown as text; within a list or a dictionary it is shown as a string literal.
        is_within = len(getattr(printer, "stack", ())) > 1
        printer.text(repr(str(self)) if is_within else printable(self).rstrip("\n"))


Row = dict[str, Any]
"""A row of a table: its values by the names of the columns."""


class Table(Sequence[Row]):
    """Rows and columns: text of a Slurm command, or values.

    ``table["JOBID"]`` is a column, ``table[0]`` a row as a dictionary, ``table[:10]`` a shorter table.

    Parameters
    ----------
    columns : sequence of str
        Names of the columns.
    rows : sequence of sequences
        Rows with as many values as there are columns.
    title : str
        Heading of the table, in a report.
    with_none : collection of str
        Columns in which None is a value and is shown; in other columns None means unknown.
    """

    def __init__(
        self, columns: Sequence[str], rows: Sequence[Sequence[Any]], *, title: str = "", with_none: Collection[str] = ()
    ) -> None:
        self.title = title
        self._with_none = frozenset(with_none)
        self.columns = list(columns)
        self.rows = [list(row) for row in rows]

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Row]:
        return (dict(zip(self.columns, row, strict=True)) for row in self.rows)

    @overload
    def __getitem__(self, key: int) -> Row: ...
    @overload
    def __getitem__(self, key: slice) -> Table: ...
    @overload
    def __getitem__(self, key: str) -> list[Any]: ...
    def __getitem__(self, key: int | slice | str) -> Row | Table | list[Any]:
        """Return a column by its name, a row by its number, or a slice of the table."""
        if isinstance(key, slice):
            return Table(self.columns, self.rows[key], title=self.title, with_none=self._with_none)
        if isinstance(key, int):
            return dict(zip(self.columns, self.rows[key], strict=True))
        if key not in self.columns:
            raise KeyError(f"There is no column {key!r}. Columns: {', '.join(self.columns)}.")
        index = self.columns.index(key)
        return [row[index] for row in self.rows]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Table) and (self.columns, self.rows) == (other.columns, other.rows)

    __hash__ = None  # type: ignore[assignment]

    def to_pandas(self) -> Any:
        """Return a pandas.DataFrame; output of a Slurm command stays text.

        Raises
        ------
        ImportError
            pandas is not installed in this environment.
        """
        try:
            pandas = importlib.import_module("pandas")  # heavy, and optional
        except ImportError as error:
            raise ImportError(
                "to_pandas() needs pandas, which is not installed: %pip install pandas. "
                "Without it: table.columns, table.rows, table['COLUMN']."
            ) from error
        return pandas.DataFrame(self.rows, columns=self.columns)

    def __repr__(self) -> str:
        head, left_out, tail = self._visible_cells()
        body = [[_cell(value) for value in row] for row in (self.columns, *head, *tail)]
        widths = [max(min(text_columns(row[i]), _MAX_FIELD_COLUMNS) for row in body) for i in range(len(self.columns))]
        lines = ["  ".join(_fit(v, w) for v, w in zip(row, widths, strict=True)).rstrip() for row in body]
        if left_out:
            lines.insert(1 + len(head), f"… {left_out} more rows …")
        title = [printable(self.title)] if self.title else []
        return "\n".join([*title, *lines, *([] if self.rows else ["(no rows)"])])

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(repr(self))

    def _repr_html_(self) -> str:
        """Return HTML in JupyterLab's colours, in a scrolling box."""
        head, left_out, tail = self._visible_cells()
        columns = "".join(f'<th style="{_TH}">{escape(name)}</th>' for name in self.columns)
        gap = f'<tr><td colspan="{len(self.columns)}">… {left_out} more rows …</td></tr>' if left_out else ""
        body = _html_rows(head) + gap + _html_rows(tail)
        if not self.rows:
            body = f'<tr><td colspan="{max(1, len(self.columns))}">(no rows)</td></tr>'
        title = "<br>".join(map(escape, self.title.split("\n")))
        caption = f'<caption style="text-align:left">{title}</caption>' if title else ""
        table = f'<table style="margin:0">{caption}<thead><tr>{columns}</tr></thead><tbody>{body}</tbody></table>'
        return f'<div style="{_BOX}">{table}</div>'

    def _visible_cells(self) -> tuple[list[list[str]], int, list[list[str]]]:
        left_out = max(0, len(self.rows) - 2 * _MAX_EDGE_ROWS)
        head, tail = (self.rows[:_MAX_EDGE_ROWS], self.rows[-_MAX_EDGE_ROWS:]) if left_out else (self.rows, [])
        nothing = ["None" if name in self._with_none else "" for name in self.columns]
        head, tail = ([list(map(_text, row, nothing)) for row in rows] for rows in (head, tail))
        return head, left_out, tail


_BOX = "overflow:auto;max-height:32em;max-width:100%"
_TH = (
    "text-align:left;white-space:nowrap;position:sticky;top:0;"
    "background:var(--jp-layout-color1,Canvas);color:var(--jp-ui-font-color1,CanvasText)"
)
_TD = "text-align:left;white-space:pre"


def _html_rows(rows: Sequence[Sequence[str]]) -> str:
    return "".join(
        "<tr>" + "".join(f'<td style="{_TD}">{escape(value)}</td>' for value in row) + "</tr>" for row in rows
    )


def _text(value: Any, nothing: str) -> str:
    """Format a value as text: ``nothing`` replaces None; a long value is truncated."""
    if isinstance(value, str):
        return value
    text = nothing if value is None else repr(value)
    return text if len(text) <= _MAX_VALUE_CHARACTERS else text[:_MAX_VALUE_CHARACTERS] + "…"


def escape(text: str) -> str:
    """Escape a text of unknown origin as HTML: without markup, with visible control characters."""
    return html.escape(_join_lines(text))


def _join_lines(text: str) -> str:
    return printable(text).replace("\n", "\\n")


def _cell(value: str) -> str:
    return _join_lines(value).replace("\t", "\\t")


def text_columns(text: str) -> int:
    """Return the columns of a text in a terminal (wide characters take two, combining ones none)."""
    if text.isascii():
        return len(text)
    from wcwidth import wcswidth

    width = wcswidth(text)
    return width if width >= 0 else len(text)


def _fit(text: str, width: int) -> str:
    if text_columns(text) <= width:
        return text + " " * (width - text_columns(text))
    kept = ""
    for char in text:
        if text_columns(kept + char) >= width:
            break
        kept += char
    return kept + "…" + " " * (width - text_columns(kept) - 1)
