"""Launcher of sessions: a form, and the list of existing sessions."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, cast

import ipywidgets

from jupyter_slurm.client.allocations.allocation import handle
from jupyter_slurm.client.clusters.cluster import Cluster, current
from jupyter_slurm.client.clusters.option_tables import option_table
from jupyter_slurm.client.render.job_card import facts, is_finished, notes, state_as_html
from jupyter_slurm.client.render.present_time import present_time
from jupyter_slurm.client.render.session_card import end_note, is_session_open, session_path, session_state
from jupyter_slurm.client.render.table import escape
from jupyter_slurm.client.sessions.launch import WORDS, launch
from jupyter_slurm.client.sessions.session import Session, SessionList
from jupyter_slurm.client.submission.submit import Submission
from jupyter_slurm.domain.magic_line.parser import parse_cell_line
from jupyter_slurm.errors import SubmitRefused, UsageError
from jupyter_slurm.widgets.base import Button, calm, html
from jupyter_slurm.widgets.form_fields import (
    EMPTY_SCRIPT,
    OFFER_RETRY_S,
    RESOURCES,
    FormField,
    FormFields,
    warnings_html,
)
from jupyter_slurm.widgets.form_problems import FormProblems, check_submission, problems_of
from jupyter_slurm.widgets.lab_settings import lab_start_values, with_lab_values
from jupyter_slurm.widgets.live_jobs import LiveJobs, show_lines

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["SessionLauncher", "launcher"]

_APPS = ("jupyter", "code-server", "marimo", "mlflow", "rstudio", "tensorboard")  # as in the API
_SESSION_FIELDS = (
    FormField("Name", "name=", "jupyter-1, jupyter-2 …"),
    FormField("Idle time", "idle=", "that of the settings", usual="idle"),
    FormField("App", "app=", "jupyter", choices=_APPS),
    FormField("Log directory", "logdir=", "needed, such as runs", app="tensorboard"),
    FormField("Store", "store=", "mlflow.db in the working directory", app="mlflow"),
    FormField("Notebook", "notebook=", "a list of those in the working directory", app="marimo"),
    FormField("Environment", "env=", "the usual Python", "environment", "env"),
)
_TYPING_PAUSE_S = 0.6  # seconds after the last key until the input is checked
_LINK = "color:var(--jp-content-link-color,LinkText);text-decoration:underline"
_FAILED_SHOWN_S = 600.0  # seconds for which a failed session is shown


def launcher() -> SessionLauncher:
    """Show your sessions on this cluster, and a form that launches another: Jupyter in a job."""
    shown = SessionLauncher(current())
    shown.start()
    return shown


class SessionLauncher(LiveJobs):
    """Launcher of :func:`launcher`. ``close()`` closes the launcher, not the sessions."""

    def __init__(self, cluster: Cluster) -> None:
        self._typed = 0
        self._resources, self._session_form = (
            FormFields(RESOURCES, self._changed),
            FormFields(_SESSION_FIELDS, self._changed),
        )
        self._warnings = html(width="100%")
        self._launch = Button("Launch", "Launch a session with these options", lambda: self.work(self._launch_session))
        self._rows: dict[str, _Row] = {}
        self._list = ipywidgets.VBox(layout=ipywidgets.Layout(width="100%"))
        form = [self._resources.box, self._session_form.box, self._warnings, self._launch]
        super().__init__(cluster, above=[self._list], below=form)
        self.add_class("jupyter-slurm-launcher")

    def start(self) -> None:
        """Start the widget: set the values of JupyterLab's settings or the profile, and fetch the known names."""
        super().start()
        about = self._cluster.client.get(self._cluster.path())
        usual = with_lab_values(about.get("launch") or {}, lab_start_values())
        for fields in (self._resources, self._session_form):
            fields.fill(usual)
        self._changed()

    def draw_jobs(self) -> None:
        """Update the sessions."""
        show_lines(self._list, self._rows, lambda: _Row(self), self._sessions())

    def static(self) -> tuple[str, str]:
        """Return the sessions as a table."""
        found = [handle(self._cluster, data) for data in self._sessions()]
        shown = SessionList(one for one in found if isinstance(one, Session))
        return repr(shown), shown._repr_html_()

    def show(self, data: api.Job) -> None:
        """Open a session in a local browser, logged in."""
        self.work(lambda: Session(self._cluster, data).open())

    def end(self, data: api.Job) -> None:
        """End a session."""
        self.work(lambda: self._feed.apply_job({**Session(self._cluster, data).stop()._data}))

    def _sessions(self) -> list[api.Job]:
        """Return the active and recently failed sessions, the latest first."""
        found = [data for data in self._feed.jobs.values() if data.get("session")]
        found = [data for data in found if not is_finished(data) or _has_just_failed(data)]
        return sorted(found, key=lambda data: data.get("submit_time") or 0.0, reverse=True)

    def _changed(self) -> None:
        self._session_form.show_app(self._session_form["App"])
        self._typed += 1
        mark = self._typed
        self.run_later(_TYPING_PAUSE_S, self._refresh_choices, lambda: mark == self._typed)

    def _refresh_choices(self) -> None:
        """Show suggestions and warnings, all from the agent's present knowledge."""
        mark = self._typed
        for fields in (self._resources, self._session_form):
            if not fields.offer():
                self.run_later(OFFER_RETRY_S, self._refresh_choices, lambda: mark == self._typed and self.is_visible)
        problems = check_submission(self._cluster, self._as_a_job)
        if mark == self._typed:  # else a later check or a refusal counts
            self._show_problems(problems)

    def _show_problems(self, problems: FormProblems) -> None:
        """Show each problem at its field, and the others below."""
        for fields in (self._resources, self._session_form):
            fields.remark(problems)
        shown = [*self._resources.options, *self._session_form.options]
        self._warnings.value = warnings_html(problems.without(shown))

    def _as_a_job(self) -> Submission:
        """Return a job with the same request."""
        line = shlex.join(self._resources.line_words())
        return Submission(
            "script", EMPTY_SCRIPT, parse_cell_line(line, option_table(self._cluster, "sbatch"), {}).options
        )

    def _launch_session(self) -> None:
        self._launch.disabled = True
        try:
            line = shlex.join([*self._resources.line_words(), *self._session_form.line_words()])
            parsed = parse_cell_line(line, option_table(self._cluster, "sbatch"), WORDS)
            self._feed.apply_job({**launch(self._cluster, parsed, notify=lambda _: None)._data})
        except (UsageError, SubmitRefused) as error:
            self._typed += 1
            self._show_problems(problems_of(error))
            return
        finally:
            self._launch.disabled = False
        self._session_form.set("Name", "")


