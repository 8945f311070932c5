"""Environments of jobs: their named descriptions, and the shell text that activates them.

The text does the same as ``activate`` of venv and conda and ``module load``. It is bash, because sites and packages
write their files for bash (activate.d of conda, the init files of Modules and Lmod).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Final

from jupyter_slurm.domain.scripts.script import quote_argv

if TYPE_CHECKING:
    from jupyter_slurm.domain.profile_tables import TomlTable

__all__ = [
    "AUTOMATIC_ENVIRONMENT",
    "FAILED_EXIT",
    "MODULE_PREFIX",
    "NO_ENVIRONMENT",
    "Environment",
    "inherits_environment",
    "module_command",
]

#: Beginning of an ``env=`` that names modules: ``module:gcc/12,python/3.11``.
MODULE_PREFIX: Final = "module:"

#: An ``env=`` of a step that does without the environment of its allocation.
NO_ENVIRONMENT: Final = "none"

#: An ``env=`` for the packages of this notebook, in front ends that know the notebook.
AUTOMATIC_ENVIRONMENT: Final = "auto"

#: The exit code of the text if the environment cannot be activated.
FAILED_EXIT: Final = 125

_NOT_RECORDED: Final = ("cuda", "min_driver")  # the text of the job holds the check

_FAIL = """fail() {
    printf '%s\\n' "the environment $environment cannot be had on $(uname -n): $1" >&2
    exit 125
}"""

# Prints a warning on a node with a driver that is too old. Its first line has the version of the driver.
_DRIVER_CHECK = """js_driver=/proc/driver/nvidia/version
js_driver=$(sed -n '1s/^.* \\([0-9]\\{{3\\}}\\)\\.[0-9][0-9.]* .*/\\1/p' "$js_driver" 2>/dev/null || :)
if [ "${{js_driver:-9999}}" -lt {} ]; then printf '%s\\n' {}"{}" >&2; fi
unset js_driver"""

# The usual directories of packages come last. The files of profile.d check which shell reads them.
_MODULE = """if ! command -v module >/dev/null 2>&1; then
    for js_init in "$MODULESHOME/init/{0}" "$LMOD_PKG/init/{0}" /etc/profile.d/modules.sh /etc/profile.d/lmod.sh \\
        /etc/profile.d/z00_lmod.sh /usr/share/modules/init/{0} /usr/share/lmod/lmod/init/{0}; do
        if [ -r "$js_init" ]; then . "$js_init"; break; fi
    done
    unset js_init
