"""Card of a job: a line or two of facts and the end of its output, as text and as HTML."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jupyter_slurm.client.render.allocation_card import held_facts, held_notes, is_released
from jupyter_slurm.client.render.present_time import present_time, time_limit
from jupyter_slurm.client.render.rank_fold import fold
from jupyter_slurm.client.render.sentences import sentences
from jupyter_slurm.client.render.session_card import session_facts, session_notes, state_text
from jupyter_slurm.client.render.staging_card import stage_facts, stage_notes
from jupyter_slurm.client.render.table import escape
from jupyter_slurm.client.render.terminal import plain, printable
from jupyter_slurm.client.render.terminal_html import to_html
from jupyter_slurm.domain.advice.endings import SIGNALS
from jupyter_slurm.domain.advice.missing_commands import advise_missing_command
from jupyter_slurm.domain.clock_text import clock_text
from jupyter_slurm.domain.ranks import explain_ranks
from jupyter_slurm.domain.slurm_values import format_duration

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = [
    "OutputPane",
    "advice",
    "as_html",
    "as_text",
    "has_run",
    "headline",
    "is_finished",
    "notes",
    "output_as_html",
    "output_as_text",
    "output_path",
    "state_as_html",
    "tally",
]

# The colours of states are those of the panel: labextension/style/base.css.
_GOOD, _BAD, _BUSY, _WAITING, _CALM = "success-color1", "error-color1", "info-color1", "warn-color1", "ui-font-color2"
_FALLBACK = {_GOOD: "#388e3c", _BAD: "#d32f2f", _BUSY: "#1976d2", _WAITING: "#f57c00", _CALM: "#757575"}
_PRE = (
    "margin:0;padding:.3em .5em;white-space:pre;overflow:auto;max-height:24em;font-size:var(--jp-code-font-size,13px);"
    # A reversed column keeps its end visible when the content is replaced.
    "display:flex;flex-direction:column-reverse"
)
_MUTED_STYLE = ' style="color:var(--jp-ui-font-color2,GrayText)"'
_STREAM = {
    "stdout": "border-left:3px solid var(--jp-border-color2,#ccc)",
    "stderr": "border-left:3px solid var(--jp-warn-color1,#f57c00)",
}


@dataclass(frozen=True)
class OutputPane:
    """The end of one stream of a job: its text with colours, and whether earlier text is left out.

    In a job with ranks, ``rank`` is the visible one; the output of the others is folded.
    """

    stream: str
    text: str
    shortened: bool
    path: str | None
    rank: int | None = None

    def note(self) -> str:
        """Return a note with the path of the whole output."""
        return f"… the beginning is not shown; all of it is in {self.path}" if self.shortened else ""


def is_finished(data: api.Job) -> bool:
    """Return whether a job is finished."""
    return bool(data.get("finished"))


def output_path(data: api.Job, stream: str) -> str | None:
    """Return the path of a stream of a job; None if unknown."""
    return data.get("stderr") if stream == "stderr" else data.get("stdout")


def has_run(data: api.Job) -> bool:
    """Return whether a finished job ever started. For one that did not, Slurm's start time equals its end time."""
    start, end = data.get("start_time"), data.get("end_time")
    return bool(
        data.get("nodes") or data.get("exit_code") or data.get("signal") or (start and end and start < end)
    ) or (data.get("state") == "COMPLETED")


def title(data: api.Job) -> str:
    """Return the title of a job."""
    name, what = data.get("label") or data.get("name"), "Step" if data.get("allocation") else "Job"
    if data.get("kind") == "allocation":
        name, what = data.get("label"), "Allocation"
    elif data.get("kind") == "session":
        name, what = data.get("label"), "Session"
    elif data.get("kind") == "process":
        name, what = None, "Process"
    elif data.get("process"):
        what = "kernel" if data.get("kernel") else "process"
        return f"Cell {name}" + (f" ({what} {data['id']})" if data.get("id") else "")
    elif data.get("kind") == "kernel":
        name, what = (data.get("kernel") or {}).get("display_name"), "Kernel"
    return f"{what} {data.get('id') or '(no id yet)'}" + (f" ({name})" if name else "")


