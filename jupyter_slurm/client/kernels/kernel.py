"""Remote kernels of notebooks: their allocations, and their steps."""

from __future__ import annotations

import secrets
import sys
from typing import TYPE_CHECKING, cast

from jupyter_slurm.client.allocations.allocation import Allocation, Step, allocate, open_allocations
from jupyter_slurm.client.allocations.choice import choose
from jupyter_slurm.client.clusters.cluster import Cluster
from jupyter_slurm.client.jobs.upload import submit_once
from jupyter_slurm.client.render.job_card import headline
from jupyter_slurm.client.sessions.launch import environment_named, idle_time
from jupyter_slurm.client.settings import settings
from jupyter_slurm.client.submission.submit import Submission, python_named
from jupyter_slurm.domain.magic_line.parser import MagicLine
from jupyter_slurm.domain.scripts.environments import AUTOMATIC_ENVIRONMENT
from jupyter_slurm.errors import OptionError, UsageError

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["KEYWORDS", "KernelStep", "check", "request_kernel", "running_kernel", "start"]

KEYWORDS: dict[str, bool | None] = {
    "dir": True,
    "env": True,
    "idle": True,
    "image": True,
    "kernel": True,
    "lease": True,
    "modules": True,
    "name": True,
    "on": True,
    "python": True,
    "transport": True,
}
"""The keywords of a kernel, and whether each takes a value."""

_TRANSPORTS = ("ipc", "tcp")
_UNSUPPORTED_OPTIONS = ("array", "test-only", "wait", "wrap", "help", "usage", "version")
_STEP_KEYS = ("key", "kind", "options", "args", "python", "env", "default_python", "context")
_MAX_WAIT_S = 30.0  # seconds that a request to the agent may wait
_ANSWER_TIMEOUT_S = 30.0  # seconds beyond those
_used: dict[tuple[str, ...], KernelStep] = {}  # by allocation and notebook: the kernels that ran cells of this kernel


class KernelStep(Step):
    """A remote kernel: a step of its allocation."""

    @property
    def owner(self) -> str | None:
        """Return the hash of the kernel's notebook."""
        return (self._data.get("kernel") or {}).get("owner")

    def connection_data(self, wait: float = 0.0) -> api.KernelPlace:
        """Return the address of the kernel, as far as known.

        Parameters
        ----------
        wait : float
            Seconds, at most 30, to wait for the address.

        Returns
        -------
        dict
            ``node`` and ``port`` of its keeper, None until the keeper listens; ``stage``: progress of the container
            image, or None; ``state`` of the step, and whether it is ``finished``. ``unused`` of a finished kernel:
            ``idle_over`` or ``lease_over`` if its keeper ended it because nobody used it.
        """
        wait = min(wait, _MAX_WAIT_S)
        client, path = self._cluster.client, self._path("kernel")
        told: api.KernelPlace = client.get(path, params={"wait": wait}, timeout=wait + _ANSWER_TIMEOUT_S)
        return told

    def end(self) -> KernelStep:
        """End the kernel; its allocation continues."""
        self.cancel()
        return self


def check(parsed: MagicLine) -> None:
    """Refuse options that are not valid for a kernel.

    Raises
    ------
    UsageError
        Slurm was not asked.
    """
    words = parsed.keywords
    for option in parsed.parsed.options:
        if option.name in _UNSUPPORTED_OPTIONS:
            message = f"--{option.name} is not supported: a kernel runs in an allocation."
            raise OptionError(message, hint="Omit this option.", option=option.tokens[0])
    if parsed.args:
        raise UsageError("A kernel takes no arguments.", hint="Remove -- and the words after it.")
    if "on" in words and parsed.parsed.options:
        raise UsageError(
            f"on={words['on']} names an open allocation, so options of sbatch have no effect.",
            hint="Omit either on= or the options of sbatch.",
        )
    environment_named(words.get("env"), words.get("image"), words.get("modules"))
    if words.get("env") == AUTOMATIC_ENVIRONMENT:
        raise UsageError(
            "env=auto is not supported for a kernel: any notebook may use the kernel, and its imports are not known "
            "before it starts.",
            hint="Make an environment with `%slurm env create NAME from=this`, and use env=NAME.",
        )
    idle_time(words.get("idle"))
    _lease(words.get("lease"))
    if words.get("transport", _TRANSPORTS[0]) not in _TRANSPORTS:
        raise UsageError(
            f"transport={words['transport']} is not supported.",
            hint="Use ipc, or tcp for kernels that do not support Unix sockets.",
        )


def _lease(text: str | None) -> float:
    return settings().kernel_lease if text is None else idle_time(text, word="lease")


