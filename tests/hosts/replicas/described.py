"""Description of a replica: the file ``tests/sites/NAME.toml``, checked key by key.

JUPYTER_SLURM_TEST_SITES names a folder with further descriptions, for sites that must not be published: NAME.toml is
the replica, profiles/NAME.toml the profile.

[way]
login = "sky1.example.org"       # name in the profile
gateway = "gate.example.org"     # jump host before it, if the site has one
in = "key"                       # authentication at the first host: key, password, code, key+code, password+code
login_in = "password"            # authentication at the login node behind a gateway (key)

[storage]                        # $USER is the user, in the whole file
home = "/home/$USER"
home_on_nodes = false            # whether the nodes see the home (true)
shared = ["/scratch/$USER"]      # user directories that the login node and all nodes see
local = ["/output/$USER"]        # user directories on each node, separate for each
variables = { SCRATCH = "/scratch/$USER" }   # set by the start-up files of a login shell

[software]
modules = ["gcc/7.4"]            # modules for `module load`
programs = ["nodeset"]           # stand-ins for programs that this machine lacks (runtimes.py)
runtime = "docker"               # or singularity, charliecloud
nodes = ["dgx01"]                # nodes with Docker: a daemon on each (all)
gpu_variable = "NV_GPU"          # variable with a job's GPUs by UUID
images = { "nvcr.io/nvidia/pytorch:22.11-py3" = "python" }   # name or directory: python, or jupyter (with notebook 6)
registry = { "docker.io/library/python:3.11-slim" = "python" }   # images that nodes can fetch, by the registry's name

[cluster]                        # in the form of `jupyter slurm embedded start --config`
"""

from __future__ import annotations

import os
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jupyter_slurm.embedded.description import Description, parse_description
from jupyter_slurm.sites.shipped import shipped_names, shipped_text

__all__ = ["SITES", "Site", "Software", "Storage", "Way"]

_FOLDERS = [Path(__file__).parents[2] / "sites"]
if _more := os.environ.get("JUPYTER_SLURM_TEST_SITES"):
    _FOLDERS.append(Path(_more))
_FILES = {file.stem: file for folder in _FOLDERS for file in folder.glob("*.toml")}

SITES = sorted(_FILES)
"""Names of all sites with a replica."""


@dataclass(frozen=True)
class Way:
    """The users' route into the site."""

    login: str
    gateway: str = ""
    asks: str = "key"
    login_asks: str = "key"

    @property
    def at_login(self) -> str:
        """Return the authentication that the login node requires."""
        return self.login_asks if self.gateway else self.asks


@dataclass(frozen=True)
class Storage:
    """Directories of the user."""

    home: str
    home_on_nodes: bool = True
    shared: tuple[str, ...] = ()
    local: tuple[str, ...] = ()
    variables: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Software:
    """Additional software of the nodes, besides this machine's programs."""

    modules: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()
    runtime: str = ""
    nodes: tuple[str, ...] = ()
    gpu_variable: str = "CUDA_VISIBLE_DEVICES"
    images: dict[str, str] = field(default_factory=dict)
    registry: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Site:
    """Description of a site."""

    name: str
    way: Way
    storage: Storage
    software: Software
    cluster: Description

    @staticmethod
    def home_of(name: str) -> str:
        """Return the user's home on the site, with ``{name}`` in place of the login name."""
        data = tomllib.loads(_FILES[name].read_text(encoding="utf-8"))
        return str(data["storage"]["home"]).replace("$USER", "{name}")

    @property
    def is_shipped(self) -> bool:
        """Return whether its profile is part of the package."""
        return self.name in shipped_names()

    @property
    def profile(self) -> str:
        """Return the text of its profile."""
        if self.is_shipped:
            return shipped_text(self.name)
        return (_FILES[self.name].parent / "profiles" / f"{self.name}.toml").read_text(encoding="utf-8")

    @classmethod
    def read(cls, name: str, user: str) -> Site:
        """Read the file of a site, for a user with this login name."""
        text = _FILES[name].read_text(encoding="utf-8").replace("$USER", user)
        data = tomllib.loads(text)
        way = {{"in": "asks", "login_in": "login_asks"}.get(key, key): value for key, value in data.pop("way").items()}
        site = cls(
            name,
            Way(**way),
            Storage(**_tuples(data.pop("storage"))),
            Software(**_tuples(data.pop("software", {}))),
            parse_description(data.pop("cluster")),
        )
        assert not data, f"{name}.toml: no such table: {', '.join(data)}"
        return site


def _tuples(table: dict[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in table.items()}
