"""Resolution of ``env=``: the environment meant, its existence, and its effect on a submission."""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from jupyter_slurm.documentation import page_url
from jupyter_slurm.domain.containers.image_reference import is_path, reference, runtimes_for
from jupyter_slurm.domain.scripts.environments import (
    AUTOMATIC_ENVIRONMENT,
    FAILED_EXIT,
    MODULE_PREFIX,
    Environment,
    inherits_environment,
)
from jupyter_slurm.errors import TransportError, UsageError
from jupyter_slurm.services.jobdir.job_json_model import EnvironmentRecord
from jupyter_slurm.services.slurm.client import decode_output, printable
from jupyter_slurm.transport.base import Context, Transport

if TYPE_CHECKING:
    from collections.abc import Callable

    from jupyter_slurm.domain import api_types as api
    from jupyter_slurm.services.slurm.location import ClusterLocation

__all__ = ["ENVIRONMENT_HINT", "Environments", "PreparedEnvironment", "is_failure"]

ENVIRONMENT_HINT = (
    "Add env=… (a venv, a conda environment or a container image) to the %%sbatch line: "
    f"{page_url('how-to/choose-an-environment')}"
)
"""How to choose an environment, for a cell that ran without one."""

_MODULE_CACHE_AGE_S = 600.0  # seconds for which successfully loaded modules are assumed to exist
_MAX_STATE_FILE_BYTES = 1_000_000  # bytes of a file of conda
_MAX_STATE_FILES = 100
_UNSET_MARK = "***unset***"  # conda's mark for a removed variable
_IMAGES = (".sif", ".simg", ".img", ".sqfs", ".sqsh")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

# Folders in which conda, mamba and micromamba keep named environments.
_FIND = r"""name=$1
roots="$HOME/.conda:$HOME/miniconda3:$HOME/anaconda3:$HOME/miniforge3:$HOME/mambaforge:$HOME/micromamba:/opt/conda"
roots="${CONDA_EXE:+${CONDA_EXE%/bin/conda}:}${MAMBA_ROOT_PREFIX:+$MAMBA_ROOT_PREFIX:}$roots"
{
    cat "$HOME/.conda/environments.txt" 2>/dev/null
    IFS=:
    for folder in $CONDA_ENVS_PATH $CONDA_ENVS_DIRS; do printf '%s\n' "$folder/$name"; done
    for root in $roots; do
        if [ "$name" = base ]; then printf '%s\n' "$root"; else printf '%s\n' "$root/envs/$name"; fi
    done
} | while IFS= read -r prefix; do
    if [ "$name" != base ] && [ "${prefix##*/}" != "$name" ]; then continue; fi
    if [ "$name" = base ] && [ ! -e "$prefix/condabin" ]; then continue; fi
    if [ -d "$prefix/conda-meta" ]; then (cd -P "$prefix" && pwd); fi
done | sort -u"""


@dataclass(frozen=True)
class PreparedEnvironment:
    """Resolved environment, with the interpreter of Python cells.

    Attributes
    ----------
    environment : Environment
        With absolute paths.
    python : str or None
        None: not a Python cell, or not specified.
    """

    environment: Environment
    python: str | None

    def record(self) -> EnvironmentRecord:
        """Return the part of a job's record."""
        return EnvironmentRecord.from_json(self.environment.as_dict())

    def check(self, export: str | None, kind: str) -> None:
        """Refuse an --export that keeps the environment from the job."""
        environment = self.environment
        is_carried = bool(environment.variables) or (kind == "script" and environment.is_activated)
        if is_carried and not inherits_environment(export):
            raise UsageError(
                f"--export={export} would remove the variables of the environment {environment.name} from the job.",
                hint="Leave --export out, or use --export=ALL,NAME=value.",
            )

    def options(self, chosen: dict[str, str | None]) -> list[str]:
        """Return sbatch options that the user has not given; ``chosen`` are the options in force and receive them."""
        if self.environment.work_dir is None or "chdir" in chosen:
            return []
        chosen["chdir"] = self.environment.work_dir
        return [f"--chdir={self.environment.work_dir}"]

    def wrapper(self) -> tuple[str, ...]:
        """Return the prefix of a command line that runs it in the environment.

        Output of the activation is not output of the command, and the activation cannot read the command's input.
        """
        text = self.environment.activation()
        return ("bash", "-c", f'{{\n{text}}} </dev/null >&2\nexec "$@"\n', "bash") if text else ()