def facts(data: api.Job) -> list[str]:
    """Return the place of a job and its elapsed time."""
    said = []
    if data.get("nodes"):
        said.append(f"on {data['nodes']}")
    if data.get("partition"):
        said.append(f"partition {data['partition']}")
    now, start, end, submitted = (
        present_time(data),
        data.get("start_time"),
        data.get("end_time"),
        data.get("submit_time"),
    )
    if is_finished(data):
        if start and end and has_run(data):
            said.append(_used(data, end - start))
        said += [] if is_released(data) else _end(data)
    elif start and (data.get("state") != "PENDING" or data.get("tasks")):
        said.append(f"running for {format_duration(now - start)}")
    elif submitted := data.get("submit_time"):
        said.append(f"waiting for {format_duration(now - submitted)}")
    if data.get("restarts"):
        said.append(f"restarts: {data['restarts']}")
    if (limit := time_limit(data)) and not (is_finished(data) or state_text(data)):
        said.append(f"limit {format_duration(limit)}")
    said += [*held_facts(data), *session_facts(data), *stage_facts(data)]
    if data.get("tasks"):
        said.append("tasks: " + tally(data))
    return said


def _used(data: api.Job, seconds: float) -> str:
    """Return the elapsed time; for an allocation, with its time limit."""
    if data.get("kind") != "allocation":
        return f"ran {format_duration(seconds)}"
    limit = time_limit(data)
    return f"used {format_duration(seconds)}" + (f" of {format_duration(limit)}" if limit else "")


def tally(data: api.Job) -> str:
    """Return the number of tasks of an array in each state; empty for other jobs."""
    return ", ".join(f"{count} {state}" for state, count in sorted((data.get("tasks") or {}).items()))


def _end(data: api.Job) -> list[str]:
    """Return exit code or signal if they are meaningful: Slurm sets exit code 0 for jobs that Slurm itself ended."""
    signal, code, state = data.get("signal"), data.get("exit_code"), data.get("state")
    if signal in SIGNALS and state not in ("OUT_OF_MEMORY", "TIMEOUT"):
        return [f"ended by signal {signal}"]
    return [f"exit code {code}"] if code or (code == 0 and state == "COMPLETED") else []


def headline(data: api.Job) -> str:
    """Describe a job in one line."""
    return printable(f"{title(data)}: " + ", ".join([_state(data), *facts(data)])).replace("\n", "\\n")


def _state(data: api.Job) -> str:
    """Return Slurm's state. A released allocation is CANCELLED for Slurm, which looks like a failure."""
    if is_released(data):
        return "released" if is_finished(data) else "being released"
    return state_text(data) or str(data.get("state"))


def advice(data: api.Job, *, printed: bool) -> str:
    """Return the next step; a reference to the last lines of the output only if there are some."""
    step = str(data.get("next_step") or "")
    return step if printed or not step.startswith("See the last lines of its output") else ""


def notes(data: api.Job, trouble: str = "", *, printed: bool = False) -> list[str]:
    """Return further notes: why the job waits or failed, the next step, warnings."""
    said = [f"Warning: {text}" for text in data.get("warnings") or []]
    reason, words = data.get("reason"), data.get("reason_text")
    if reason and data.get("state") != "COMPLETED" and reason != "None" and not is_released(data):
        # For a finished job, the words explain its end; the reason may still be that of its wait.
        said.append(str(words if is_finished(data) and words else f"{reason}: {words}" if words else reason))
    said.append(next_end(data))
    if data.get("state") in ("FAILED", "OUT_OF_MEMORY"):
        said.append(explain_ranks(data.get("ranks")))
    if data.get("state") not in ("RUNNING", "COMPLETED") and not is_released(data):
        said.append(advice(data, printed=printed))
    error, submitting = data.get("error"), data.get("state") == "SUBMITTING"
    if submitting:
        told = [error.get("detail"), error.get("hint")] if error else ["sbatch has not answered yet"]
        said.append(sentences(*told))
    elif error:
        said += [str(error.get("detail") or ""), str(error.get("hint") or "")]
    said += [_component(part) for part in data.get("components") or []]
    if data.get("tasks"):
        bad = is_finished(data) and data.get("state") != "COMPLETED"
        said.append(
            "Each task has its own output: job[N].stdout" + ("; job.failed() are those to look at" if bad else "")
        )
    if not submitting and not data.get("known", True) and not is_finished(data):
        since = data.get("unknown_since")
        when = " since " + clock_text(since, time.time(), has_seconds=True) if since else ""
        said.append(f"Slurm has not answered{when}. The last known state is shown.")
    said += [*held_notes(data), *session_notes(data), *stage_notes(data)]
    said.append(str(data.get("environment_offer") or ""))
    if trouble and not is_finished(data):
        said.append(sentences(trouble, "Trying again. The job continues."))
    return list(dict.fromkeys(text for text in said if text))  # an unknown end is an explanation and an error


