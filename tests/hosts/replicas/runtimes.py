"""Container runtimes on the nodes of a replica: real ones, as the site has them."""

from __future__ import annotations

import os
import pwd
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path

from ssh_hosts.machine import Machine

__all__ = ["NodeDocker", "put_programs", "put_stand_ins", "unpack", "uuid_of"]

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

# GPUs of a replica are not devices. In place of NVIDIA's toolkit, this program acts when Docker starts a container with
# --gpus: it gives the container /dev/nvidiaN for the selected GPUs, and for no others.
_TOOLKIT = """#!/usr/bin/python3
import json, subprocess, sys

state = json.load(sys.stdin)
with open(state["bundle"] + "/config.json") as file:
    config = json.load(file)
told = dict(word.partition("=")[::2] for word in config["process"]["env"]).get("NVIDIA_VISIBLE_DEVICES", "")
for word in told.split(","):
    number = int(word) if word.isdigit() else int(word[4:12], 16)
    place = config["root"]["path"] + "/dev/nvidia%d" % number
    make = ["mknod", "-m", "666", place, "c", "1", "3"]
    subprocess.run(["nsenter", "--target", str(state["pid"]), "--mount", *make], check=True)
"""

# Slurm runs this before each task, as the user; `export` lines of its output are set for the task.
_PROLOG = """#!/bin/sh
told=
for gpu in $(printf %s "$CUDA_VISIBLE_DEVICES" | tr , ' '); do told="$told,$(printf 'GPU-%08x-{rest}' "$gpu")"; done
[ -z "$told" ] || echo "export {variable}=${told#,}"
"""
# Programs of a site that this machine lacks. They use their arguments as the real ones do.
_PROGRAMS = {
    "nodeset": '#!/bin/sh\n[ "$1" = -e ] && exec scontrol show hostnames "$2"\nexit 2\n',
    "python": '#!/bin/sh\nexec python3 "$@"\n',
    # As of `tensorboard --logdir DIR --port PORT`, which listens on the loopback address.
    "tensorboard": '#!/bin/sh\n[ "$1 $3" = "--logdir --port" ] && exec python3 -m http.server --bind 127.0.0.1 "$4"\n',
}
_REST = "0000-0000-0000-000000000000"


def uuid_of(gpu: int) -> str:
    """Return the UUID of a node's GPU, as a site's prolog reports it."""
    return f"GPU-{gpu:08x}-{_REST}"


def put_stand_ins(folder: Path, gpu_variable: str) -> Path:
    """Write the stand-ins for GPU software; return the program for ``TaskProlog=``."""
    folder.mkdir(mode=0o755)
    prolog = _PROLOG.replace("{rest}", _REST).replace("{variable}", gpu_variable)
    for name, text in (("nvidia-container-runtime-hook", _TOOLKIT), ("prolog", prolog)):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    return folder / "prolog"


def put_programs(folder: Path, names: Iterable[str]) -> Path:
    """Write the stand-ins for programs of a site; return their folder, for the PATH."""
    folder.mkdir(mode=0o755)
    for name in names:
        (folder / name).write_text(_PROGRAMS[name])
        (folder / name).chmod(0o755)
    return folder


class NodeDocker:
    """Docker of one node: its daemon runs on that host, sees its files, and ends with it."""

    def __init__(self, node: Machine, folder: Path, user: str, toolkit: Path) -> None:
        self.node = node
        folder.mkdir(mode=0o711)
        argv = ["dockerd", f"--data-root={folder}", f"--group={pwd.getpwnam(user).pw_gid}", "--bridge=none"]
        argv += ["--userland-proxy=false", "--iptables=false", "--ip6tables=false", "--ip-forward=false"]
        with (node.directory / "log" / "dockerd.out").open("ab") as log:
            subprocess.run(
                node.command("setsid", "--fork", *argv),
                env={"PATH": f"{toolkit}:{_PATH}"},
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                check=True,
            )

    def wait(self) -> None:
        """Wait until the daemon answers."""
        deadline = time.monotonic() + 60
        while self.node.run("docker", "version", check=False).returncode != 0:
            if time.monotonic() > deadline:
                said = (self.node.directory / "log" / "dockerd.out").read_text(errors="replace")
                raise AssertionError(f"{self.node.name}: dockerd did not start\n{said[-3000:]}")
            time.sleep(0.1)

    def load(self, tar: Path, name: str) -> None:
        """Create an image from a root file system."""
        with tar.open("rb") as file:
            self.node.run("docker", "import", "-", name, stdin=file, timeout=300)

    def containers(self) -> list[str]:
        """Return the names of all containers, including those that have ended."""
        return self.node.run("docker", "ps", "--all", "--format", "{{.Names}}").stdout.split()


def unpack(tar: Path, folder: Path, user: str) -> None:
    """Unpack a root file system as that user, with the files that Charliecloud and Apptainer expect."""
    folder.mkdir(mode=0o755, parents=True)
    account = pwd.getpwnam(user)
    os.chown(folder, account.pw_uid, account.pw_gid)
    argv = ["tar", "-C", str(folder), "--no-same-owner", "-xf", str(tar)]
    subprocess.run(argv, check=True, user=user, group=account.pw_gid, extra_groups=[])
    for name in ("dev", "etc/passwd", "etc/group"):
        (folder / name).touch() if "/" in name else (folder / name).mkdir(exist_ok=True)
