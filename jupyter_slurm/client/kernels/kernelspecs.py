"""Kernelspecs of kernels on nodes: what the launcher of a Jupyter here offers, and what it then asks of Slurm."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import sys
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from jupyter_slurm.client.clusters.cluster import Cluster, chosen, current, registered
from jupyter_slurm.client.clusters.option_tables import option_table
from jupyter_slurm.client.kernels.kernel import WORDS, check
from jupyter_slurm.client.render.table import Table
from jupyter_slurm.client.render.terminal import printable
from jupyter_slurm.client.sessions.launch import environment_named, named_in
from jupyter_slurm.domain.magic_line.parser import MagicLine, parse_cell_line
from jupyter_slurm.domain.options.option_parser import OptionTable
from jupyter_slurm.domain.options.request import Request
from jupyter_slurm.errors import ConfigError, JobNotFound, NotConnected, SlurmError, UsageError

if TYPE_CHECKING:
    from jupyter_slurm.client.jupyter_types import Kernelspec

__all__ = ["PROVISIONER", "KernelSpec", "add", "kernelspecs", "listed", "remove"]

PROVISIONER = "jupyter-slurm"
"""What a kernel of ours is started by: the entry point of ``jupyter_client.kernel_provisioners``."""

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,127}")
_LONGEST = 100  # characters of a name that is shown
_LARGEST = 1 << 20  # bytes of a kernel.json
_LANGUAGES = {"ir": "R", "julia": "Julia", "python": "Python"}
_MOST = 100  # of the same name


@dataclass(frozen=True)
class KernelSpec:
    """A kernel on nodes that can be chosen here.

    Attributes
    ----------
    name : str
        What Jupyter calls it.
    display_name : str
        What it shows.
    words : tuple of str
        The cluster, options of sbatch and words of ours.
    folder : str
        Where it is.
    """

    name: str
    display_name: str
    words: tuple[str, ...]
    folder: str

    @property
    def cluster(self) -> str:
        """The cluster; empty: that of the Slurm commands of this machine."""
        return named_in(shlex.join(self.words))[0] or ""


def add(words: Sequence[str], display_name: str = "") -> KernelSpec:
    """Have Jupyter offer a kernel on nodes; nobody has to be logged in.

    Parameters
    ----------
    words : sequence of str
        The name of a cluster, if it is not the one of this process; options of sbatch; our words.
    display_name : str
        How it is shown; by default ``name=``, else it is made of what is asked for.

    Raises
    ------
    UsageError, ConfigError
        There can be none such.
    """
    named, line = named_in(shlex.join(words))
    cluster, word = _meant(named)
    parsed = parse_cell_line(line, _table(cluster), WORDS)
    check(parsed)
    shown = " ".join((display_name or parsed.words.get("name") or "").split())
    asked = ([word] if word else []) + shlex.split(line)
    made = KernelSpec("", shown or _described(cluster, word, parsed), tuple(asked), "")
    made = _placed(made, is_own=bool(shown))
    _write(made, parsed)
    return made


def _meant(named: str | None) -> tuple[Cluster, str]:
    """Return the cluster that is meant, and by which word it is found again."""
    own = chosen()
    if named in (None, own):
        return current(log_in=False), "" if own == "local" else own
    try:
        return registered(str(named)), str(named)
    except ConfigError:
        if own == "local" and shutil.which("squeue"):
            here = current()
            if named in (here.name, here.client.get(here.path())["name"]):
                return here, ""
        raise


def _table(cluster: Cluster) -> OptionTable:
    """Return the options of sbatch there, or those of all versions where nobody is logged in."""
    try:
        return option_table(cluster, "sbatch")
    except NotConnected:
        return OptionTable.for_command("sbatch")


def _described(cluster: Cluster, word: str, parsed: MagicLine) -> str:
    """Return how a kernel is shown: ``Python on arandu, 1 GPU``."""
    words, kernel = parsed.words, (parsed.words.get("kernel") or "python3").lower()
    known = next((language for stem, language in _LANGUAGES.items() if kernel.startswith(stem)), kernel)
    if env := environment_named(words.get("env"), words.get("image")):
        known += f" ({env.rstrip('/').rpartition('/')[2]})"
    place = word or cluster.client.get(cluster.path())["name"]
    if "on" in words:
        return f"{known} on {place}, in {words['on']}"[:_LONGEST]
    return f"{known} on {place}, {_resources(parsed)}"[:_LONGEST].rstrip(", ")


def _resources(parsed: MagicLine) -> str:
    """Return in words what is asked for: GPUs, else CPUs; and the partition, where neither was said."""
    chosen_options = {option.name: option.value for option in parsed.parsed.options}
    request = Request(chosen_options)
    nodes = request.nodes[0] if request.nodes else 1
    gpus = [(gres, gres.count) for _, gres in request.gpus]
    gpus += [] if gpus else [(gres, gres.count * nodes) for _, gres in request.gpus_per_node]
    if count := sum(number for _, number in gpus):
        types = [str(gres.type).upper() for gres, _ in gpus if gres.type]
        return f"{count} {' '.join([*types[:1], 'GPU'])}{'s' if count > 1 else ''}"
    if cpus := (request.cpus or request.cpus_per_node):
        return f"{cpus} CPU{'s' if cpus > 1 else ''}"
    return chosen_options.get("partition") or ""


def _placed(made: KernelSpec, *, is_own: bool) -> KernelSpec:
    """Return it with a name that is free, or its own from before; what a person has named is replaced."""
    plain = "".join(
        part for part in unicodedata.normalize("NFKD", made.display_name) if not unicodedata.combining(part)
    )
    stem = re.sub(r"[^a-z0-9._-]+", "-", plain.lower()).strip("-._")[:_LONGEST] or "kernel"
    for number in range(1, _MOST):
        name = stem if number == 1 else f"{stem}-{number}"
        shown = made.display_name if number == 1 else f"{made.display_name} ({number})"
        folder = _folder(name)
        there = _read(folder)
        if there is not None and (there.words == made.words or is_own):
            return KernelSpec(name, shown, made.words, str(folder))
        if not folder.exists():
            return KernelSpec(name, shown, made.words, str(folder))
    raise UsageError(f"There are too many kernels of the name {made.display_name!r}.", hint="name=… gives another one.")


def _write(made: KernelSpec, parsed: MagicLine) -> None:
    kernel = (parsed.words.get("kernel") or "python3").lower()
    language = next((known for known in _LANGUAGES if kernel.startswith(known)), kernel)
    spec: Kernelspec = {
        "argv": [sys.executable, "-m", "jupyter_slurm.kernels", "-f", "{connection_file}", *made.words],
        "display_name": made.display_name,
        "language": {"ir": "R"}.get(language, language),
        "interrupt_mode": "signal",
        "metadata": {"debugger": language == "python", "kernel_provisioner": {"provisioner_name": PROVISIONER}},
    }
    if not made.cluster and (conf := os.environ.get("SLURM_CONF")):
        spec["env"] = {"SLURM_CONF": conf}  # which Slurm of this machine was meant
    folder = Path(made.folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        draft = folder / ".kernel.json.tmp"
        draft.write_text(json.dumps(spec, indent=1) + "\n", encoding="utf-8")
        draft.replace(folder / "kernel.json")
    except OSError as error:
        raise ConfigError(
            f"{folder} cannot be written: {error.strerror}.", hint="Jupyter looks there for your kernels."
        ) from error


def listed() -> list[KernelSpec]:
    """Return the kernels on nodes that Jupyter offers here."""
    from jupyter_core.paths import jupyter_path

    found: dict[str, KernelSpec] = {}
    for place in jupyter_path("kernels"):
        with contextlib.suppress(OSError):
            for folder in sorted(Path(place).iterdir()):
                if folder.name not in found and (spec := _read(folder)) is not None:
                    found[folder.name] = spec
    return list(found.values())


def kernelspecs() -> Table:
    """Return the kernels on nodes that Jupyter offers here, as a table."""
    rows = [[one.name, one.display_name, shlex.join(one.words)] for one in listed()]
    return Table(["NAME", "SHOWN AS", "ASKS FOR"], [[printable(cell) for cell in row] for row in rows])


def remove(name: str) -> KernelSpec:
    """Have Jupyter offer it no longer; kernels that run go on.

    Parameters
    ----------
    name : str
        What Jupyter calls it, or what it shows.

    Raises
    ------
    JobNotFound
        There is none of ours of that name.
    """
    known = listed()
    found = next((one for one in known if name in (one.name, one.display_name)), None)
    if found is None:
        names = ", ".join(one.name for one in known)
        raise JobNotFound(
            f"There is no kernel on nodes of the name {name!r}.",
            hint=f"There are: {names}." if names else "`jupyter slurm kernel add` adds one.",
        )
    try:
        shutil.rmtree(found.folder)
    except OSError as error:
        raise SlurmError(f"{found.folder} cannot be removed: {error.strerror}.") from error
    return found


def _folder(name: str) -> Path:
    from jupyter_core.paths import jupyter_data_dir  # it looks at the disk

    assert _NAME.fullmatch(name)
    return Path(jupyter_data_dir(), "kernels", name)


def _read(folder: Path) -> KernelSpec | None:
    """Return the kernel of ours that is described there; None: there is none."""
    try:
        with open(folder / "kernel.json", encoding="utf-8") as file:
            told = json.loads(file.read(_LARGEST))
        provisioner = told["metadata"]["kernel_provisioner"]["provisioner_name"]
        argv, shown = told["argv"], told["display_name"]
        words = argv[argv.index("{connection_file}") + 1 :]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    if provisioner != PROVISIONER or not _NAME.fullmatch(folder.name) or folder.is_symlink():
        return None
    return KernelSpec(folder.name, str(shown), tuple(map(str, words)), str(folder))
