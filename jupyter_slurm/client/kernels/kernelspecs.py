"""Kernelspecs of remote kernels: the entries in the launcher of a local Jupyter, and their requests to Slurm."""

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
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from jupyter_slurm.client.clusters.cluster import Cluster, chosen, current, is_local_id, local, registered
from jupyter_slurm.client.clusters.cluster_names import is_site_or_id
from jupyter_slurm.client.clusters.option_tables import option_table
from jupyter_slurm.client.kernels.kernel import KEYWORDS, check
from jupyter_slurm.client.render.table import Table
from jupyter_slurm.client.render.terminal import printable
from jupyter_slurm.client.sessions.launch import environment_named, named_in, own_cluster_name
from jupyter_slurm.domain.magic_line.parser import MagicLine, parse_cell_line
from jupyter_slurm.domain.options.option_parser import OptionTable
from jupyter_slurm.domain.options.request import Request
from jupyter_slurm.errors import ConfigError, JobNotFound, NotConnected, SlurmError, UsageError

if TYPE_CHECKING:
    from jupyter_slurm.client.jupyter_types import Kernelspec

__all__ = ["PROVISIONER", "KernelSpec", "add", "kernelspecs", "listed", "remove"]

PROVISIONER = "jupyter-slurm"
"""The provisioner of remote kernels: the entry point of ``jupyter_client.kernel_provisioners``."""

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,127}")
_MAX_DISPLAY_NAME_CHARACTERS = 100  # characters of a displayed name
_MAX_KERNELSPEC_BYTES = 1 << 20  # bytes of a kernel.json
_LANGUAGES = {"ir": "R", "julia": "Julia", "python": "Python"}
# A chip, as the icon of the cards that start a session: without a logo the launcher shows a letter.
_LOGO = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 24 24" width="64" height="64">
<path fill="#1976d2" fill-rule="evenodd" d="M5 5h14v14h-14z M8 8v8h8v-8z M10 10h4v4h-4z
M7 1h2v3h-2z M11 1h2v3h-2z M15 1h2v3h-2z M7 20h2v3h-2z M11 20h2v3h-2z M15 20h2v3h-2z
M1 7h3v2h-3z M1 11h3v2h-3z M1 15h3v2h-3z M20 7h3v2h-3z M20 11h3v2h-3z M20 15h3v2h-3z"/></svg>
"""
_MAX_NAME_SUFFIX = 100  # kernelspecs of the same name


@dataclass(frozen=True)
class KernelSpec:
    """A remote kernel that can be chosen on this machine.

    Attributes
    ----------
    name : str
        Name in Jupyter.
    display_name : str
        Displayed name.
    words : tuple of str
        The cluster, options of sbatch and keywords.
    folder : str
        Directory of the kernelspec.
    slurm_conf : str
        SLURM_CONF of its Slurm on this computer; empty: not set.
    """

    name: str
    display_name: str
    arguments: tuple[str, ...]
    folder: str
    slurm_conf: str = ""

    @property
    def cluster(self) -> str:
        """Return the cluster; empty: that of the Slurm commands of this machine."""
        return named_in(shlex.join(self.arguments))[0] or ""

    @property
    def address(self) -> tuple[str, str]:
        """Return what identifies its cluster: kernels of two clusters may have one name and ask for the same."""
        return self.cluster, self.slurm_conf


def add(arguments: Sequence[str], display_name: str = "", *, cluster_id: str | None = None) -> KernelSpec:
    """Add a remote kernel to Jupyter; no login is needed.

    Parameters
    ----------
    arguments : sequence of str
        The name of a cluster, if it is not that of this process; options of sbatch; keywords.
    display_name : str
        Displayed name; by default ``name=``, else a name made from the request.
    cluster_id : str, optional
        ID of the cluster in the API, which two clusters of one name do not share; the arguments name none then.

    Raises
    ------
    UsageError, ConfigError
        Such a kernel is not possible.
    """
    named, line = named_in(shlex.join(arguments))
    if named is not None and cluster_id is not None:
        raise UsageError(f"The cluster is given twice: {cluster_id} and {named}.", hint="Name the cluster once.")
    cluster, word, conf = _meant(named) if cluster_id is None else _identified(cluster_id)
    parsed = parse_cell_line(line, _table(cluster), KEYWORDS)
    check(parsed)
    shown = " ".join((display_name or parsed.keywords.get("name") or "").split())
    asked = ([word] if word else []) + shlex.split(line)
    made = KernelSpec("", shown or _described(cluster, word, parsed), tuple(asked), "", conf)
    placed = _placed(made, is_user_kernel=bool(shown))
    if not shown and placed.display_name != made.display_name:  # another request looks the same
        whole = _described(cluster, word, parsed, is_whole=True)
        if conf and any(one.arguments == made.arguments and one.slurm_conf != conf for one in listed()):
            whole = f"{whole} · {os.path.dirname(conf)}"[:_MAX_DISPLAY_NAME_CHARACTERS]
        made = replace(made, display_name=whole)
        placed = _placed(made, is_user_kernel=False)
    _write(placed, parsed)
    return placed


def _meant(named: str | None) -> tuple[Cluster, str, str]:
    """Return the intended cluster, the word by which it is found again, and its SLURM_CONF on this computer."""
    wanted = named or chosen()
    is_own = named is not None and not is_site_or_id(named) and own_cluster_name() == named
    if is_own or wanted == chosen() == "local":
        return current(log_in=False), "", os.environ.get("SLURM_CONF") or ""
    return _identified(wanted)


def _identified(cluster_id: str) -> tuple[Cluster, str, str]:
    """Return the cluster of an ID, the word by which it is found again, and its SLURM_CONF on this computer."""
    if not is_local_id(cluster_id):
        return registered(cluster_id), cluster_id, ""
    cluster = local(cluster_id)
    conf = str(cluster.client.get(cluster.path())["slurm_conf"] or "")
    if conf == (os.environ.get("SLURM_CONF") or ""):
        return cluster, "" if chosen() == "local" else "local", conf
    return cluster, cluster_id, conf


def _table(cluster: Cluster) -> OptionTable:
    """Return the options of sbatch on the cluster, or those of all versions without a login."""
    try:
        return option_table(cluster, "sbatch")
    except NotConnected:
        return OptionTable.for_command("sbatch")


def _described(cluster: Cluster, text: str, parsed: MagicLine, *, is_whole: bool = False) -> str:
    """Return the displayed name of a kernel, such as ``devwork · 1 GPU · 1 h``; ``is_whole``: with all that differs."""
    words, kernel = parsed.keywords, (parsed.keywords.get("kernel") or "python3").lower()
    known = next((language for stem, language in _LANGUAGES.items() if kernel.startswith(stem)), kernel)
    env = environment_named(words.get("env"), words.get("image"))
    if named := [one for one in (words.get("modules"), env and env.rstrip("/").rpartition("/")[2]) if one]:
        known += f" ({', '.join(named)})"
    options = {option.name: option.value for option in parsed.parsed.options}
    place = f"{text} {options.get('partition') or ''}".strip() or cluster.client.get(cluster.path())["name"]
    parts = ["" if known == "Python" else known, str(place)]
    parts += [f"in {words['on']}"] if "on" in words else _resources(Request(options), is_whole=is_whole)
    if is_whole:
        told = {"partition", "gpus", "time", "cpus-per-task", "mem"}
        parts += [f"{name} {value}" if value else name for name, value in options.items() if name not in told]
        parts += [
            f"{name} {value}"
            for name, value in words.items()
            if name not in {"env", "image", "kernel", "modules", "on"}
        ]
    return " · ".join(part for part in parts if part)[:_MAX_DISPLAY_NAME_CHARACTERS].rstrip(" ·")


def _resources(request: Request, *, is_whole: bool) -> list[str]:
    """Describe the requested resources: GPUs, else CPUs, and the time limit; ``is_whole``: CPUs and memory, too."""
    nodes = request.nodes[0] if request.nodes else 1
    gpus = [(gres, gres.count) for _, gres in request.gpus]
    gpus += [] if gpus else [(gres, gres.count * nodes) for _, gres in request.gpus_per_node]
    said = []
    if count := sum(number for _, number in gpus):
        types = [str(gres.type).upper() for gres, _ in gpus if gres.type]
        said.append(f"{count} {' '.join([*types[:1], 'GPU'])}{'s' if count > 1 else ''}")
    cpus = request.cpus or request.cpus_per_node
    if cpus and (is_whole or not count):
        said.append(f"{cpus} CPU{'s' if cpus > 1 else ''}")
    if is_whole and (memory := request.chosen.get("mem")):
        said.append(memory)
    return [*said, _period(request.time[1])] if request.time else said


def _period(seconds: float) -> str:
    """Return a time limit in the largest unit in which it is a whole number: ``4 h``, ``90 min``."""
    units = (("d", 86400), ("h", 3600), ("min", 60))
    return next((f"{seconds / unit:g} {name}" for name, unit in units if seconds % unit == 0), f"{seconds:g} s")


def _placed(kernelspec: KernelSpec, *, is_user_kernel: bool) -> KernelSpec:
    """Return the kernelspec with a free name, or its own earlier name; ``is_own``: replace one of the same name."""
    plain = "".join(
        part for part in unicodedata.normalize("NFKD", kernelspec.display_name) if not unicodedata.combining(part)
    )
    stem = re.sub(r"[^a-z0-9._-]+", "-", plain.lower()).strip("-._")[:_MAX_DISPLAY_NAME_CHARACTERS] or "kernel"
    for number in range(1, _MAX_NAME_SUFFIX):
        name = stem if number == 1 else f"{stem}-{number}"
        shown = kernelspec.display_name if number == 1 else f"{kernelspec.display_name} ({number})"
        folder = _folder(name)
        there = _read(folder)
        is_free = not folder.exists()
        if there is not None and there.address == kernelspec.address:
            is_free = is_user_kernel or there.arguments == kernelspec.arguments
        if is_free:
            return replace(kernelspec, name=name, display_name=shown, folder=str(folder))
    raise UsageError(
        f"Too many kernels have the name {kernelspec.display_name!r}.", hint="Choose another name with name=…."
    )


def _write(kernelspec: KernelSpec, parsed: MagicLine) -> None:
    kernel = (parsed.keywords.get("kernel") or "python3").lower()
    language = next((known for known in _LANGUAGES if kernel.startswith(known)), kernel)
    spec: Kernelspec = {
        "argv": [sys.executable, "-P", "-m", "jupyter_slurm.kernels", "-f", "{connection_file}", *kernelspec.arguments],
        "display_name": kernelspec.display_name,
        "language": {"ir": "R"}.get(language, language),
        "interrupt_mode": "signal",
        "metadata": {"debugger": language == "python", "kernel_provisioner": {"provisioner_name": PROVISIONER}},
    }
    if kernelspec.slurm_conf:
        spec["env"] = {"SLURM_CONF": kernelspec.slurm_conf}  # the Slurm of this machine that was meant
    folder = Path(kernelspec.folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        draft = folder / ".kernel.json.tmp"
        draft.write_text(json.dumps(spec, indent=1) + "\n", encoding="utf-8")
        (folder / "logo-svg.svg").write_text(_LOGO, encoding="utf-8")
        draft.replace(folder / "kernel.json")
    except OSError as error:
        raise ConfigError(
            f"The kernelspec folder {folder} cannot be written: {error.strerror}.",
            hint="Check the permissions of the folder, where Jupyter searches your kernels.",
        ) from error


def listed() -> list[KernelSpec]:
    """Return the remote kernels that Jupyter offers on this machine."""
    from jupyter_core.paths import jupyter_path

    found: dict[str, KernelSpec] = {}
    for place in jupyter_path("kernels"):
        with contextlib.suppress(OSError):
            for folder in sorted(Path(place).iterdir()):
                if folder.name not in found and (spec := _read(folder)) is not None:
                    found[folder.name] = spec
    return list(found.values())


def kernelspecs() -> Table:
    """Return the remote kernels that Jupyter offers on this machine, as a table."""
    found = listed()
    is_several = len({one.slurm_conf for one in found if not one.cluster}) > 1  # Slurms of this computer
    rows = [
        [
            one.name,
            one.display_name,
            shlex.join([*([f"SLURM_CONF={one.slurm_conf}"] if is_several and one.slurm_conf else []), *one.arguments]),
        ]
        for one in found
    ]
    return Table(["NAME", "SHOWN AS", "ASKS FOR"], [[printable(cell) for cell in row] for row in rows])


def remove(name: str) -> KernelSpec:
    """Remove a remote kernel from Jupyter; running kernels continue.

    Parameters
    ----------
    name : str
        Name in Jupyter, or displayed name.

    Raises
    ------
    JobNotFound
        No remote kernel has that name.
    """
    known = listed()
    found = next((one for one in known if name in (one.name, one.display_name)), None)
    if found is None:
        names = ", ".join(one.name for one in known)
        raise JobNotFound(
            f"There is no remote kernel with the name {name!r}.",
            hint=f"Remote kernels: {names}." if names else "Add one with `jupyter slurm kernel add`.",
        )
    try:
        shutil.rmtree(found.folder)
    except OSError as error:
        raise SlurmError(
            f"{found.folder} cannot be removed: {error.strerror}.", hint="Check the permissions of the folder."
        ) from error
    return found


def _folder(name: str) -> Path:
    from jupyter_core.paths import jupyter_data_dir  # reads the disk

    assert _NAME.fullmatch(name)
    return Path(jupyter_data_dir(), "kernels", name)


def _read(folder: Path) -> KernelSpec | None:
    """Return the remote kernel of a directory; None if its kernelspec is another kind."""
    try:
        with open(folder / "kernel.json", encoding="utf-8") as file:
            told = json.loads(file.read(_MAX_KERNELSPEC_BYTES))
        provisioner = told["metadata"]["kernel_provisioner"]["provisioner_name"]
        argv, shown = told["argv"], told["display_name"]
        words = argv[argv.index("{connection_file}") + 1 :]
        conf = str(told.get("env", {}).get("SLURM_CONF") or "")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    if provisioner != PROVISIONER or not _NAME.fullmatch(folder.name) or folder.is_symlink():
        return None
    return KernelSpec(folder.name, str(shown), tuple(map(str, words)), str(folder), conf)
