"""Tests of images that a job builds on its node, with every real builder of this machine, from a real registry."""

from __future__ import annotations

import contextlib
import functools
import io
import json
import os
import pwd
import runpy
import shutil
import signal
import subprocess
import threading
import zipfile
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from containers import Docker, Node
from registry import Registry

from jupyter_slurm.runner.proc import family
from jupyter_slurm.services.images.build_context import ARCHIVE, packed

pytestmark = [pytest.mark.root, pytest.mark.slow]

FILES = {
    "docker": "FROM {base}\nCOPY told /etc/told\nRUN echo built > /etc/built\n",
    "apptainer": "Bootstrap: docker\nFrom: {base}\n%files\n    told /etc/told\n%post\n    echo built > /etc/built\n",
}
FILES["charliecloud"] = FILES["docker"]
BUILD = str(resources.files("jupyter_slurm.runner.container").joinpath("build.py"))
SHOW = ["/bin/sh", "-c", "cat /etc/image /etc/told /etc/built"]


@pytest.fixture
def folder(node: Node, short_path: Path) -> Path:
    """Provide the folder of images, owned by alice."""
    return _of_alice(node, short_path / "im ages")


def _of_alice(node: Node, path: Path) -> Path:
    path.mkdir(exist_ok=True)
    os.chown(path, pwd.getpwnam(node.user).pw_uid, -1)
    return path


@pytest.fixture(params=["docker", "apptainer", "charliecloud"])
def runtime(request: pytest.FixtureRequest, unavailable: Callable[[str], None]) -> tuple[str, dict[str, str]]:
    """Provide a runtime, and the environment variables of its jobs."""
    if request.param == "apptainer":
        return "apptainer", {"PATH": f"{request.getfixturevalue('apptainer')}:/usr/bin:/bin:/usr/sbin"}
    if request.param == "charliecloud" and shutil.which("ch-image") is None:
        unavailable("charliecloud-builders is not installed")
    return request.param, {"PATH": "/usr/bin:/bin:/usr/sbin"}


class Builder:
    """Runner of jobs that build images."""

    def __init__(self, node: Node, folder: Path, env: dict[str, str]) -> None:
        self.node, self.folder, self.env = node, folder, env

    def start(self, archive: bytes = b"", **wish: Any) -> subprocess.Popen[str]:
        place = self.node.job(run=[])
        if archive:
            (place / ARCHIVE).write_bytes(archive)
        record = json.loads((place / "job.json").read_text())
        record["image"] = {"act": "build", "image_dir": str(self.folder), **wish}
        (place / "job.json").write_text(json.dumps(record))
        return self.node.start(place, program="container-build.py", **self.env)

    def run(self, archive: bytes = b"", **wish: Any) -> tuple[int, str, str]:
        process = self.start(archive, **wish)
        out, err = process.communicate(timeout=120)
        return process.returncode, out, err

    def ask(self, what: str, **asked: str) -> dict[str, Any]:
        """Query the images, as on a login node."""
        argv = ["/usr/bin/python3", str(self.node.folder / "runner-x-container-image_notes.py"), what]
        told = json.dumps({"image_dir": str(self.folder), **asked})
        done = subprocess.run(argv, user=self.node.user, input=told, capture_output=True, text=True, check=True)
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    def images(self) -> list[dict[str, Any]]:
        """Return the existing images."""
        images: list[dict[str, Any]] = self.ask("list")["images"]
        return images

    def show(self, name: str, runtime: str, run: list[str]) -> str:
        described = {"image": name, "runtime": runtime, "image_dir": str(self.folder)}
        code, out, err = self.node.run(self.node.job(run=run, **described), **self.env)
        assert code == 0, err
        return out


