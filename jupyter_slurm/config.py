"""Settings, as traitlets: from ``jupyter_slurm_config.py`` or ``.json`` on Jupyter's path, or from a front end."""

from __future__ import annotations

import math
import os
import socket
import sys
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from traitlets import Bool, Bunch, Dict, Enum, Float, Integer, List, TraitError, Unicode, default, validate
from traitlets.config import Config, Configurable
from traitlets.config.loader import ConfigFileNotFound, JSONFileConfigLoader, PyFileConfigLoader

from jupyter_slurm.errors import ConfigError

if TYPE_CHECKING:
    from platformdirs import PlatformDirs

__all__ = ["JupyterSlurm", "SettingValue", "Settings", "describe_settings", "load_settings"]


class Settings(Configurable):
    """Settings of a user. Times are in seconds unless the name says otherwise."""

    job_root = Unicode(
        help="Directory of the job directories on this computer's Slurm. The compute nodes must see it, too."
    ).tag(config=True)
    runtime_dir = Unicode(
        help="Directory of the agent's socket, on a local disk. If empty, jupyter_slurm chooses a private directory."
    ).tag(config=True)
    state_dir = Unicode(
        help="Directory on a local disk for the agent's index and log, its staging key, its list of tunnels, and the "
        "pages that open sessions."
    ).tag(config=True)
    agent_host = Enum(
        ["auto", "daemon", "server", "inprocess"],
        "auto",
        help="Process in which the agent runs: its own (daemon), the Jupyter server (server), or the kernel or command "
        "that needs it (inprocess).",
    ).tag(config=True)
    agent_socket = Enum(
        ["auto", "unix", "tcp"],
        "auto",
        help="Connection to the agent: a Unix socket (unix), or a port of 127.0.0.1 with a secret (tcp).",
    ).tag(config=True)
    agent_idle_exit = Float(1800.0, help="Stop an agent that holds nothing after this time without a request.").tag(
        config=True
    )
    poll_shortest = Float(
        10.0,
        min=10.0,
        help="Shortest time between two regular queries of the queue. A new job earns earlier ones. If this is longer "
        "than 10 s, it is also the average of all.",
    ).tag(config=True)
    poll_longest = Float(
        300.0, min=10.0, help="Longest time between two queries of the queue, if nothing changes in it."
    ).tag(config=True)
    command_timeout = Float(60.0, min=1.0, help="Time limit of a Slurm command.").tag(config=True)
    submit_timeout = Float(
        30.0, min=1.0, help="Time limit of sbatch. After it, the agent looks for the job in the queue."
    ).tag(config=True)
    retention_days = Float(
        30.0, min=0.0, help="Remove the directories of finished jobs after this many days. 0 keeps them."
    ).tag(config=True)
    history_days = Float(
        7.0,
        min=0.0,
        max=90.0,
        help="List finished jobs of so many days, also those of a terminal. They are read from accounting, at most "
        "once in five minutes. 0 lists only those that the controller remembers, and your submissions from Jupyter.",
    ).tag(config=True)
    cluster = Unicode(
        help="Cluster to use by default, by the name of its site profile. If empty, the Slurm of this computer is used."
    ).tag(config=True)
    sites = List(
        Unicode(),
        help="Directories of site profiles (NAME.toml). The first one with a profile of that name is used. By default "
        "your own, then `jupyter_slurm/sites` in each of Jupyter's configuration directories (`jupyter --paths`).",
    ).tag(config=True)
    on_interrupt = Enum(
        ["ask", "cancel", "keep"], "ask", help="Action for the job when a user interrupts a cell that waits for it."
    ).tag(config=True)
    output_limit = Integer(
        262_144,
        min=1024,
        help="Characters of each output that the notebook shows: of a job the last ones, of a cell with %%remote the "
        "first ones, of `%slurm sh` the first ones and the last lines. The file in the job directory is complete.",
    ).tag(config=True)
    display_limit = Integer(
        33_554_432,
        min=1024,
        help="Bytes of a job's figures and tables that the notebook shows. The job directory keeps up to 64 MB.",
    ).tag(config=True)
    values_limit = Integer(
        268_435_456,
        min=0,
        help="Largest size in bytes of the variables sent with a cell (in=), and of each variable that is copied back.",
    ).tag(config=True)
    environments = Dict(
        help="Environments of jobs on this computer's Slurm by name (env=NAME), with the keys of [env] of a profile."
    ).tag(config=True)
    container = Dict(
        help="Containers of jobs on this computer's Slurm, with the keys of [container] of a profile."
    ).tag(config=True)
    advice = Dict(
        help="Advice about jobs on this computer's Slurm, with the keys of [advice] of a profile: cpus_per_gpu, "
        "cuda, memory."
    ).tag(config=True)
    cost = Dict(
        help="Prices on this computer's Slurm, with the keys of [cost] of a profile: unit, gpu_hour, cpu_hour."
    ).tag(config=True)
    commands = Dict(
        help="Limits of commands with `%slurm sh` on this computer, with the keys of [commands] of a profile: allowed, "
        "time_limit, cpu_limit."
    ).tag(config=True)
    launch = Dict(
        help="Initial values of the launch form on this computer's Slurm, with the keys of [launch] of a profile."
    ).tag(config=True)
    storage = Dict(
        help="Storage and copies of job files on this computer's Slurm, with the keys of [storage] of a profile."
    ).tag(config=True)
    allocation_lease = Float(
        1800.0,
        min=60.0,
        help="Release an allocation of %salloc after this time without a step or a kernel that uses it.",
    ).tag(config=True)
    kernel_lease = Float(
        3600.0,
        min=60.0,
        help="Stop a remote kernel after this time without its notebook, and its allocation without a kernel.",
    ).tag(config=True)
    session_idle = Float(86_400.0, min=60.0, help="Stop a session after this time without use.").tag(config=True)
    isolate_sessions = Bool(
        True,
        help="Show the pages of sessions at the Jupyter server's address in a sandbox: they cannot act as you on that "
        "server. Turn it off only if a login in front of the server needs cookies, and you trust the nodes.",
    ).tag(config=True)
    node_ports = List(
        Integer(min=1024, max=65_535),
        maxlen=2,
        help="First and last port of nodes of this computer's Slurm on which sessions may be reached, if its nodes "
        "accept neither ssh nor a step. If empty, none.",
    ).tag(config=True)
    trust = Enum(
        ["ask", "always", "never"],
        "ask",
        help="Whether values and displays of clusters over SSH may run code on this computer (pickles, scripts): ask "
        "once for each cluster, always, or never. `trust` in a site profile replaces it for its cluster.",
    ).tag(config=True)
    live_output = Bool(True, help="Show a job's output below its cell while the job runs.").tag(config=True)

    @validate("node_ports")
    def _check_node_ports(self, proposal: Bunch) -> list[int]:
        ports: list[int] = proposal["value"]
        if ports and (len(ports) != 2 or ports[0] > ports[1]):
            raise TraitError(f"{ports} is not a first and a last port")
        return ports

    @default("job_root")
    def _default_job_root(self) -> str:
        return str(Path(_user_folders().user_data_dir, "jobs"))

    @default("sites")
    def _default_sites(self) -> list[str]:
        from jupyter_core.paths import jupyter_config_path  # only when needed: it reads the disk

        own = _user_folders().user_config_dir
        return [str(Path(own, "sites")), *(str(Path(one, "jupyter_slurm", "sites")) for one in jupyter_config_path())]

    @default("state_dir")
    def _default_state_dir(self) -> str:
        return _user_folders().user_state_dir

    def machine_path(self, stem: str, ending: str = "") -> str:
        """Return a path in ``state_dir`` for this machine alone: login nodes share a home, but not ports."""
        return os.path.join(os.path.abspath(self.state_dir), f"{stem}-{socket.gethostname()}{ending}")


