"""Types of the tables of a site profile, according to ``sites/profile.schema.json``.

The types check nothing: a profile is validated by its schema when it is read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Required, TypedDict

__all__ = [
    "AdviceTable",
    "CommandsTable",
    "ContainerTable",
    "CostTable",
    "EnvironmentTable",
    "LaunchTable",
    "StorageTable",
    "TomlTable",
    "VpnTable",
]

TomlTable = Mapping[str, Any]
"""A TOML table or file that no schema has validated yet."""


class EnvironmentTable(TypedDict, total=False):
    """``[env.NAME]``: an environment of jobs."""

    venv: str
    conda: str
    modules: Sequence[str]
    variables: Mapping[str, str]
    work_dir: str
    python: str
    image: str
    runtime: str
    bind: Sequence[str]


class ContainerTable(TypedDict, total=False):
    """``[container]``: settings of all containers of jobs."""

    runtime: str
    bind: Sequence[str]
    gpu_variable: str
    gpus: str
    sudo: bool
    image_dir: str
    shared: Sequence[str]
    base: str
    build_dir: str
    build_options: Sequence[str]


class AdviceTable(TypedDict, total=False):
    """``[advice]``: recommendations of the site for jobs."""

    cpus_per_gpu: float | Mapping[str, float]
    cuda: str
    memory: str


class CommandsTable(TypedDict, total=False):
    """``[commands]``: commands of the user on the login node. Limits are in seconds."""

    allowed: bool
    time_limit: float
    cpu_limit: float
    start_ahead: bool


class CostTable(TypedDict, total=False):
    """``[cost]``: prices of the site."""

    unit: str
    cpu_hour: float
    gpu_hour: float | Mapping[str, float]
    partitions: Mapping[str, float]


class LaunchTable(TypedDict, total=False):
    """``[launch]``: defaults of a form that launches a session."""

    partition: str
    gpus: int
    gpu_type: str
    cpus: int
    memory: str
    time: str
    account: str
    qos: str
    env: str
    dir: str


class VpnTable(TypedDict, total=False):
    """``vpn`` in ``[login]``: a VPN that the local computer needs."""

    name: Required[str]
    url: str


class StorageTable(TypedDict, total=False):
    """``[storage]``: directories for the files of jobs."""

    shared: str
    local: str
    home_on_nodes: bool
    expires: str
    usage_file: str
    usage_command: list[str]
    copy_options: Sequence[str]
    transfer_host: str
