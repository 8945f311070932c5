"""Form for sbatch: it shows warnings, writes the line of a cell, and submits."""

from __future__ import annotations

import asyncio
import contextvars
import shlex
from collections.abc import Callable

import comm
import ipywidgets
from IPython.core.getipython import get_ipython

from jupyter_slurm.client import event_loop
from jupyter_slurm.client.clusters.cluster import Cluster, current
from jupyter_slurm.client.clusters.option_tables import option_table
from jupyter_slurm.client.jobs.job import Job
from jupyter_slurm.client.render.table import escape
from jupyter_slurm.client.submission.submit import Submission, python_named, runner_names, submit
from jupyter_slurm.domain.magic_line.parser import parse_cell_line
from jupyter_slurm.domain.scripts.script import classify
from jupyter_slurm.errors import CellError, SubmitRefused, UsageError
from jupyter_slurm.widgets.base import Button, WidgetPanel, calm, html
from jupyter_slurm.widgets.form_fields import (
    EMPTY_SCRIPT,
    OFFER_RETRY_S,
    RESOURCES,
    FormField,
    FormFields,
    warnings_html,
)
from jupyter_slurm.widgets.form_problems import FormProblems, check_submission, problems_of
from jupyter_slurm.widgets.job_controls import controls
from jupyter_slurm.widgets.log_view import LogView
from jupyter_slurm.widgets.unanswered_clicks import handle_events_in_subshell, handle_replies_in_subshell

__all__ = ["SubmitForm", "insert_cell", "submit_form"]

_FIELDS = (*RESOURCES, FormField("Job name", "-J"), FormField("Array", "--array", "none"))
_TYPING_PAUSE_S = 0.6  # seconds after the last key until the input is checked
_LINE = (
    "user-select:all;white-space:pre-wrap;padding:.2em .4em;background:var(--jp-layout-color2,#eee);"
    "color:var(--jp-ui-font-color1,CanvasText);font-family:var(--jp-code-font-family,monospace)"
)


def submit_form(cell: str = "") -> SubmitForm:
    """Show a form for sbatch, which writes the line ``%%sbatch …``, and submits.

    Parameters
    ----------
    cell : str
        The cell to submit: a script that begins with ``#!``, or Python. It can be written in the form, too.
    """
    shown = SubmitForm(current(), cell)
    shown.start()
    return shown


