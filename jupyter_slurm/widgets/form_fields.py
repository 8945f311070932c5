"""Fields of a form: their labels, their suggestions, and their options."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ipywidgets

from jupyter_slurm.client.clusters.name_completion import names
from jupyter_slurm.client.render.sentences import sentences
from jupyter_slurm.client.render.table import escape
from jupyter_slurm.domain.cluster_facts import NamedEntity
from jupyter_slurm.domain.slurm_values import duration_words, format_time_limit, parse_duration, parse_time_limit
from jupyter_slurm.errors import UsageError
from jupyter_slurm.widgets.base import BAD, WARNING_STYLE, calm, html, text
from jupyter_slurm.widgets.form_problems import FormProblems

__all__ = [
    "EMPTY_SCRIPT",
    "NO_PROBLEMS",
    "OFFER_RETRY_S",
    "RESOURCES",
    "FormField",
    "FormFields",
    "warnings_html",
]

EMPTY_SCRIPT = "#!/bin/sh\n"
"""Description for a cell without content."""

_SHORT = re.compile("-[A-Za-z]")


@dataclass(frozen=True)
class FormField:
    """A field of a form.

    Attributes
    ----------
    label, placeholder : str
        Label, and the value that applies to an empty field.
    option : str
        The option of sbatch, or the keyword with ``=``, that the field sets.
    kind : str
        Kind of the suggested names (``listNames`` of the API); empty: none.
    usual : str
        Name of the initial value in the profile of a cluster; empty: none.
    choices : sequence of str
        Suggestions that each cluster has.
    app : str
        The app whose keyword it is; empty: the field is shown for each.
    """

    label: str
    option: str
    placeholder: str = ""
    kind: str = ""
    usual: str = ""
    choices: Sequence[str] = ()
    app: str = ""


RESOURCES = (
    FormField("Partition", "-p", "the cluster's default", "partition", "partition"),
    FormField("GPUs", "--gpus", "none", "gpu", "gpus"),
    FormField("CPUs", "-c", "the partition's default", usual="cpus"),
    FormField("Memory", "--mem", "the partition's default", "memory", "memory"),
    FormField("Time limit", "--time", "the partition's default", "time-limit", "time"),
    FormField("Account", "-A", "your default", "account", "account"),
    FormField("QOS", "--qos", "your default", "qos", "qos"),
)
"""The resources of a job, in their usual order."""

OFFER_RETRY_S = 2.0
"""Seconds until unknown names are requested again."""

NO_PROBLEMS = FormProblems()
"""Of a form that was not checked yet."""

_PARTITION_KINDS = ("gpu", "memory", "time-limit")


class FormFields:
    """The fields of a form and their current values.

    Parameters
    ----------
    fields : sequence of FormField
        The fields.
    changed : callable
        Called when a field has changed.
    """

    def __init__(self, fields: Sequence[FormField], changed: Callable[[], None]) -> None:
        self._fields = fields
        self._texts = {field.label: self._text(field) for field in fields}
        self._notes = {field.label: html() for field in fields}
        self._offered: dict[str, list[NamedEntity]] = {}
        for one in self._texts.values():
            one.observe(lambda _: changed(), "value")
        self._rows = {
            field.label: ipywidgets.HBox([self._texts[field.label], self._notes[field.label]], layout=_wrapping())
            for field in fields
        }
        self.box = ipywidgets.VBox()
        self.show_app("")

    def __getitem__(self, label: str) -> str:
        return str(self._texts[label].value).strip()

    @property
    def options(self) -> list[str]:
        """Return the options of the fields."""
        return [field.option for field in self._shown]

    def set(self, label: str, value: str) -> None:
        """Set the value of a field."""
        self._texts[label].value = value

    def show_app(self, app: str) -> None:
        """Show the fields of an app, and those of each. Values of hidden fields are kept, and not used."""
        self._shown = [field for field in self._fields if field.app in ("", app)]
        rows = tuple(self._rows[field.label] for field in self._shown)
        if self.box.children != rows:
            self.box.children = rows

    def fill(self, usual: Mapping[str, object]) -> None:
        """Set the profile's initial values in empty fields."""
        for field in self._fields:
            if field.usual in usual and not self[field.label]:
                self.set(field.label, str(usual[field.usual]))

    def line_words(self) -> list[str]:
        """Return the values as the words of a line."""
        found: list[str] = []
        for field in self._shown:
            if value := self[field.label]:
                value = _slurm_time(value) if field.option == "--time" else value
                found += (
                    [field.option, value] if _SHORT.fullmatch(field.option) else [_with_dashes(field.option, value)]
                )
        return found

    def offer(self) -> bool:
        """Fetch the known names for suggestions from the agent, which rarely queries Slurm.

        Return whether the partitions are known: a busy controller lists them later.
        """
        partition = self["Partition"] if "Partition" in self._texts else ""
        for field in self._fields:
            if not field.kind:
                continue
            known = names(field.kind, partition=partition if field.kind in _PARTITION_KINDS else "")
            if known != self._offered.get(field.kind):
                self._offered[field.kind] = known
                self._texts[field.label].options = [one.name for one in known]
        return "Partition" not in self._texts or bool(self._offered.get("partition"))

    def remark(self, problems: FormProblems = NO_PROBLEMS) -> None:
        """Show the problem of a field's value beside the field, else its description."""
        for field in self._fields:
            about = {one.name: one.about for one in self._offered.get(field.kind, ())}
            said = about.get(self[field.label], "")
            if field.option == "--time":
                said = _meaning_of_time(self[field.label], said)
            if problem := problems.at.get(field.option):
                self._notes[field.label].value = f'<span role="alert" style="color:{BAD}">{escape(problem)}</span>'
            else:
                self._notes[field.label].value = calm(said) if said else ""

    @staticmethod
    def _text(field: FormField) -> Any:
        more = {"placeholder": field.placeholder, "continuous_update": True}
        return text(field.label, options=field.choices if field.kind or field.choices else None, **more)


def _slurm_time(text: str) -> str:
    """Return a time as Slurm takes it. Text that is no time, or that Slurm takes already, does not change."""
    try:
        parse_time_limit(text)
    except UsageError:
        try:
            return format_time_limit(parse_duration(text))
        except UsageError:
            return text
    return text


def _meaning_of_time(text: str, about: str) -> str:
    """Return the meaning of a typed time, and its description: ``= 90 min · default of gpu``."""
    if not text:
        return ""
    try:
        seconds = parse_duration(text)
    except UsageError as error:
        return sentences(error.message, error.hint)
    meaning = duration_words(seconds) if seconds else "no time limit"
    return " · ".join([f"= {meaning}", *(part for part in about.split(", ") if part not in ("", meaning))])


def _with_dashes(option: str, value: str) -> str:
    """Return a long option, or a keyword, with its value, as one word of a line."""
    return f"{option}{value}" if option.endswith("=") else f"{option}={value}"


def _wrapping() -> ipywidgets.Layout:
    return ipywidgets.Layout(flex_flow="row wrap", align_items="center")


def warnings_html(warnings: Sequence[str]) -> str:
    """Return warnings as HTML."""
    lines = "".join(f'<div style="{WARNING_STYLE}">{escape(text)}</div>' for text in warnings)
    return f'<div role="status">{lines}</div>' if lines else ""