class Environments:
    """Environments of one cluster.

    Parameters
    ----------
    location : ClusterLocation
        Knows the named environments.
    transport : Transport
        Transport to the cluster.
    clock : callable
        Seconds since the epoch.
    """

    def __init__(self, location: ClusterLocation, transport: Transport, clock: Callable[[], float]) -> None:
        self._location, self._transport, self._clock = location, transport, clock
        self._checked_modules: dict[tuple[object, ...], float] = {}

    async def prepare(self, requested: api.Submission | api.Step, context: Context) -> PreparedEnvironment:
        """Find the environment that a submission requests.

        Raises
        ------
        UsageError
            The environment does not exist, or cannot be activated on the login node: nothing was submitted.
        """
        try:
            return await self._prepare(requested, context)
        except UsageError as error:
            error.details["option"] = "env"  # a form shows it beside that field
            raise

    async def prepare_step(
        self, requested: api.Submission | api.Step, context: Context, known: Environment | None = None
    ) -> PreparedEnvironment:
        """Find the environment of a step or of all steps of an allocation.

        Parameters
        ----------
        requested : mapping
            Step, or the submission of an allocation.
        context : Context
            Context of the request.
        known : Environment, optional
            Environment of the allocation, instead of the one that the request names.

        Raises
        ------
        UsageError
            The environment does not exist, or cannot be activated on the login node.
        """
        try:
            environment = known or await self._find_environment(requested["env"] or "", context)
            return await self._with_python(environment, requested, context)
        except UsageError as error:
            error.details["option"] = "env"
            raise

    async def _prepare(self, requested: api.Submission | api.Step, context: Context) -> PreparedEnvironment:
        environment = await self._find_environment(requested["env"] or "", context)
        if requested["kind"] not in ("python", "session", "kernel"):
            return PreparedEnvironment(environment, None)
        return await self._with_python(environment, requested, context)

    async def _with_python(
        self, environment: Environment, requested: api.Submission | api.Step, context: Context
    ) -> PreparedEnvironment:
        if environment.modules:  # modules of a script are loaded at submission
            await self._check_modules(environment, context)
        if environment.image:
            return PreparedEnvironment(environment, requested.get("python") or environment.python or "python3")
        python = requested.get("python") or environment.python or await self._find_own_python(environment)
        if python is None and environment.modules and not (environment.venv or environment.conda):
            python = "python3"  # first one on the modules' PATH
        return PreparedEnvironment(environment, python or requested.get("default_python"))

    async def _find_environment(self, requested: str, context: Context) -> Environment:
        if requested.startswith("docker://"):
            return self._contained(requested, {"image": requested})
        if requested.startswith(MODULE_PREFIX):
            return await self._with_modules(requested, context)
        if "/" in requested:
            return await self._at_path(requested, self._absolute(requested, context))
        known = self._location.environments
        if requested not in known:
            from jupyter_slurm.services.environments.created_environments import find_created

            made = await find_created(self._transport, self._location, requested)
            if made.kind:
                found = Environment.described(requested, {made.kind: made.path})
                return await self._with_variables(replace(found, cuda=made.cuda, min_driver=made.min_driver))
            raise _unknown(requested, [*known, *made.names])
        told: dict[str, Any] = dict(known[requested])
        if "image" in told:
            return await self._described_image(requested, told, context)
        for name in ("venv", "conda", "work_dir", "python"):
            if "/" in told.get(name, ""):
                told[name] = self._absolute(told[name], context)
        if "conda" in told and "/" not in told["conda"]:
            told["conda"] = await self._find_conda_prefix(told["conda"], context)
        environment = Environment.described(requested, told)
        await self._check(environment)
        return await self._with_variables(environment)

    async def _with_modules(self, requested: str, context: Context) -> Environment:
        """Return the environment of ``module:A,B``, or of ``module:A,B NAME`` with another environment after them."""
        words, _, name = requested.partition(" ")
        modules = _modules(words)
        if not name:
            return modules
        environment = await self._find_environment(name, context)
        if environment.image:
            raise UsageError(
                f"Modules are of no use in the container image {printable(name)}.", hint="Omit modules=, or env=."
            )
        return replace(environment, name=requested, modules=(*modules.modules, *environment.modules))

    async def _at_path(self, requested: str, path: str) -> Environment:
        signs = {"venv": posixpath.join(path, "pyvenv.cfg"), "conda": posixpath.join(path, "conda-meta")}
        tree, folder = [posixpath.join(path, name) for name in ("etc", "usr")], posixpath.join(path, ".")
        there = await self._transport.stat_all([*signs.values(), *tree, path, folder])
        for kind, sign in signs.items():
            if sign in there:
                return await self._with_variables(Environment.described(requested, {kind: path}))
        if path in there and (all(name in there for name in tree) if folder in there else path.endswith(_IMAGES)):
            return self._contained(requested, {"image": path})
        host, lacks = (
            self._location.host,
            "it has neither pyvenv.cfg (venv) nor conda-meta, and it is not a container image",
        )
        raise UsageError(
            printable(
                f"{path} is not an environment on {host}: {lacks}."
                if path in there
                else f"{path} does not exist on {host}."
            ),
            hint="Give env= the directory of a venv or conda environment, the name of an environment, a "
            "SIF or .sqsh file, the directory of an unpacked image, or docker://NAME:TAG.",
            scope="file" if path in there else "missing",
        )

    def _contained(self, name: str, text: Mapping[str, Any]) -> Environment:
        """Return the environment of an image, with the settings of all containers of the cluster."""
        site, image = self._location.container, text["image"]
        if not is_path(image):
            image = reference(image)
        merged = {**text, "image": image, "bind": [*site.get("bind", ()), *text.get("bind", ())]}
        if site.get("runtime") in runtimes_for(image):
            merged = {"runtime": site["runtime"], **merged}
        merged |= {name: site[name] for name in ("gpu_variable", "image_dir", "gpus", "sudo") if name in site}
        return Environment.described(name, merged)

    async def _described_image(self, name: str, text: dict[str, Any], context: Context) -> Environment:
        """Return an image environment of a profile, if its files exist."""
        for field in ("image", "work_dir"):
            if is_path(text.get(field, "")):
                text[field] = self._absolute(text[field], context)
        environment = self._contained(name, text)
        await self._check(environment)
        return environment

    async def _check(self, environment: Environment) -> None:
        """Check that the files of the environment exist."""
        wanted = {environment.venv: "pyvenv.cfg", environment.conda: "conda-meta", environment.work_dir: ""}
        paths = {posixpath.join(path, sign) for path, sign in wanted.items() if path}
        if environment.image and is_path(environment.image):
            paths.add(environment.image)
        elif environment.python and "/" in environment.python and not environment.image:
            paths.add(environment.python)
        missing = sorted(paths - set(await self._transport.stat_all(sorted(paths))))
        if missing:
            raise UsageError(
                f"The environment {environment.name} cannot be used: {printable(missing[0])} does not "
                f"exist on {self._location.host}.",
                hint="Correct the environment in the profile of the cluster, or in c.JupyterSlurm.environments of "
                "this computer.",
            )

    async def _with_variables(self, environment: Environment) -> Environment:
        """Add the variables that conda's packages and the creator (``conda env config vars set``) store in an
        environment.
        """
        if environment.conda is None:
            return environment
        folder = posixpath.join(environment.conda, "etc", "conda", "env_vars.d")
        try:
            names = [name for name in await self._transport.list_dir(folder) if name.endswith(".json")]
        except (FileNotFoundError, TransportError):
            names = []
        kept: dict[str, str] = {}
        for name in sorted(names)[:_MAX_STATE_FILES]:
            kept |= _job_variables(await self._json(posixpath.join(folder, name)))
        kept |= _job_variables(
            (await self._json(posixpath.join(environment.conda, "conda-meta", "state"))).get("env_vars")
        )
        kept = {name: value for name, value in kept.items() if value != _UNSET_MARK}
        return replace(environment, variables={**kept, **environment.variables})

    async def _json(self, path: str) -> dict[str, Any]:
        """Return the content of a JSON file, if readable."""
        try:
            told = json.loads(await self._transport.read(path, 0, _MAX_STATE_FILE_BYTES))
        except (FileNotFoundError, TransportError, ValueError, RecursionError):
            return {}
        return told if isinstance(told, dict) else {}

    async def _find_own_python(self, environment: Environment) -> str | None:
        folder = environment.venv or environment.conda
        path = posixpath.join(folder, "bin", "python") if folder else ""
        return path if path and path in await self._transport.stat_all([path]) else None

    async def _find_conda_prefix(self, name: str, context: Context) -> str:
        """Return the prefix of a named conda environment."""
        done = await self._transport.run(["/bin/sh", "-c", _FIND, "sh", name], context=context)
        found = decode_output(done.stdout).split("\n")[:-1]
        if len(found) != 1:
            said = f"there are several, {', '.join(found)}" if found else "there is none in the usual places"
            raise UsageError(
                printable(f"The conda environment {name!r} is not clear on {self._location.host}: {said}."),
                hint='Give its directory: conda = "/…/envs/NAME". `conda env list` shows it.',
            )
        return found[0]

    async def _check_modules(self, environment: Environment, context: Context) -> None:
        """Load modules once on the login node: the node would report an error only when the job starts."""
        text, given = environment.activation(), environment.variables  # MODULEPATH may be one of the variables
        tried = (text, *sorted(given.items()))
        if self._clock() - self._checked_modules.get(tried, float("-inf")) < _MODULE_CACHE_AGE_S:
            return
        context = replace(context, env={**(context.env or {}), **given})
        done = await self._transport.run(["bash", "-c", text], context=context)
        if done.exit_code:
            said = printable(decode_output(done.stderr)).strip()
            raise UsageError(
                f"The modules of the environment cannot be loaded, so nothing was submitted: {said}",
                hint="List the available modules with `module avail` on the cluster.",
            )
        self._checked_modules[tried] = self._clock()

    def _absolute(self, path: str, context: Context) -> str:
        if path == "~" or path.startswith("~/"):
            path = self._location.home + path[1:]
        return posixpath.normpath(posixpath.join(context.cwd or self._location.home, path))


