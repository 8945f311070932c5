"""Kernels of notebooks on nodes: their allocations, and the steps that they are."""

from __future__ import annotations

import secrets
import sys
from typing import TYPE_CHECKING, cast

from jupyter_slurm.client.allocations.allocation import Allocation, Step, allocate, choose, open_allocations
from jupyter_slurm.client.clusters.cluster import Cluster
from jupyter_slurm.client.jobs.upload import hand_over
from jupyter_slurm.client.render.job_card import headline
from jupyter_slurm.client.sessions.launch import environment_named, idle_time
from jupyter_slurm.client.settings import settings
from jupyter_slurm.client.submission.submit import Submission, python_named
from jupyter_slurm.domain.magic_line.parser import MagicLine
from jupyter_slurm.errors import OptionError, UsageError

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["WORDS", "KernelStep", "ask", "check", "running_kernel", "start"]

WORDS: dict[str, bool | None] = {
    "dir": True,
    "env": True,
    "idle": True,
    "image": True,
    "kernel": True,
    "lease": True,
    "name": True,
    "on": True,
    "python": True,
    "transport": True,
}
"""Our words of a kernel, and whether each takes a value."""

_TRANSPORTS = ("ipc", "tcp")
_NOT_HERE = ("array", "test-only", "wait", "wrap", "help", "usage", "version")
_OF_A_STEP = ("key", "kind", "options", "args", "python", "env", "default_python", "context")
_LONGEST_WAIT = 30.0  # seconds that the agent may be asked to wait
_ANSWERS_WITHIN = 30.0  # seconds beyond those
_used: dict[tuple[str, ...], KernelStep] = {}  # by allocation and notebook: where cells of this kernel have run


class KernelStep(Step):
    """A kernel on a node: a step of its allocation."""

    @property
    def owner(self) -> str | None:
        """The hash of the notebook that it belongs to."""
        return (self._data.get("kernel") or {}).get("owner")

    def where(self, wait: float = 0.0) -> api.KernelPlace:
        """Return where it is reached, as far as that is known.

        Parameters
        ----------
        wait : float
            Seconds, at most 30, in which it may come to that.

        Returns
        -------
        dict
            ``node`` and ``port`` of its keeper, None while that does not listen; ``stage``: how far the image of its
            container is, or None; ``state`` of the step, and whether it is ``finished``.
        """
        wait = min(wait, _LONGEST_WAIT)
        client, path = self._cluster.client, self._path("kernel")
        told: api.KernelPlace = client.get(path, params={"wait": wait}, timeout=wait + _ANSWERS_WITHIN)
        return told

    def end(self) -> KernelStep:
        """End it; its allocation goes on."""
        self.cancel()
        return self


def check(parsed: MagicLine) -> None:
    """Refuse what a kernel cannot be asked for with.

    Raises
    ------
    UsageError
        Nothing was asked of Slurm.
    """
    words = parsed.words
    for option in parsed.parsed.options:
        if option.name in _NOT_HERE:
            message = f"--{option.name} has no place here: a kernel runs in an allocation."
            raise OptionError(message, option=option.tokens[0])
    if parsed.args:
        raise UsageError("A kernel takes no arguments.", hint="Leave out what is behind --")
    if "on" in words and parsed.parsed.options:
        raise UsageError(
            f"on={words['on']} is an allocation that is there: nothing else is asked of Slurm.",
            hint="Leave out either on= or the options of sbatch.",
        )
    environment_named(words.get("env"), words.get("image"))
    idle_time(words.get("idle"))
    _lease(words.get("lease"))
    if words.get("transport", _TRANSPORTS[0]) not in _TRANSPORTS:
        raise UsageError(
            f"transport={words['transport']} is none.",
            hint="tcp is for kernels that know no Unix sockets, which others have: ipc.",
        )


def _lease(text: str | None) -> float:
    return settings().kernel_lease if text is None else idle_time(text, word="lease")


def ask(
    cluster: Cluster, parsed: MagicLine, *, owner: str = "", name: str = "", display_name: str = "", label: str = ""
) -> Allocation:
    """Return the allocation for a kernel: an open one that ``on=`` names, else one that is asked for.

    Parameters
    ----------
    cluster : Cluster
        Where.
    parsed : MagicLine
        Options of sbatch and our words.
    owner, name, display_name : str
        Which notebook's it is (a hash in hexadecimal digits), its kernelspec, and how that is shown.
    label : str
        What the allocation is called; by default a name is made.

    Raises
    ------
    UsageError, SubmitRefused
        There is none.
    """
    check(parsed)
    words = parsed.words
    if "on" in words:
        found = choose(cluster, words["on"], {})
        assert found is not None  # of a name it is told which one, or why there is none
        return found
    python = python_named(None if {"env", "image"} & words.keys() else words.get("python"), cluster)
    holder = Submission("allocation", "", list(parsed.options), python=python)
    return allocate(
        cluster,
        holder,
        lease=_lease(words.get("lease")),
        label=label or f"kernel-{secrets.token_hex(4)}",
        keep=True,  # it is the keeper on the node that ends it, and no process here
        kernel=_told(owner, name, display_name),
    )