class SubmitForm(WidgetPanel):
    """Form of :func:`submit_form`.

    Attributes
    ----------
    line : str
        The first line of a cell, with the values of the form.
    job : Job or None
        The last submitted job.
    """

    def __init__(self, cluster: Cluster, cell: str = "") -> None:
        self.job: Job | None = None
        self._cluster = cluster
        self._typed = 0
        self._fields = FormFields(_FIELDS, self._changed)
        layout = ipywidgets.Layout(width="auto", height="8em")
        hint = "The cell: a script that begins with #!, or Python. Or copy the line below into a cell of its own."
        self._cell = handle_events_in_subshell(ipywidgets.Textarea(cell, placeholder=hint, layout=layout))
        self._cell.observe(lambda _: self._changed(), "value")
        self._line, self._warnings, self._log = html(width="100%"), html(width="100%"), LogView(self)
        self._submit = Button("Submit", "Submit the cell with these options", lambda: self.work(self._submit_job))
        self._new = Button("New cell", "Write this into a new cell", self._write)
        self._below = ipywidgets.VBox([])
        buttons = ipywidgets.HBox([self._submit, self._new])
        super().__init__(
            [self._fields.box, self._cell, self._line, self._warnings, buttons, self._log.box, self._below]
        )
        self.add_class("jupyter-slurm-form")

    @property
    def line(self) -> str:
        """Return the first line of a cell, with the values of the form."""
        return " ".join(["%%sbatch", *([shlex.join(words)] if (words := self._fields.line_words()) else [])])

    def start(self) -> None:
        """Start the widget: fetch the known names."""
        super().start()
        self._changed()

    def draw(self) -> None:
        """Draw the current line."""
        title = "Select it with a click, and copy it"
        self._line.value = f'<code title="{title}" style="{_LINE}">{escape(self.line)}</code>'
        self._log.draw()

    def resumed(self) -> None:
        """Start following the job."""
        self._log.resumed()

    def paused(self) -> None:
        """Stop following the job."""
        self._log.paused()

    def static(self) -> tuple[str, str]:
        """Return the line, the purpose of the form."""
        return self.line, f"<code>{escape(self.line)}</code>"

    def __repr__(self) -> str:
        return self.line

    def _write(self) -> None:
        """Insert a new cell with the content; if the front end cannot, the line can be copied."""
        insert_cell(f"{self.line}\n{self._cell.value}", self._written)

    def _written(self, is_there: bool) -> None:
        said = "Added a new cell below." if is_there else "This front end cannot add cells. Copy the line."
        self._warnings.value = calm(said)

    def _changed(self) -> None:
        """Check the input after the last key."""
        self._typed += 1
        mark = self._typed
        self.changed()
        self.run_later(_TYPING_PAUSE_S, self._refresh_choices, lambda: mark == self._typed)

    def _refresh_choices(self) -> None:
        """Show suggestions and warnings, all from the agent's present knowledge."""
        mark = self._typed
        if not self._fields.offer():
            self.run_later(OFFER_RETRY_S, self._refresh_choices, lambda: mark == self._typed and self.is_visible)
        problems = check_submission(self._cluster, lambda: self._submission(self._cell.value or EMPTY_SCRIPT))
        if mark == self._typed:  # else a later check or a refusal counts
            self._show_problems(problems)

    def _show_problems(self, problems: FormProblems) -> None:
        """Show each problem at its field, and the others below."""
        self._fields.remark(problems)
        self._warnings.value = warnings_html(problems.without(self._fields.options))

    def _submission(self, cell: str) -> Submission:
        cluster = self._cluster
        parsed = parse_cell_line(self.line.removeprefix("%%sbatch"), option_table(cluster, "sbatch"), {})
        kind = classify(cell, names=runner_names(cell, get_ipython()))
        python = python_named(None, cluster) if kind == "python" else None
        return Submission(kind, cell, parsed.options, python=python)

    def _submit_job(self) -> None:
        if not str(self._cell.value).strip():
            raise CellError(
                "The cell is empty: nothing was submitted.", hint="Write a script that begins with #!, or Python."
            )
        self._submit.disabled = True
        try:
            self.job = submit(self._cluster, self._submission(self._cell.value), notify=lambda _: None)
        except (UsageError, SubmitRefused) as error:
            self._typed += 1
            self._show_problems(problems_of(error))
            return
        finally:
            self._submit.disabled = False
        self._log.show(self._cluster, self.job._data)
        for before in self._below.children:
            before.close()
        self._below.children = (controls(self.job),)


_TARGET = "jupyter-slurm:cell"  # labextension/src/plugins/insert_cell.ts
_ANSWER_TIMEOUT_S = 3.0  # seconds for a front end with the extension


def insert_cell(source: str, on_result: Callable[[bool], None]) -> None:
    """Insert a cell below the selected one; ``told`` is called with the success."""
    event_loop.spawn(_insert(source, on_result), contextvars.copy_context())


async def _insert(source: str, on_result: Callable[[bool], None]) -> None:
    loop, answer = asyncio.get_running_loop(), asyncio.Event()

    def heard(message: object) -> None:
        loop.call_soon_threadsafe(answer.set)

    opened = comm.create_comm(target_name=_TARGET, data={"source": source})
    handle_replies_in_subshell(opened)
    opened.on_msg(heard)
    try:
        async with asyncio.timeout(_ANSWER_TIMEOUT_S):
            await answer.wait()
    except TimeoutError:
        on_result(False)
    else:
        on_result(True)
    finally:
        opened.close()
