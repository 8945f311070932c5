"""Settings, as traitlets: from ``jupyter_slurm_config.py`` or ``.json`` on Jupyter's path, or from a front end."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Collection
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import platformdirs
from traitlets import Bool, Bunch, Dict, Enum, Float, Integer, List, TraitError, Unicode, default, validate
from traitlets.config import Config, Configurable
from traitlets.config.loader import ConfigFileNotFound, JSONFileConfigLoader, PyFileConfigLoader

from jupyter_slurm.errors import ConfigError

__all__ = ["Settings", "load_settings"]


class Settings(Configurable):
    """Settings of a user. Times are in seconds unless the name says otherwise."""

    job_root = Unicode(help="Folder of the job directories; the compute nodes must see it too.").tag(config=True)
    runtime_dir = Unicode(
        help="Folder of the agent's socket; never on a network file system. Empty: found by itself."
    ).tag(config=True)
    state_dir = Unicode(
        help="Folder of the agent's disposable index, of its log, and of the key by which it knows again what it has "
        "staged, on a local disk."
    ).tag(config=True)
    agent_host = Enum(
        ["auto", "daemon", "server", "inprocess"],
        "auto",
        help="Where the agent lives: a process of its own, the Jupyter server, or the kernel or command that needs it.",
    ).tag(config=True)
    agent_socket = Enum(
        ["auto", "unix", "tcp"],
        "auto",
        help="How the agent is reached: a Unix socket, or a port of 127.0.0.1 with a secret where there are none.",
    ).tag(config=True)
    agent_idle_exit = Float(1800.0, help="An agent that holds nothing leaves after this time without a request.").tag(
        config=True
    )
    poll_shortest = Float(10.0, min=10.0, help="The shortest time between two looks at the queue.").tag(config=True)
    poll_longest = Float(
        300.0, min=10.0, help="The longest time between two looks at a queue in which nothing changes."
    ).tag(config=True)
    command_timeout = Float(60.0, min=1.0, help="How long a Slurm command may take.").tag(config=True)
    submit_timeout = Float(30.0, min=1.0, help="How long sbatch may take until its answer is looked up instead.").tag(
        config=True
    )
    retention_days = Float(
        30.0, min=0.0, help="Directories of finished jobs are removed after so many days; 0 keeps all."
    ).tag(config=True)
    cluster = Unicode(
        help="The cluster to use, by the name of its site profile; empty: the one that the Slurm commands here reach."
    ).tag(config=True)
    sites = List(Unicode(), help="Folders of site profiles (NAME.toml); the first one that has a profile wins.").tag(
        config=True
    )
    on_interrupt = Enum(["ask", "cancel", "keep"], "ask", help="What an interrupted wait does with the job.").tag(
        config=True
    )
    output_limit = Integer(
        262_144, min=1024, help="Bytes of a job's output that are kept in the notebook (its end); the file has all."
    ).tag(config=True)
    display_limit = Integer(
        33_554_432,
        min=1024,
        help="Bytes of a job's figures and tables that are shown in the notebook; its file has all.",
    ).tag(config=True)
    values_limit = Integer(
        268_435_456,
        min=0,
        help="Bytes of variables that may travel with a cell (in=), and of each one that comes back.",
    ).tag(config=True)
    environments = Dict(
        help="Environments of jobs on this machine's Slurm by name (env=NAME), as [env.NAME] of a profile has them."
    ).tag(config=True)
    container = Dict(
        help="What holds for containers of jobs on this machine's Slurm, as [container] of a profile: runtime, bind …"
    ).tag(config=True)
    advice = Dict(
        help="What is advised about jobs on this machine's Slurm, as [advice] of a profile: cpus_per_gpu, memory."
    ).tag(config=True)
    cost = Dict(
        help="What an hour costs on this machine's Slurm, as [cost] of a profile: unit, gpu_hour, cpu_hour."
    ).tag(config=True)
    launch = Dict(
        help="What stands first in the form that launches a session on this machine's Slurm, as [launch] of a profile."
    ).tag(config=True)
    storage = Dict(
        help="Where files of jobs go on this machine's Slurm (stage=), as [storage] of a profile: shared, local …"
    ).tag(config=True)
    allocation_lease = Float(
        1800.0,
        min=60.0,
        help="How long an allocation of %salloc stays open without a step in it or a kernel that uses it.",
    ).tag(config=True)
    kernel_lease = Float(
        3600.0,
        min=60.0,
        help="How long a kernel on a node goes on without its notebook, and its allocation without a kernel.",
    ).tag(config=True)
    session_idle = Float(
        86_400.0, min=60.0, help="A session (a Jupyter in a job) ends when nobody has used it for so long."
    ).tag(config=True)
    node_ports = List(
        Integer(min=1024, max=65_535),
        maxlen=2,
        help="First and last port of nodes of this machine's Slurm on which sessions may be reached from here, where "
        "its nodes take neither ssh nor a step; empty: none.",
    ).tag(config=True)
    live_output = Bool(True, help="Show a job's output under its cell while it runs.").tag(config=True)

    @validate("node_ports")
    def _check_node_ports(self, proposal: Bunch) -> list[int]:
        ports: list[int] = proposal["value"]
        if ports and (len(ports) != 2 or ports[0] > ports[1]):
            raise TraitError(f"{ports} is no first and last port")
        return ports

    @default("job_root")
    def _default_job_root(self) -> str:
        return str(Path(platformdirs.user_data_dir("jupyter_slurm"), "jobs"))

    @default("sites")
    def _default_sites(self) -> list[str]:
        return [str(Path(platformdirs.user_config_dir("jupyter_slurm"), "sites"))]

    @default("state_dir")
    def _default_state_dir(self) -> str:
        return platformdirs.user_state_dir("jupyter_slurm")

    def machine_path(self, stem: str, ending: str = "") -> str:
        """Return a path in ``state_dir`` for this machine alone: login nodes share a home, but not ports."""
        return os.path.join(os.path.abspath(self.state_dir), f"{stem}-{socket.gethostname()}{ending}")


def load_settings(config: Config | None = None) -> Settings:
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
    from jupyter_core.paths import jupyter_config_path  # only when needed: it reads the disk

    merged = Config()
    for folder in reversed(jupyter_config_path()):
        for loader in (JSONFileConfigLoader, PyFileConfigLoader):
            name = "jupyter_slurm_config" + (".json" if loader is JSONFileConfigLoader else ".py")
            if not os.path.isfile(os.path.join(folder, name)):
                continue
            try:
                found = loader(name, path=folder).load_config()
            except ConfigFileNotFound:
                continue
            except Exception as error:
                raise ConfigError(
                    f"{os.path.join(folder, name)} cannot be read: {error}", hint="Correct the file or move it away."
                ) from error
            merged.merge(_checked(found, os.path.join(folder, name)))
    if config is not None:
        merged.merge(_checked(config, "Jupyter's configuration or command line"))
    return Settings(config=merged)


_told: set[tuple[str, str]] = set()


def _checked(config: Config, source: str) -> Config:
    """Return the settings of one source; refuse an invalid value, and warn once about an unknown name."""
    checked, known = Config(), Settings.class_traits(config=True)
    given = config.get("Settings", {})
    if not isinstance(given, dict):
        raise ConfigError(f"{source}: Settings = {given!r} is not allowed.", hint="Set c.Settings.NAME, one for each.")
    for name, value in given.items():
        if name not in known:
            _warn_about_unknown(name, known, source)
            continue
        one = Config({"Settings": {name: value}})
        try:
            Settings(config=one)
        except TraitError:
            raise ConfigError(
                f"{source}: c.Settings.{name} = {value!r} is not allowed.", hint=_allowed(known[name])
            ) from None
        checked.merge(one)
    return checked


def _allowed(trait: Any) -> str:
    least = getattr(trait, "min", None)
    return f"Allowed: {trait.info()}{'' if least is None else f', at least {least:g}'}. {trait.help}"


def _warn_about_unknown(name: str, settings: Collection[str], source: str) -> None:
    if (source, name) not in _told:
        _told.add((source, name))
        near = get_close_matches(name, settings, n=1)
        meant = f" Did you mean c.Settings.{near[0]}?" if near else f" There are: {', '.join(sorted(settings))}."
        sys.stderr.write(f"Warning: {source}: there is no c.Settings.{name}.{meant}\n")
