"""The environment of a job: what a person calls by a name, and the shell text that makes it.

The text does what ``activate`` of venv and conda and ``module load`` do. It is bash, since what sites and packages put
into such places is written for that (activate.d of conda, the init files of Modules and Lmod).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Final

from jupyter_slurm.domain.scripts.script import quote_argv

if TYPE_CHECKING:
    from jupyter_slurm.domain.profile_tables import TomlTable

__all__ = ["FAILED", "Environment", "keeps_environment", "module_command"]

#: The exit code of the text when the environment cannot be had.
FAILED: Final = 125

_FAIL = """fail() {
    printf '%s\\n' "the environment $environment cannot be had on $(uname -n): $1" >&2
    exit 125
}"""

# The usual places of packages last. The files of profile.d ask which shell reads them.
_MODULE = """if ! command -v module >/dev/null 2>&1; then
    for js_init in "$MODULESHOME/init/{0}" "$LMOD_PKG/init/{0}" /etc/profile.d/modules.sh /etc/profile.d/lmod.sh \\
        /etc/profile.d/z00_lmod.sh /usr/share/modules/init/{0} /usr/share/lmod/lmod/init/{0}; do
        if [ -r "$js_init" ]; then . "$js_init"; break; fi
    done
    unset js_init
fi
"""


def module_command(shell: str) -> str:
    """Return shell text that makes the command ``module`` known, where nothing has told this shell of it.

    Parameters
    ----------
    shell : str
        Which of the files that Modules and Lmod have for each kind of shell: ``bash``, or ``sh`` for any POSIX shell.
    """
    return _MODULE.format(shell)


@dataclass(frozen=True)
class Environment:
    """One environment; paths are absolute where it is used.

    Attributes
    ----------
    name : str
        What the person calls it.
    venv : str or None
        Folder of a virtual environment of Python.
    conda : str or None
        Folder (prefix) of a conda environment, or its name as long as nobody has looked.
    modules : tuple of str
        Loaded by ``module load``, in this order, before anything else.
    variables : mapping
        Environment variables.
    work_dir : str or None
        Where the job begins, unless --chdir says so.
    python : str or None
        What runs Python cells.
    image : str or None
        Of a container, in which the job runs: the name in a registry, or a path.
    runtime : str or None
        What runs the container; None: what fits and is on the node.
    bind : tuple of str
        Folders of the node that the container has: ``SRC[:DST[:ro]]``.
    gpu_variable : str or None
        Which variable of the job tells its GPUs; None: CUDA_VISIBLE_DEVICES.
    image_dir : str or None
        Folder of the nodes for images that were fetched; ``~/`` is the home there. None: in the person's cache.
    gpus : str or None
        ``node``: Slurm counts no GPUs there, and a job of whole nodes has theirs. None: those that Slurm gives.
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

    @classmethod
    def described(cls, name: str, told: TomlTable) -> Environment:
        """Return the environment that a table of a profile describes."""
        lists = {field: tuple(told.get(field, ())) for field in ("modules", "bind")}
        return cls(name, **{**told, **lists})

    @property
    def is_activated(self) -> bool:
        """Whether it takes a shell to make it."""
        return bool(self.venv or self.conda or self.modules)

    def as_dict(self) -> dict[str, object]:
        """Return what is recorded of it."""
        told = {
            **asdict(self),
            "modules": list(self.modules),
            "variables": dict(self.variables),
            "bind": list(self.bind),
        }
        return {name: value for name, value in told.items() if value not in (None, [], {})}

    def activation(self) -> str:
        """Return the shell text; where the environment is not there it says so, and ends with :data:`FAILED`."""
        if not self.is_activated:
            return ""
        lines = [f"environment={quote_argv([self.name])}", _FAIL]  # quoted as a whole, it would be a command
        if self.modules:
            lines.append(module_command("bash"))
            lines.append("command -v module >/dev/null 2>&1 || fail 'there is no command module'")
        for module in self.modules:
            said = quote_argv([f"module load {module} failed"])
            lines.append(f"{quote_argv(['module', 'load', module])} || fail {said}")
        if self.modules:  # Modules and Lmod keep a list of them; a program of theirs that crashes is no failure to them
            lines.append("[ -n \"$LOADEDMODULES\" ] || fail 'module load has loaded nothing'")
        if self.venv:
            lines += self._venv(self.venv)
        if self.conda:
            lines += self._conda(self.conda)
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


def keeps_environment(export: str | None) -> bool:
    """Tell whether a job gets the environment of its submission under an --export of sbatch(1)."""
    return export is None or "ALL" in (word.strip().upper() for word in export.split(","))