def test_what_a_file_says_is_built_once_and_whole(
    node: Node, registry: Registry, folder: Path, runtime: tuple[str, dict[str, str]], short_path: Path
) -> None:
    name, env = runtime
    base, _ = registry.add(f"base/{name}")
    _of_alice(node, short_path / "roo m")
    context = _of_alice(node, short_path / "con text")
    (context / "told").write_text("/told/")
    file = {"kind": "definition" if name == "apptainer" else "dockerfile", "name": "a file", "folder": str(context)}
    builder = Builder(node, folder, {**registry.env, **env})
    text = FILES[name].format(base=base)
    wish = {"name": "mine/one:2", "runtime": name, "file": {**file, "text": text}}
    code, out, err = builder.run(**wish, build_dir=str(short_path / "roo m"))
    assert code == 0, out + err
    assert "env=docker://mine/one:2 runs in it" in out
    assert builder.show("mine/one:2", name, SHOW) == f"base/{name}/told/built\n"
    (told,) = builder.images()
    assert (told["image"], told["runtime"], told["source"], told["user"]) == ("mine/one:2", name, "a file", node.user)
    assert told["size"] > 1_000_000
    assert ("node" in told, "path" in told) == (name == "docker", name != "docker")
    before = _names(folder)

    code, out, err = builder.run(**wish)
    assert (code, "Add `replace` to replace it" in err) == (1, True), out + err
    broken = {**wish, "file": {**file, "text": text.replace("echo built", "no-such-program")}}
    code, out, err = builder.run(**broken, replace=True)
    assert (code, "could not build mine/one:2: " in err) == (1, True), out + err
    assert "no-such-program" in out
    assert _names(folder) == before
    assert builder.show("mine/one:2", name, SHOW) == f"base/{name}/told/built\n"
    code, out, err = builder.run(**{**wish, "file": {**file, "text": text.replace("built", "anew", 1)}}, replace=True)
    assert code == 0, out + err
    assert builder.show("mine/one:2", name, SHOW) == f"base/{name}/told/anew\n"
    assert _names(folder) == before
    assert not list(node.folder.glob("*/build"))
    assert os.listdir(short_path / "roo m") == []


TAKEN = {
    "docker": "FROM {base}\nCOPY told /etc/\nCOPY src /opt/src/\nRUN sh /opt/src/deep/run.sh > /etc/built\n",
    "apptainer": "Bootstrap: docker\nFrom: {base}\n%files\n    told /etc/told\n    src /opt/src\n"
    "%post\n    sh /opt/src/deep/run.sh > /etc/built\n",
}
TAKEN["charliecloud"] = TAKEN["docker"]


def test_what_it_takes_of_a_laptop_comes_with_the_job(
    node: Node, registry: Registry, folder: Path, runtime: tuple[str, dict[str, str]], tmp_path: Path, short_path: Path
) -> None:
    """The files are unpacked in the site's scratch space; they remain only in the image."""
    name, env = runtime
    base, _ = registry.add(f"base/{name}")
    for path, text in {"told": "told/", "src/deep/run.sh": "echo with a script\n", "src/no.log": "no"}.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    (tmp_path / "src/link").symlink_to("deep/run.sh")
    (tmp_path / "src/out").symlink_to("/etc/hostname")
    (tmp_path / ".dockerignore").write_text("**/*.log\n")
    kind = "definition" if name == "apptainer" else "dockerfile"
    text = TAKEN[name].format(base=base)
    made = packed(str(tmp_path), kind, "a file", text)
    builder = Builder(node, folder, {**registry.env, **env})
    file = {"kind": kind, "name": "a file", "text": text, "archive": ARCHIVE}
    wish = {"name": "mine/taken:1", "runtime": name, "file": file, "build_dir": str(_of_alice(node, short_path / "r"))}
    code, out, err = builder.run(made.data, **wish)
    assert code == 0, out + err
    shown = builder.show("mine/taken:1", name, SHOW)
    assert shown == f"base/{name}told/with a script\n"
    listed = builder.show("mine/taken:1", name, ["/bin/sh", "-c", "cd /opt/src && cat link && echo *"]).split()
    assert listed == ["echo", "with", "a", "script", "deep", "link", *(["no.log"] if kind == "definition" else ["out"])]
    assert not list(node.folder.glob(f"*/{ARCHIVE}"))
    assert os.listdir(short_path / "r") == []


