"""Launch of a session: the keywords of ``launch``, and the request of a job that runs Jupyter or another server."""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, cast

from jupyter_slurm.client.clusters.cluster import Cluster, chosen, current, with_id
from jupyter_slurm.client.clusters.cluster_names import is_site_or_id
from jupyter_slurm.client.clusters.other_clusters import naming_others
from jupyter_slurm.client.interrupts import WaitInterrupted
from jupyter_slurm.client.jobs.request import report_warnings
from jupyter_slurm.client.jobs.upload import submit_once
from jupyter_slurm.client.render.session_card import server_prefix
from jupyter_slurm.client.sessions.session import Session
from jupyter_slurm.client.settings import settings
from jupyter_slurm.client.submission.keywords import parse_restarts, parse_stage_words
from jupyter_slurm.client.submission.submit import Submission, python_named
from jupyter_slurm.domain.magic_line.parser import MagicLine
from jupyter_slurm.domain.magic_line.tokenizer import tokenize
from jupyter_slurm.domain.scripts.environments import MODULE_PREFIX, NO_ENVIRONMENT
from jupyter_slurm.domain.slurm_values import parse_duration
from jupyter_slurm.errors import ConfigError, OptionError, UsageError

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = [
    "WORDS",
    "cluster_before",
    "environment_named",
    "idle_time",
    "launch",
    "named_in",
    "own_cluster_name",
    "resolve_cluster",
]

WORDS: dict[str, bool | None] = {
    "app": True,
    "dir": True,
    "env": True,
    "idle": True,
    "image": True,
    "jupyter": True,
    "logdir": True,
    "modules": True,
    "name": True,
    "noopen": False,
    "notebook": True,
    "on": True,
    "open": False,
    "port": True,
    "python": True,
    "resume": None,
    "stage": True,
    "store": True,
    "sync": True,
}
"""The keywords of ``launch``, and whether each takes a value; None: the value is optional."""

_OF_A_LAUNCH = ("key", "options", "python", "default_python", "env", "origin", "context", "resume", "stage")
_OF_AN_APP = ("logdir", "notebook", "store")
_NOT_HERE = {
    "test-only": "Use `%sbatch --test-only …` for the earliest start.",
    "wait": "Omit it, and use the keyword `open` to wait until the session is ready.",
    "wrap": "Write the command of the server after --, with {port} for its port.",
    **dict.fromkeys(("help", "usage", "version"), "Read `jupyter slurm launch --help`."),
}
_FILES = (".sif", ".simg", ".img", ".sqfs", ".sqsh")  # suffixes of image files; no image in a registry has such a name
_SHORTEST = 60  # seconds; use is checked too seldom for a shorter time


def named_in(line: str) -> tuple[str | None, str]:
    """Return the cluster named by the first word after ``launch``, if any, and the rest of the line."""
    first = next(iter(tokenize(line)), None)
    if first is None or first.text.startswith("-") or "=" in first.text or first.text in WORDS:
        return None, line
    return first.text, line[first.end :]


def cluster_before(actions: Collection[str], line: str) -> tuple[Cluster, str]:
    """Return the cluster and the rest of a line. The first word names the cluster if an action follows it."""
    tokens = tokenize(line)[:2]
    if len(tokens) == 2 and tokens[0].text not in actions and tokens[1].text in actions:
        return resolve_cluster(tokens[0].text), line[tokens[0].end :].lstrip()
    return current(), line


def resolve_cluster(name: str | None) -> Cluster:
    """Return the cluster of a name, logged in; the chosen cluster of this process stays."""
    if name is None or name == chosen():
        return current()
    own = "" if is_site_or_id(name) else own_cluster_name()
    if own and name == own:
        return current()
    try:
        return with_id(name)
    except ConfigError as error:
        if own not in ("", "local"):
            error.hint = f"Omit the name: the Slurm of this computer is {own}. {error.hint}"
        raise


def own_cluster_name() -> str:
    """Return the ClusterName of the Slurm of this computer; empty where that is not in use, as on a laptop."""
    if chosen() != "local" or not shutil.which("squeue"):
        return ""
    here = current()
    return str(here.client.get(here.path())["name"])


def check_options(parsed: MagicLine) -> None:
    """Refuse options of sbatch that start no server."""
    for option in parsed.parsed.options:
        if option.name in _NOT_HERE:
            message = f"--{option.name} is not supported: a session is a job that runs a server."
            raise OptionError(message, hint=_NOT_HERE[option.name], option=option.name)