fi
"""


def module_command(shell: str) -> str:
    """Return shell text that defines the command ``module`` if the shell does not have it.

    Parameters
    ----------
    shell : str
        Which init file of Modules or Lmod to use: ``bash``, or ``sh`` for any POSIX shell.
    """
    return _MODULE.format(shell)


@dataclass(frozen=True)
class Environment:
    """An environment; paths are absolute on the host that uses it.

    Attributes
    ----------
    name : str
        The user's name for the environment.
    venv : str or None
        Directory of a Python virtual environment.
    conda : str or None
        Directory (prefix) of a conda environment, or its name until the prefix is known.
    modules : tuple of str
        Loaded by ``module load``, in this order, before anything else.
    variables : mapping
        Environment variables.
    work_dir : str or None
        Work directory of the job, unless --chdir is given.
    python : str or None
        Interpreter for Python cells.
    image : str or None
        Container image of the job: a name in a registry, or a path.
    runtime : str or None
        Container runtime; None: a suitable one present on the node.
    bind : tuple of str
        Directories of the node visible in the container: ``SRC[:DST[:ro]]``.
    gpu_variable : str or None
        Variable of the job that lists its GPUs; None: CUDA_VISIBLE_DEVICES.
    image_dir : str or None
        Directory on the nodes for fetched images; ``~/`` is the home on the node. None: the user's cache.
    gpus : str or None
        ``node``: Slurm counts no GPUs, and a job with whole nodes has all of theirs. None: the GPUs that Slurm
        allocates.
    sudo : bool or None
        Whether the nodes call Docker by way of sudo.
    cuda, min_driver : int
        Major versions of the CUDA that the packages are built for, and of its first driver; 0: none is known.
    """

    name: str
    venv: str | None = None
    conda: str | None = None
    modules: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    work_dir: str | None = None
    python: str | None = None
    image: str | None = None
    runtime: str | None = None
    bind: tuple[str, ...] = ()
    gpu_variable: str | None = None
    image_dir: str | None = None
    gpus: str | None = None
    sudo: bool | None = None
    cuda: int = 0
    min_driver: int = 0

    @classmethod
    def described(cls, name: str, text: TomlTable) -> Environment:
        """Return the environment described by a table of a profile."""
        lists = {field: tuple(text.get(field, ())) for field in ("modules", "bind")}
        return cls(name, **{**text, **lists})

    @property
    def is_activated(self) -> bool:
        """Return whether a shell is needed to activate the environment."""
        return bool(self.venv or self.conda or self.modules)

    def as_dict(self) -> dict[str, object]:
        """Return the recorded form of the environment."""
        told = {
            **asdict(self),
            "modules": list(self.modules),
            "variables": dict(self.variables),
            "bind": list(self.bind),
        }
        return {
            name: value for name, value in told.items() if name not in _NOT_RECORDED and value not in (None, [], {})
        }

    def activation(self) -> str:
        """Return the shell text. For a missing environment, the text prints so and ends with :data:`FAILED_EXIT`."""
        if not self.is_activated:
            return ""
        lines = [f"environment={quote_argv([self.name])}", _FAIL]  # quoted as a whole, the text would be a command
        if self.modules:
            lines.append(module_command("bash"))
            lines.append("command -v module >/dev/null 2>&1 || fail 'there is no command module'")
        for module in self.modules:
            said = quote_argv([f"module load {module} failed"])
            lines.append(f"{quote_argv(['module', 'load', module])} || fail {said}")
        if self.modules:  # ``module load`` succeeds even if a program of its own crashes
            lines.append("[ -n \"$LOADEDMODULES\" ] || fail 'module load has loaded nothing'")
        if self.venv:
            lines += self._venv(self.venv)
        if self.conda:
            lines += self._conda(self.conda)
        if self.min_driver:
            text = f"jupyter_slurm: the packages of {self.name} are built for CUDA {self.cuda}, which needs driver "
            more = f"{self.min_driver} or newer. The driver of $(uname -n) is $js_driver."
            lines.append(_DRIVER_CHECK.format(self.min_driver, quote_argv([text]), more))
        return "\n".join(lines) + "\n"

    @staticmethod
    def _venv(folder: str) -> list[str]:
        return [
            f"[ -d {quote_argv([folder + '/bin'])} ] || fail {quote_argv([f'there is no {folder}'])}",
            f'export {quote_argv([f"VIRTUAL_ENV={folder}"])} PATH={quote_argv([folder + "/bin"])}:"$PATH"',
            "unset PYTHONHOME",
        ]

    @staticmethod
    def _conda(prefix: str) -> list[str]:
        name = quote_argv([f"CONDA_DEFAULT_ENV={prefix.rstrip('/').rpartition('/')[2]}"])
        return [
            f"[ -d {quote_argv([prefix + '/conda-meta'])} ] || fail {quote_argv([f'there is no {prefix}'])}",
            f'export {quote_argv([f"CONDA_PREFIX={prefix}"])} {name} PATH={quote_argv([prefix + "/bin"])}:"$PATH"',
            "export CONDA_SHLVL=1",
            "unset PYTHONHOME VIRTUAL_ENV",
            f"for init in {quote_argv([prefix])}/etc/conda/activate.d/*.sh; do",
            '    if [ -r "$init" ]; then . "$init"; fi',
            "done",
        ]


def inherits_environment(export: str | None) -> bool:
    """Return whether a job gets its submission's environment under an --export of sbatch(1)."""
    return export is None or "ALL" in (word.strip().upper() for word in export.split(","))