def request_kernel(
    cluster: Cluster, parsed: MagicLine, *, owner: str = "", name: str = "", display_name: str = "", label: str = ""
) -> Allocation:
    """Return the allocation for a kernel: the open one of ``on=``, else a new one.

    Parameters
    ----------
    cluster : Cluster
        Cluster of the allocation.
    parsed : MagicLine
        Options of sbatch and keywords.
    owner, name, display_name : str
        The notebook (a hash in hexadecimal digits), the kernelspec, and its displayed name.
    label : str
        Name of the allocation; by default a name is made.

    Raises
    ------
    UsageError, SubmitRefused
        No allocation is available.
    """
    check(parsed)
    words = parsed.keywords
    if "on" in words:
        found = choose(cluster, words["on"], {})
        assert found is not None  # `choose` returns the named allocation or raises
        return found
    python = python_named(None if {"env", "image"} & words.keys() else words.get("python"), cluster)
    holder = Submission("allocation", "", list(parsed.options), python=python)
    return allocate(
        cluster,
        holder,
        lease=_lease(words.get("lease")),
        label=label or f"kernel-{secrets.token_hex(4)}",
        keep=True,  # the keeper on the node ends the allocation, not this process
        kernel=_kernel_data(owner, name, display_name),
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
        Cluster and allocation of the kernel.
    parsed : MagicLine
        As for :func:`request_kernel`.
    secret : bytes
        32 bytes, with which both ends of the link authenticate each other.
    key : str
        Key of the step if the request is a repetition: only one step starts. By default a new key.
    owner, name, display_name : str
        As for :func:`request_kernel`.

    Raises
    ------
    UsageError, JobError
        A kernel is not possible.
    SubmissionUnknown
        It is unknown whether the request arrived.
    """
    words, chosen = parsed.keywords, {option.name: option.value for option in parsed.parsed.options}
    env, python = environment_named(words.get("env"), words.get("image"), words.get("modules")), words.get("python")
    is_of_env = python is None or (env is not None and "/" not in python)  # searched in the environment
    submission = Submission(
        "kernel",
        "",
        python=python if is_of_env else python_named(python, cluster),
        env=env,
        default_python=python_named(None, cluster),
    )
    with submission.body(cluster) as body:
        asked = cast("api.Step", {part: value for part, value in body.items() if part in _STEP_KEYS})
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
        return KernelStep(cluster, submit_once(cluster, allocation._path("steps"), asked))


def _kernel_data(owner: str, name: str, display_name: str) -> api.Kernel:
    return {"owner": owner or None, "name": name or None, "display_name": display_name or None}


def running_kernel(
    cluster: Cluster, name: str | None, allocation: Allocation | None = None
) -> tuple[Allocation, KernelStep]:
    """Return a running remote kernel for cells of this notebook, and its allocation.

    If the kernel is another one than before, a message says that the variables are lost.

    Parameters
    ----------
    cluster : Cluster
        Cluster of the kernel.
    name : str or None
        Displayed name, kernelspec, name or number of the allocation, or number of the step. None: the only kernel.
    allocation : Allocation, optional
        Allocation of the kernel; by default any.

    Raises
    ------
    UsageError
        No kernel has that name, or several have it.
    """
    places = open_allocations(cluster) if allocation is None else [allocation]
    found = [(place, kernel) for place in places for kernel in _kernels_in(place)]
    meant = [one for one in found if name is None or name in _names(*one)]
    if len(meant) != 1:
        several = f"Several kernels match kernel={name}." if name is not None else "Several kernels run on nodes."
        none = f"No kernel on a node has the name {name}." if name else "No kernel runs on a node."
        said = several if meant else none
        raise UsageError(said, hint=_listed(found))
    place, kernel = meant[0]
    told = kernel._data.get("kernel") or {}
    whose = str(place.key), str(told.get("owner")), str(told.get("name"))
    before, _used[whose] = _used.get(whose), kernel
    if before is not None and before.key != kernel.key:
        said = headline(before.refresh()._data)
        sys.stderr.write(f"{said}\nThe kernel was restarted. Its variables are lost.\n")
    return place, kernel


def _kernels_in(place: Allocation) -> list[KernelStep]:
    steps = [step._data for step in place.steps]
    return [KernelStep(place._cluster, data) for data in steps if data["kind"] == "kernel" and not data["finished"]]


def _names(place: Allocation, kernel: KernelStep) -> list[str]:
    """Return the names of a kernel, the best name first."""
    told = kernel._data.get("kernel") or {}
    names = (told.get("display_name"), told.get("name"), place.label, place.id, kernel.id)
    return [str(name) for name in names if name]


def _listed(matches: list[tuple[Allocation, KernelStep]]) -> str:
    if not matches:
        return "Add one to the launcher with `jupyter slurm kernel add`."
    known = [_names(*one) for one in matches]
    every = [name for names in known for name in names]
    means = [next((name for name in names if every.count(name) == 1), names[-1]) for names in known]
    words = (f'kernel="{mean}"' if " " in mean else f"kernel={mean}" for mean in means)
    return "Kernels on nodes: " + ", ".join(
        f"{word} ({one.title})" for word, (_, one) in zip(words, matches, strict=True)
    )