def launch(
    cluster: Cluster,
    parsed: MagicLine,
    *,
    notify: Callable[[api.Job], None] = report_warnings,
    ssh: tuple[str, str] | None = None,
    on: str | None = None,
    key: str | None = None,
) -> Session:
    """Submit a job that runs Jupyter, or the command after ``--``, once.

    Parameters
    ----------
    cluster : Cluster
        Cluster of the job.
    parsed : MagicLine
        Options of sbatch and keywords.
    notify : callable, optional
        Function that shows warnings about the submitted job; by default they are printed.
    ssh : (str, str), optional
        Instead of the command, sshd: the public key that it lets in, and the name of the host for ssh here.
    on : str, optional
        ID of a running job, or key of an open allocation, in which the server runs as a step. By default the value of
        ``on=``.
    key : str, optional
        Key of the submission: its repetition starts no second job. By default a new one.

    Raises
    ------
    UsageError, SubmitRefused
        Nothing was submitted.
    """
    check_options(parsed)
    words, python = parsed.keywords, python_named(parsed.keywords.get("python"), cluster)
    _check_install(words, parsed)
    env = environment_named(words.get("env"), words.get("image"), words.get("modules"))
    place = on or words.get("on")
    is_open = (env is not None or place is not None) and "python" not in words
    submission = Submission(
        "session",
        "",
        parsed.options,
        env=env,
        python=None if is_open else python,
        default_python=python,
        resume=parse_restarts(parsed),
        stage=parse_stage_words(words),
    )
    others = naming_others(cluster, place) if place else contextlib.nullcontext()
    with submission.body(cluster) as body, others:
        asked = _request(body, parsed)
        asked |= {"ssh": ssh[0] if ssh else None, "ssh_host": ssh[1] if ssh else None, "on": place}
        asked["key"] = key or asked["key"]
        try:
            data = submit_once(cluster, cluster.path("sessions"), asked)
        except KeyboardInterrupt:
            raise WaitInterrupted(
                "Interrupted while sbatch was running: the session may or may not exist. "
                f"`jupyter slurm sessions` lists it, `jupyter slurm stop {asked['name'] or asked['key']}` ends it."
            ) from None
    notify(data)
    return Session(cluster, data, from_start=True)


def _request(body: Mapping[str, Any], parsed: MagicLine) -> api.Launch:
    """Return the request of a session, from a submission and the keywords of the line."""
    words = parsed.keywords
    asked = cast("api.Launch", {name: value for name, value in body.items() if name in _OF_A_LAUNCH})
    asked |= {"name": words.get("name"), "idle": idle_time(words.get("idle")), "dir": words.get("dir")}
    asked |= {"port": _port(words.get("port")), "prefix": server_prefix(), "command": parsed.args or None}
    asked |= {"jupyter": words.get("jupyter"), "app": cast("Any", words.get("app"))}
    asked["app_values"] = cast("Any", {name: words[name] for name in _OF_AN_APP if words.get(name)})
    return asked


def _check_install(words: Mapping[str, str | None], parsed: MagicLine) -> None:
    """Refuse ``jupyter=`` with any other value than ``install``, or for another server."""
    if "jupyter" not in words:
        return
    is_command = bool(parsed.args) or words.get("app") not in (None, "jupyter")
    if words["jupyter"] != "install" or is_command:
        said = "has no effect with a command" if is_command else "is not supported"
        raise UsageError(
            f"jupyter={words['jupyter'] or ''} {said}.", hint="Use jupyter=install, without a command after --."
        )


def environment_named(env: str | None, image: str | None, modules: str | None = None) -> str | None:
    """Return the environment that ``env=``, or ``image=``, and ``modules=`` name together.

    An image is recognized by its name in a registry or by its path.

    Raises
    ------
    UsageError
        ``modules=`` names no modules, or the keywords exclude each other.
    """
    name = env if image is None else _image_named(env, image)
    if modules is None:
        return name
    if not all(modules.split(",")) or any(blank in modules for blank in " \t\n"):
        raise UsageError(f"modules={modules} does not name modules.", hint="Use for example modules=gcc/13,cuda/12.")
    if name and name.startswith(MODULE_PREFIX):
        raise UsageError("env= names modules, too.", hint="Name all of them in modules=, in the order of loading.")
    return f"{MODULE_PREFIX}{modules} {name}" if name and name != NO_ENVIRONMENT else f"{MODULE_PREFIX}{modules}"


def _image_named(env: str | None, image: str) -> str:
    if env is not None:
        raise UsageError("image= and env= cannot be combined.", hint="Use one of them: image=NAME:TAG, or env=NAME.")
    if image == NO_ENVIRONMENT:
        return image
    if image.endswith(_FILES) and "/" not in image:
        return f"./{image}"
    is_told = image.startswith(("/", "~", "./", "../")) or "://" in image or image.endswith(_FILES)
    return image if is_told else f"docker://{image}"


def idle_time(text: str | None, *, word: str = "idle") -> float:
    """Parse a time into seconds: as for ``--time``, or 30m, 2h, 1d 12h; None: the configured time."""
    if text is None:
        return settings().session_idle
    try:
        seconds = parse_duration(text)
    except UsageError:
        seconds = 0
    if seconds is None or seconds < _SHORTEST:
        raise UsageError(
            f"{word}={text} is not a time of at least one minute.",
            hint=f"Use for example {word}=30m, {word}=2h or {word}=1d. A number without a unit means minutes.",
        )
    return float(seconds)


def _port(text: str | None) -> int | None:
    if text is None:
        return None
    if not re.fullmatch(r"[0-9]{1,5}", text) or not 0 < int(text) < 65_536:
        raise UsageError(f"port={text} is not a port number.", hint="Use a number from 1 to 65535.")
    return int(text)