def start(
    cluster: Cluster,
    allocation: Allocation,
    parsed: MagicLine,
    *,
    secret: bytes,
    key: str = "",
    owner: str = "",
    name: str = "",
    display_name: str = "",
) -> KernelStep:
    """Start a kernel in an allocation, once.

    Parameters
    ----------
    cluster, allocation
        Where.
    parsed : MagicLine
        As of :func:`ask`.
    secret : bytes
        32 of them, by which both ends of the link know each other.
    key : str
        Of the step, where that is asked for again: there will be one. By default it is a new one.
    owner, name, display_name : str
        As of :func:`ask`.

    Raises
    ------
    UsageError, JobError
        There can be none.
    SubmissionUnknown
        Whether it was asked for is not known.
    """
    words, chosen = parsed.words, {option.name: option.value for option in parsed.parsed.options}
    env, python = environment_named(words.get("env"), words.get("image")), words.get("python")
    is_of_env = env is not None and (python is None or "/" not in python)  # looked for in the environment
    submission = Submission(
        "kernel",
        "",
        python=python if is_of_env else python_named(python, cluster),
        env=env,
        default_python=python_named(None, cluster),
    )
    with submission.body(cluster) as body:
        asked = cast("api.Step", {part: value for part, value in body.items() if part in _OF_A_STEP})
        asked["key"] = key or body["key"]
        asked["kernel"] = {
            "owner": owner or None,
            "name": name or None,
            "display_name": display_name or None,
            "kernel": words.get("kernel"),
            "secret": secret.hex(),
            "idle": idle_time(words.get("idle")),
            "lease": _lease(words.get("lease")),
            "dir": words.get("dir") or chosen.get("chdir"),
        }
        if transport := words.get("transport"):
            asked["kernel"]["transport"] = transport
        return KernelStep(cluster, hand_over(cluster, allocation._path("steps"), asked))


def _told(owner: str, name: str, display_name: str) -> api.Kernel:
    return {"owner": owner or None, "name": name or None, "display_name": display_name or None}


def running_kernel(
    cluster: Cluster, name: str | None, allocation: Allocation | None = None
) -> tuple[Allocation, KernelStep]:
    """Return a kernel on a node that is not over, for cells of this notebook to run in; and its allocation.

    Where it is another one than before, that is said: the variables are gone.

    Parameters
    ----------
    cluster : Cluster
        Where.
    name : str or None
        How it is shown, its kernelspec, the name or number of its allocation, or the number of its step. None: the
        only one.
    allocation : Allocation, optional
        In which; by default in any.

    Raises
    ------
    UsageError
        There is none of that name, or there are several.
    """
    places = open_allocations(cluster) if allocation is None else [allocation]
    found = [(place, kernel) for place in places for kernel in _kernels_in(place)]
    meant = [one for one in found if name is None or name in _names(*one)]
    if len(meant) != 1:
        what = f"kernel={name}: several" if name is not None else "Which kernel? Several"
        said = f"{what} are meant." if meant else "No kernel runs on a node" + (" of that name." if name else ".")
        raise UsageError(said, hint=_listed(found))
    place, kernel = meant[0]
    told = kernel._data.get("kernel") or {}
    whose = str(place.key), str(told.get("owner")), str(told.get("name"))
    before, _used[whose] = _used.get(whose), kernel
    if before is not None and before.key != kernel.key:
        said = headline(before.refresh()._data)
        sys.stderr.write(f"{said}\nThe kernel has begun anew, without any of its variables.\n")
    return place, kernel


def _kernels_in(place: Allocation) -> list[KernelStep]:
    steps = [step._data for step in place.steps]
    return [KernelStep(place._cluster, data) for data in steps if data["kind"] == "kernel" and not data["finished"]]


def _names(place: Allocation, kernel: KernelStep) -> list[str]:
    """Return what a kernel can be called by, the best name first."""
    told = kernel._data.get("kernel") or {}
    names = (told.get("display_name"), told.get("name"), place.label, place.id, kernel.id)
    return [str(name) for name in names if name]


def _listed(found: list[tuple[Allocation, KernelStep]]) -> str:
    if not found:
        return "`jupyter slurm kernel add` makes one for the launcher."
    known = [_names(*one) for one in found]
    every = [name for names in known for name in names]
    means = [next((name for name in names if every.count(name) == 1), names[-1]) for names in known]
    words = (f'kernel="{mean}"' if " " in mean else f"kernel={mean}" for mean in means)
    return "There are: " + ", ".join(f"{word} ({one.title})" for word, (_, one) in zip(words, found, strict=True))