def _user_folders() -> PlatformDirs:
    from platformdirs import PlatformDirs  # an agent is told all folders, and starts without this module

    return PlatformDirs("jupyter_slurm")


class JupyterSlurm(Settings):
    """Section of configuration files and command lines with the settings; ``Settings`` is its former name."""


@dataclass(frozen=True)
class SettingValue:
    """A setting, for a list of all settings.

    Attributes
    ----------
    name, help : str
        Name and description.
    kind : str
        Allowed values.
    default, value : object
        Default and current value.
    source : str or None
        File of the current value; None: the default.
    """

    name: str
    help: str
    kind: str
    default: object
    value: object
    source: str | None


def load_settings(config: Config | None = None) -> JupyterSlurm:
    """Read the settings.

    Parameters
    ----------
    config : traitlets Config, optional
        Configuration that a front end has already read; it overrides the files.

    Raises
    ------
    ConfigError
        A configuration file cannot be read, or a value in it is not allowed.
    """
    merged = Config()
    for _, found in _read_files():
        merged.merge(found)
    if config is not None:
        merged.merge(_checked(config, "Jupyter's configuration or command line"))
    return JupyterSlurm(config=merged)


def describe_settings() -> list[SettingValue]:
    """Return all settings with their default, current value and its file, sorted by name.

    Raises
    ------
    ConfigError
        A configuration file cannot be read, or a value in it is not allowed.
    """
    sources: dict[str, str] = {}
    merged = Config()
    for path, found in _read_files():
        merged.merge(found)
        sources.update(dict.fromkeys(found.get(_SECTION, {}), path))
    values, defaults = JupyterSlurm(config=merged), JupyterSlurm()
    return [
        SettingValue(
            name, trait.help, _allowed(trait), getattr(defaults, name), getattr(values, name), sources.get(name)
        )
        for name, trait in sorted(JupyterSlurm.class_traits(config=True).items())
    ]


