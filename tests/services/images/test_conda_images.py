"""Tests of conda environments as images: solved, fetched and linked from a real channel, into a separate prefix.

conda itself comes only from its channels. Its replacement in the image takes the same command and uses rattler, the
library of pixi, which solves, fetches and links packages as conda does.
"""

from __future__ import annotations

import functools
import hashlib
import io
import json
import os
import pwd
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import threading
import zipfile
from collections.abc import Callable, Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from containers import Node, kept_wheels
from registry import Registry

from jupyter_slurm.client.images.python_packages import installed_packages

pytestmark = [pytest.mark.root, pytest.mark.slow]

CONDA = b"""#!/usr/bin/python3
import argparse, asyncio, json, os, sys

if sys.argv[1] == "clean":
    sys.exit()
import rattler
parser = argparse.ArgumentParser()
parser.add_argument("words", nargs=2, choices=["env", "create"])
parser.add_argument("--prefix", required=True)
parser.add_argument("--file", required=True)
told = parser.parse_args()
assert not os.path.exists(told.prefix)
with open(told.file) as file:
    wanted = json.load(file)

async def create():
    specs = [one.replace("=", "==", 1) for one in wanted["dependencies"]]
    found = await rattler.solve(wanted["channels"], specs, platforms=["linux-64", "noarch"])
    await rattler.install(found, told.prefix, cache_dir=told.prefix + "-packages", show_progress=False)
    os._exit(0)  # what rattler has begun in threads may outlive the interpreter's end, and crash

asyncio.run(create())
"""
SITE = "lib/python3.11/site-packages"
PYTHON = f'#!/bin/sh\nPYTHONPATH=${{0%/bin/*}}/{SITE} exec /usr/bin/python3 "$@"\n'
SHOW = """
import os, shutil, tiny
print(tiny.TOLD, shutil.which("python3"), open("/etc/image").read())
print(*sorted(name for name in os.listdir("/opt/env/conda-meta") if name.endswith(".json")))
"""


@pytest.fixture(scope="session")
def rattler() -> Path:
    """Provide the wheel of py-rattler, kept between runs."""
    return next(kept_wheels("rattler", "--no-deps", "py-rattler").glob("*.whl"))


def _package(name: str, version: str, path: str, text: str, *depends: str) -> tuple[str, bytes, dict[str, object]]:
    """Return a package with one file: its name, its archive, and its record in repodata.json."""
    record: dict[str, object] = {
        "name": name,
        "version": version,
        "build": "0",
        "build_number": 0,
        "subdir": "linux-64",
    }
    record |= {"arch": "x86_64", "platform": "linux", "depends": list(depends)}
    told = {"_path": path, "path_type": "hardlink", "sha256": hashlib.sha256(text.encode()).hexdigest()}
    files = {
        "info/index.json": json.dumps(record),
        "info/paths.json": json.dumps({"paths": [{**told, "size_in_bytes": len(text)}], "paths_version": 1}),
        path: text,
    }
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:bz2") as archive:
        for inner, content in files.items():
            member = tarfile.TarInfo(inner)
            member.size, member.mode = len(content), 0o755
            archive.addfile(member, io.BytesIO(content.encode()))
    data = made.getvalue()
    record |= {"md5": hashlib.md5(data, usedforsecurity=False).hexdigest(), "size": len(data)}
    return f"{name}-{version}-0.tar.bz2", data, {**record, "sha256": hashlib.sha256(data).hexdigest()}


@pytest.fixture
def channel(tmp_path: Path) -> Iterator[str]:
    """Provide the address of a channel: a Python, two versions of a package, and a Jupyter that needs one of them."""
    folder = tmp_path / "channel"
    packages = [
        _package("python", "3.11.2", "bin/python3", PYTHON),
        _package("tiny", "1.5", f"{SITE}/tiny.py", "TOLD = 'of conda'\n", "python >=3.11"),
        _package("tiny", "1.6", f"{SITE}/tiny.py", "TOLD = 'too new'\n", "python >=3.12"),
        _package("jupyterlab", "4.4", f"{SITE}/jupyterlab.py", "", "python >=3.9", "tiny >=1.5"),
    ]
    for subdir in ("linux-64", "noarch"):
        (folder / subdir).mkdir(parents=True)
        listed = {name: record for name, _, record in packages if record["subdir"] == subdir}
        told = {"info": {"subdir": subdir}, "packages": listed, "packages.conda": {}}
        (folder / subdir / "repodata.json").write_text(json.dumps(told))
    for name, data, _ in packages:
        (folder / "linux-64" / name).write_bytes(data)
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


def test_an_environment_of_conda_becomes_an_image(
    node: Node,
    registry: Registry,
    rattler: Path,
    channel: str,
    short_path: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    unavailable: Callable[[str], None],
) -> None:
    """An environment is made locally, exported as a notebook's own, and made again on a node, beside the base."""
    if shutil.which("ch-image") is None:
        unavailable("charliecloud-builders is not installed")
    (tmp_path / "library").mkdir()
    with zipfile.ZipFile(rattler) as wheel:
        wheel.extractall(tmp_path / "library")
        library = {f"usr/lib/python3/dist-packages/{name}": wheel.read(name) for name in wheel.namelist()}
    prefix, wanted = tmp_path / "prefix", {"channels": [channel], "dependencies": ["tiny", "python"]}
    (tmp_path / "conda").write_bytes(CONDA)
    (tmp_path / "wanted").write_text(json.dumps(wanted))
    made = [sys.executable, tmp_path / "conda", "env", "create", "--prefix", prefix, "--file", tmp_path / "wanted"]
    subprocess.run(made, check=True, env={**os.environ, "PYTHONPATH": str(tmp_path / "library")})
    monkeypatch.setattr(sys, "prefix", str(prefix))
    monkeypatch.setattr(sysconfig, "get_paths", lambda: dict.fromkeys(("purelib", "platlib"), str(prefix / SITE)))
    told, _ = installed_packages()
    assert told["conda"] == {"channels": [channel], "packages": ["python=3.11.2", "tiny=1.5", "jupyterlab"]}

    files = {"etc/passwd": b"root:x:0:0::/root:/bin/sh\n", "opt/conda/bin/conda": CONDA, **library}
    # rattler does not start without certificates
    files["etc/ssl/certs/ca-certificates.crt"] = registry.certificate.read_bytes()
    base, _ = registry.add("conda", files=files)
    env = {**registry.env, "PATH": "/usr/bin:/bin:/usr/sbin"}
    folder = short_path / "images"
    folder.mkdir()
    os.chown(folder, pwd.getpwnam(node.user).pw_uid, -1)
    place = node.job(run=[])
    record = json.loads((place / "job.json").read_text())
    wish = {"act": "build", "name": "own:1", "runtime": "charliecloud", "environment": told, "base": base}
    (place / "job.json").write_text(json.dumps({**record, "image": {**wish, "image_dir": str(folder)}}))
    process = node.start(place, program="container-build.py", **env)
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0, out + err
    described = {"image": "own:1", "runtime": "charliecloud", "image_dir": str(folder)}
    code, out, err = node.run(node.job(run=["python3", "-c", SHOW], **described), **env)
    names = "jupyterlab-4.4-0.json python-3.11.2-0.json tiny-1.5-0.json"
    assert (code, out) == (0, f"of conda /opt/env/bin/python3 conda\n{names}\n"), err