def _unknown(requested: str, names: Sequence[str]) -> UsageError:
    """Return the error for a name that no environment has."""
    if requested == AUTOMATIC_ENVIRONMENT:
        return UsageError(
            "env=auto works in the cells of a notebook and in `%slurm launch`, which know the imports of the notebook.",
            hint="Make an environment with `%slurm env create NAME from=notebook`, and use env=NAME.",
            scope="unknown",
        )
    near = get_close_matches(requested, names, n=1)
    there = f"Named environments: {', '.join(sorted(names))}" if names else "No environment has a name yet"
    return UsageError(
        f"There is no environment {printable(requested)!r}." + (f" Did you mean {near[0]}?" if near else ""),
        hint=f"{there}. You can also give the directory of a venv or conda environment (env=~/venvs/torch) or a "
        f"container image (env=docker://NAME:TAG, or its path). See {page_url('how-to/choose-an-environment')}",
        scope="unknown",
    )


def _modules(requested: str) -> Environment:
    """Return the environment of the modules that ``module:A,B`` names."""
    names = [name for name in requested[len(MODULE_PREFIX) :].split(",") if name]
    if not names or any(name.startswith("-") or not name.isprintable() or " " in name for name in names):
        raise UsageError(
            printable(f"`env={requested}` does not name modules."),
            hint=f"For example env={MODULE_PREFIX}gcc/12,python/3.11.",
        )
    return Environment.described(requested, {"modules": names})


def _is_job_variable(name: str) -> bool:
    """Return whether a variable of conda is for the job, not for the place and manner of its submission."""
    return _NAME.fullmatch(name) is not None and name != "PATH" and not name.startswith(("SBATCH_", "SLURM_"))


def _job_variables(on_result: object) -> dict[str, str]:
    """Return the entries that are valid variables for the job."""
    pairs = on_result.items() if isinstance(on_result, dict) else ()
    return {
        name: value for name, value in pairs if _is_job_variable(name) and isinstance(value, str) and "\0" not in value
    }


def is_failure(exit_code: int | None, message: str) -> bool:
    """Return whether the environment failed, not sbatch in it."""
    return exit_code == FAILED_EXIT and "the environment " in message