def next_end(data: api.Job) -> str:
    """Return the running job that has what a job waits for and is expected to end next; empty if unknown."""
    found = data.get("next_end")
    if not found or data.get("state") != "PENDING":
        return ""
    when = clock_text(found["time"], time.time())
    who = f"{found['name'] or found['id']} (yours)" if found["own"] else f"job {found['id']} of another user"
    return f"Next expected to end: {who}, by {when}."


def _missing(data: api.Job, panes: Sequence[OutputPane]) -> list[str]:
    """Return the way out if the output tells of a missing shell function, also for a job that ended well."""
    said = (advise_missing_command(pane.text, data.get("kind")) for pane in panes)
    return [text for text in said if text][:1]


def _component(part: api.JobComponent) -> str:
    where = f", on {part['nodes']}" if part["nodes"] else ""
    return f"Component {part['id']}: {part['state']}{where}, partition {part['partition']}"


def as_text(data: api.Job, panes: Sequence[OutputPane], trouble: str = "", *, printed: bool = False) -> str:
    """Render a job and its output as plain text; ``printed``: more output exists elsewhere."""
    said = [*notes(data, trouble, printed=printed or bool(panes)), *_missing(data, panes)]
    lines = [headline(data), *("  " + printable(note).replace("\n", "\\n") for note in said)]
    return "\n".join([*lines, output_as_text(panes)] if panes else lines)


def output_as_text(panes: Sequence[OutputPane]) -> str:
    """Render output as plain text."""
    lines = []
    for pane in panes:
        if pane.stream == "stderr":
            lines.append("-- stderr --")
        if pane.shortened:
            lines.append(printable(pane.note()))
        text, told, _ = (pane.text, "", "") if pane.rank is None else fold(pane.text, pane.rank)
        lines += [printable(plain(text)).removesuffix("\n"), *([f"… and {told}"] if told else [])]
    return "\n".join(lines)


def as_html(data: api.Job, panes: Sequence[OutputPane], trouble: str = "", *, printed: bool = False) -> str:
    """Render a job and its output as HTML without scripts, fully escaped."""
    place = f"{data.get('cluster')}/{data.get('key')}"
    parts = [
        # JupyterLab finds the card by these, and does not notify of what it shows.
        f'<div class="jupyter-slurm-job" data-job="{escape(place)}" data-state="{escape(str(data.get("state")))}"',
        ' style="line-height:1.4">',
        f"<div><b>{escape(title(data))}</b> ",
        state_as_html(data),
        f"<span{_MUTED_STYLE}> {escape(' · '.join(facts(data)))}</span></div>",
    ]
    session = data.get("session")
    for note in [*notes(data, trouble, printed=printed or bool(panes)), *_missing(data, panes)]:
        said = escape(note)
        if session and note in (session["url"], session.get("browser_url"), session["path"]):
            said = f'<a href="{said}" target="_blank" rel="noopener noreferrer">{said}</a>'
        parts.append(f"<div{_MUTED_STYLE}>{said}</div>")
    return "".join([*parts, *map(_pane_as_html, panes), "</div>"])


def state_as_html(data: api.Job) -> str:
    """Render the state in its colour, mixed with the text colour for contrast."""
    color = _color(data)
    style = f"color:color-mix(in srgb, var(--jp-{color},{_FALLBACK[color]}) 60%, currentColor);font-weight:bold"
    return f'<span style="{style}">{escape(_state(data))}</span>'


def output_as_html(panes: Sequence[OutputPane]) -> str:
    """Render output as HTML without scripts, fully escaped."""
    return "".join(['<div class="jupyter-slurm-output" style="line-height:1.4">', *map(_pane_as_html, panes), "</div>"])


def _pane_as_html(pane: OutputPane) -> str:
    note = ""
    if pane.shortened:
        note = f"<div{_MUTED_STYLE}>{escape(pane.note())}</div>"
    text, told, folded = (pane.text, "", "") if pane.rank is None else fold(pane.text, pane.rank)
    more = f"<summary{_MUTED_STYLE}>{escape(told)}</summary>{_pre(pane.stream, folded)}" if told else ""
    return f"{note}{_pre(pane.stream, text)}" + (f"<details>{more}</details>" if more else "")


def _pre(stream: str, text: str) -> str:
    return f'<pre title="{stream}" style="{_PRE};{_STREAM[stream]}"><span>{to_html(text)}</span></pre>'


def _color(data: api.Job) -> str:
    if not is_finished(data):
        return _BUSY if data.get("state") != "PENDING" else _WAITING
    if is_released(data) or data.get("state") in ("CANCELLED", "UNKNOWN"):
        return _CALM
    return _GOOD if data.get("state") == "COMPLETED" else _BAD
