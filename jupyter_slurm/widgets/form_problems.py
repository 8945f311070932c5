"""Problems of the values of a form, in the words of its fields."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from jupyter_slurm.client.clusters.cluster import Cluster
from jupyter_slurm.client.render.sentences import sentences
from jupyter_slurm.client.submission.submit import Submission
from jupyter_slurm.domain.slurm_values import duration_words, parse_duration
from jupyter_slurm.errors import SlurmError, SubmitRefused, UsageError

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["FormProblems", "check_submission", "problems_of"]

# The options of the fields, by the names in problems of the agent.
_FIELDS = {
    "partition": "-p",
    "gpus": "--gpus",
    "cpus-per-task": "-c",
    "mem": "--mem",
    "time": "--time",
    "account": "-A",
    "qos": "--qos",
    "job-name": "-J",
    "array": "--array",
    "env": "env=",
    "name": "name=",
    **{keyword: f"{keyword}=" for keyword in ("app", "logdir", "notebook", "store")},
}
# As in the form of JupyterLab (labextension/src/sessions/form_values.ts).
_TEXTS = {
    ("gpus", "partition"): "This partition has {limit} GPUs in all.",
    ("gpus", "node"): "A node of this partition has at most {limit} GPUs.",
    ("cpus-per-task", "partition"): "A node of this partition has at most {limit} CPUs.",
    ("cpus-per-task", "node"): "A node of this partition has at most {limit} CPUs.",
    ("mem", "node"): "A job can have at most {limit} on a node of this partition.",
    ("time", "partition"): "This partition allows at most {time}.",
    ("time", "qos"): "This QOS allows at most {time}.",
    ("logdir", "missing"): "This folder does not exist on the cluster.",
    ("logdir", "file"): "This is a file, not a folder.",
    ("env", "missing"): "This environment does not exist on the cluster.",
    ("env", "file"): "This is not an environment: neither venv, conda nor container image.",
    ("env", "unknown"): "There is no environment with this name.",
}


@dataclass(frozen=True)
class FormProblems:
    """Problems of a form.

    Attributes
    ----------
    at : mapping
        Texts by the option of a field.
    others : sequence of str
        Texts of no field.
    """

    at: Mapping[str, str] = field(default_factory=dict)
    others: Sequence[str] = ()

    def without(self, options: Collection[str]) -> list[str]:
        """Return the texts that belong to none of these fields.

        Parameters
        ----------
        options : collection of str
            The options of the fields.
        """
        return [*(text for option, text in self.at.items() if option not in options), *self.others]


def check_submission(cluster: Cluster, request: Callable[[], Submission]) -> FormProblems:
    """Return the reasons known to the agent why the cluster would refuse a submission or never run it."""
    try:
        with request().body(cluster) as body:
            told = cluster.client.post(cluster.path("jobs"), json={**body, "dry_run": True})
    except SlurmError as error:
        return problems_of(error)
    if "problems" not in told:  # an older agent has the reasons as one text
        return FormProblems(others=[*(told.get("doubts") or []), *(told.get("warnings") or [])])
    found = _by_field(told["problems"])
    return FormProblems(found.at, [*found.others, *(told.get("warnings") or [])])


def problems_of(error: SlurmError) -> FormProblems:
    """Return a refusal at its field. Hints about options are left out: a form has fields."""
    if not isinstance(error, (UsageError, SubmitRefused)):
        return FormProblems(others=[sentences(error.message, error.hint)])
    said, option = str(error.details.get("said") or ""), str(error.details.get("option") or "")
    found = _by_field(error.details.get("problems") or [])
    text = f"Slurm refused the job: {said}" if said else error.message
    if found.at or option not in _FIELDS:
        return FormProblems(found.at, [text, *found.others])
    scope = str(error.details.get("scope") or "")
    return _by_field([{"option": option, "scope": scope, "limit": "", "text": text}])


def _by_field(problems: Sequence[api.OptionProblem]) -> FormProblems:
    at: dict[str, str] = {}
    others: list[str] = []
    for problem in problems:
        option = _FIELDS.get(problem["option"])
        if option is None:
            others.append(problem["text"])
        else:
            at.setdefault(option, _text(problem))
    return FormProblems(at, others)


def _text(problem: api.OptionProblem) -> str:
    limit = problem["limit"]
    text = _TEXTS.get((problem["option"], problem["scope"]))
    if text is None:
        return problem["text"]
    if problem["option"] == "gpus" and limit == "0":
        return "This partition has no such GPUs."
    try:
        time = duration_words(parse_duration(limit) or 0) if problem["option"] == "time" else ""
    except UsageError:
        time = limit
    return text.format(limit=limit, time=time)