def test_of_two_that_make_one_image_the_second_waits_and_an_end_leaves_nothing_half(
    node: Node, registry: Registry, folder: Path, runtime: tuple[str, dict[str, str]]
) -> None:
    name, env = runtime
    base, let_go = registry.add(f"held/{name}", is_held=True)
    text = FILES["apptainer"] if name == "apptainer" else "FROM {base}\n"
    text = text.replace("%files\n    told /etc/told\n", "").format(base=base)
    wish = {
        "name": "mine/two:1",
        "runtime": name,
        "build_dir": str(folder / "roo m"),
        "file": {"kind": "definition" if name == "apptainer" else "dockerfile", "name": "a file", "text": text},
    }
    builder = Builder(node, folder, {**registry.env, **env})
    signs = {"docker": "Pulling fs layer", "apptainer": "Fetching OCI image", "charliecloud": "layer 2/3"}
    first = builder.start(**wish)
    _hears(first, signs[name])
    second = builder.start(**wish, replace=True)
    _hears(second, "waiting for job 7")
    for pid in family(first.pid):  # as Slurm ends a job
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    _hears(second, signs[name])
    third = builder.start(**wish)
    _hears(third, "waiting for job 7")
    second.send_signal(signal.SIGTERM)
    assert second.wait(120) == 128 + signal.SIGTERM
    _hears(third, signs[name])
    fourth = builder.start(**wish)
    _hears(fourth, "waiting for job 7")
    let_go()
    assert third.wait(60) == 0
    out, err = fourth.communicate(timeout=60)
    assert (fourth.returncode, "Add `replace` to replace it" in err) == (1, True), out + err
    assert not [one for one in _names(folder) if one.endswith((".part", ".lock"))]
    assert name == "docker" or os.listdir(folder / "roo m") == []
    assert [one["image"] for one in builder.images()] == ["mine/two:1"]
    gone = builder.ask("remove", image="mine/two:1")
    if name == "docker":
        assert gone == {"removed": [], "nodes": [os.uname().nodename]}
    else:
        assert [os.path.exists(path) for path in gone["removed"]] == [False]
        assert builder.images() == []
        assert _names(folder) == ["roo m"]


def test_packages_of_a_python_become_an_image(
    node: Node, registry: Registry, folder: Path, wheels: Path, unavailable: Callable[[str], None]
) -> None:
    """With the pip of the image, from an index of the test."""
    if shutil.which("ch-image") is None:
        unavailable("charliecloud-builders is not installed")
    files = {
        "etc/passwd": b"root:x:0:0::/root:/bin/sh\n",
        "etc/pip.conf": b"[global]\nno-index = true\nfind-links = /wheels\nbreak-system-packages = true\n",
        "wheels/tiny-1.5-py3-none-any.whl": _wheel("tiny", "1.5"),
    }
    with zipfile.ZipFile(next(wheels.glob("pip-*.whl"))) as pip:
        files |= {f"usr/lib/python3/dist-packages/{name}": pip.read(name) for name in pip.namelist()}
    base, _ = registry.add("python", files=files)
    builder = Builder(node, folder, {**registry.env, "PATH": "/usr/bin:/bin:/usr/sbin"})
    told = {"python": "3.11", "pip": ["tiny==1.5"], "conda": None}
    code, out, err = builder.run(name="own:1", runtime="charliecloud", environment=told, base=base)
    assert code == 0, out + err
    assert "Successfully installed tiny-1.5" in out
    show = ["python3", "-c", "import tiny; print(tiny.TOLD, open('/requirements.txt').read())"]
    assert builder.show("own:1", "charliecloud", show) == "of tiny tiny==1.5\n\n"