_SECTION = JupyterSlurm.__name__
_SECTIONS = (Settings.__name__, _SECTION)  # the former name first: the present one overrides it within a file


def _read_files() -> Iterator[tuple[str, Config]]:
    """Yield the configuration files that exist, each with its settings; later ones override earlier ones."""
    from jupyter_core.paths import jupyter_config_path  # only when needed: it reads the disk

    for folder in reversed(jupyter_config_path()):
        for loader in (JSONFileConfigLoader, PyFileConfigLoader):
            name = "jupyter_slurm_config" + (".json" if loader is JSONFileConfigLoader else ".py")
            path = os.path.join(folder, name)
            if not os.path.isfile(path):
                continue
            try:
                found = loader(name, path=folder).load_config()
            except ConfigFileNotFound:
                continue
            except Exception as error:
                raise ConfigError(
                    f"{path} cannot be read: {error}", hint="Correct the file or move it away."
                ) from error
            yield path, _checked(found, path)


_warned: set[tuple[str, str]] = set()


def _checked(config: Config, source: str) -> Config:
    """Return the settings of one source; refuse an invalid value, and warn once about an unknown name."""
    checked, known = Config(), Settings.class_traits(config=True)
    for section in _SECTIONS:
        given = config.get(section, {})
        if not isinstance(given, dict):
            raise ConfigError(
                f"{source}: c.{section} = {given!r} is not allowed.", hint=f"Set c.{_SECTION}.NAME for each setting."
            )
        for name, value in given.items():
            if name not in known:
                _warn_about_unknown(section, name, known, source)
                continue
            one = Config({_SECTION: {name: value}})
            try:
                JupyterSlurm(config=one)
            except TraitError:
                raise ConfigError(
                    f"{source}: c.{section}.{name} = {value!r} is not allowed.",
                    hint=f"Allowed: {_allowed(known[name])}. {known[name].help}",
                ) from None
            checked.merge(one)
    return checked


def _allowed(trait: Any) -> str:
    least = getattr(trait, "min", None)
    return str(trait.info()) + ("" if least in (None, -math.inf) else f", at least {least:g}")


def _warn_about_unknown(section: str, name: str, settings: Collection[str], source: str) -> None:
    if (source, name) not in _warned:
        _warned.add((source, name))
        from difflib import get_close_matches

        near = get_close_matches(name, settings, n=1)
        meant = f"Did you mean c.{_SECTION}.{near[0]}?" if near else "`jupyter slurm config` lists the settings."
        sys.stderr.write(f"Warning: {source}: there is no setting c.{section}.{name}. {meant}\n")