class _Row:
    """One session: its state, its address, and its actions."""

    def __init__(self, owner: SessionLauncher) -> None:
        self._data = cast("api.Job", {})
        self._notice = html(flex="1 1 auto", min_width="0")
        self._open = Button(
            "Open", "Open the session in a browser on the computer of the kernel", lambda: owner.show(self._data)
        )
        self._log = Button("Log", "Show the log of the session", lambda: owner.show_log(self._data))
        self._stop = Button("Stop", "Stop the session and its kernels", lambda: owner.end(self._data), asks=True)
        buttons = [self._open, self._log, self._stop]
        self.box = ipywidgets.HBox([self._notice, *buttons], layout=ipywidgets.Layout(width="100%"))

    def show(self, data: api.Job) -> None:
        """Update the row."""
        self._data = data
        self._notice.value = _as_html(data)
        is_over = is_finished(data)
        is_there = is_session_open(data) or session_state(data) == "unreachable"
        self._open.layout.display = (
            None if is_there and not (data["session"] and session_path(data["session"])) else "none"
        )
        self._stop.layout.display = "none" if is_over else None


def _as_html(data: api.Job) -> str:
    session = data["session"]
    assert session is not None
    reached = " → ".join(step["state"] for step in session["steps"])
    lines = [f"<b>{escape(str(data.get('label')))}</b> {state_as_html(data)} {calm(' · '.join(facts(data)))}"]
    if is_session_open(data) and (path := session_path(session)):
        name = escape(str(data.get("label")))
        link = f'<a href="{escape(path)}" target="_blank" rel="noopener noreferrer" style="{_LINK}">Open {name}</a>'
        lines.append(f"{link} {calm('in a new tab, through this Jupyter server')}")
    elif session_state(data):
        lines.append(calm(reached))
    if is_finished(data) or not is_session_open(data):
        lines += [calm(note) for note in notes(data)[:3]]
    elif warning := end_note(data):
        lines.append(calm(warning))
    return f'<div style="line-height:1.5">{"".join(f"<div>{line}</div>" for line in lines)}</div>'


def _has_just_failed(data: api.Job) -> bool:
    return (
        data.get("state") not in ("COMPLETED", "CANCELLED")
        and present_time(data) - (data.get("end_time") or 0.0) < _FAILED_SHOWN_S
    )