def test_an_image_of_docker_becomes_one_of_the_others(
    node: Node,
    docker: Docker,
    registry: Registry,
    folder: Path,
    apptainer: Path,
    short_path: Path,
    unavailable: Callable[[str], None],
) -> None:
    """From its store on the node, and from files."""
    if shutil.which("ch-convert") is None:
        unavailable("charliecloud-builders is not installed")
    image, _ = registry.add("of/docker")
    docker.run("pull", image)
    pulls = registry.pulls("of/docker")
    saved, exported = short_path / "sa ved.tar", short_path / "ex ported.tar"
    docker.run("save", "--output", str(saved), image)
    created = docker.run("create", image, "/bin/sh").strip()
    docker.run("export", "--output", str(exported), created)
    docker.run("rm", created)
    saved.chmod(0o644)
    exported.chmod(0o644)
    builder = Builder(node, folder, {"PATH": f"{apptainer}:/usr/bin:/bin:/usr/sbin"})
    for name, runtime, origin in (
        (image, "charliecloud", "docker"),
        (image, "apptainer", "docker"),
        ("kept:1", "charliecloud", str(exported)),
        ("kept:2", "apptainer", str(saved)),
        ("kept:3", "docker", str(saved)),
    ):
        code, out, err = builder.run(act="pull", name=name, runtime=runtime, **{"from": origin})
        assert code == 0, out + err
        assert builder.show(name, runtime, ["/bin/cat", "/etc/image"]) == "of/docker"
    told = {(one["image"], one["runtime"]): one["source"] for one in builder.images()}
    assert told == {
        (image, "charliecloud"): "docker of a node",
        (image, "apptainer"): "docker of a node",
        ("kept:1", "charliecloud"): exported.name,
        ("kept:2", "apptainer"): saved.name,
        ("kept:3", "docker"): saved.name,
    }
    assert registry.pulls("of/docker") == pulls
    for path, why in ((saved, "was written by `docker save`"), (short_path / "none", "This node has no file")):
        code, _, err = builder.run(act="pull", name="kept:4", runtime="charliecloud", **{"from": str(path)})
        assert (code, why in err) == (1, True), err


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def _hears(process: subprocess.Popen[str], said: str) -> None:
    """Read the output of a job up to a text."""
    assert process.stdout is not None
    heard, patience = "", threading.Timer(60, process.kill)
    patience.start()
    for line in process.stdout:
        heard += line
        if said in line:
            patience.cancel()
            return
    pytest.fail(f"{said!r} was not said: {heard}{process.communicate()[1]}")


def _wheel(name: str, version: str) -> bytes:
    """Return a package with one module (PEP 427)."""
    made, about = io.BytesIO(), f"{name}-{version}.dist-info"
    with zipfile.ZipFile(made, "w") as wheel:
        wheel.writestr(f"{name}.py", f"TOLD = 'of {name}'\n")
        wheel.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        wheel.writestr(
            f"{about}/WHEEL", "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{about}/RECORD", "")
    return made.getvalue()


def test_what_is_unpacked_lies_in_no_folder_of_somebody_elses(tmp_path, monkeypatch):
    build, top = runpy.run_path(BUILD), tmp_path / "me"
    for name in ("TMPDIR", "APPTAINER_TMPDIR", "SINGULARITY_TMPDIR"):
        monkeypatch.setenv(name, str(tmp_path))
    one = build["Build"].__new__(build["Build"])
    one._wish, one.name = {"build_dir": str(top)}, "mine/one"
    for mode, owner, said in ((0o755, 12345, "another user"), (0o777, 0, "All users can write"), (0o1777, 0, "")):
        top.mkdir(exist_ok=True)
        top.chmod(mode)
        os.chown(top, owner, owner)
        refused = pytest.raises(build["RuntimeRefused"], match=said) if said else contextlib.nullcontext()
        with refused, one._room("draft") as room:
            assert os.environ["TMPDIR"] == room
        assert os.listdir(top) == []


def test_what_others_leave_in_a_folder_of_images_neither_stops_who_looks_nor_who_removes(tmp_path):
    """A pipe in place of a note, or of a lock, and the lock of a killed job."""
    notes, images = (runpy.run_path(BUILD.replace("build.py", f"{name}.py")) for name in ("image_notes", "image_fetch"))
    for name in ("a.sif.json", ".docker-n1-b.json", "c.sif.lock"):
        os.mkfifo(tmp_path / name)
    for name in ("a.sif", "c.sif"):
        (tmp_path / name).write_text("image")
    told = {one["image"]: one["path"] for one in notes["list_images"](str(tmp_path))}
    assert told == {name: str(tmp_path / f"{name}.sif") for name in "ac"}
    assert images["lock"]._read(str(tmp_path / "c.sif.lock"))[0] == ""

    remove = functools.partial(notes["remove"], SimpleNamespace(**images), str(tmp_path))
    assert "A job is creating c" in remove("c")["error"]
    os.utime(tmp_path / "c.sif.lock", (0, 0))
    assert remove("c") == {"removed": [str(tmp_path / "c.sif")], "nodes": []}
