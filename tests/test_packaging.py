"""Tests of the package: one wheel with the extensions enabled, and with correct requirements."""

from __future__ import annotations

import ast
import email
import email.message
import email.policy
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

import jupyter_slurm

ROOT = Path(__file__).resolve().parents[1]
LABEXTENSION = Path("share/jupyter/labextensions/jupyter-slurm")
SERVER_CONFIG = Path("etc/jupyter/jupyter_server_config.d/jupyter_slurm.json")

# Required by the package's users, even if only a later feature, or the runner, imports them.
FIXED = {"cloudpickle", "ipykernel", "ipywidgets", "jupyter-server", "paramiko", "traitlets"}


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def declared() -> set[str]:
    requirements = metadata.requires("jupyter_slurm") or []
    return {normal(re.split(r"[<>=!~ ;\[]", each)[0]) for each in requirements if "extra ==" not in each}


def imported() -> set[str]:
    """Return the distributions that the package imports, at any place."""
    homes = metadata.packages_distributions()
    found: set[str] = set()
    for path in Path(jupyter_slurm.__file__).parent.rglob("*.py"):
        if "runner" in path.parts:  # runs in a job, with the modules of its environment
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
            for name in (name.split(".")[0] for name in names):
                if name not in sys.stdlib_module_names and name != "jupyter_slurm":
                    found.update(normal(home) for home in homes.get(name, [name]))
    return found


def test_under_make_the_installed_wheel_is_tested() -> None:
    if "MAKELEVEL" not in os.environ:
        pytest.skip("not run by make")
    assert Path(jupyter_slurm.__file__).is_relative_to(sysconfig.get_path("purelib"))


def test_a_second_make_has_nothing_to_do() -> None:
    if "MAKELEVEL" not in os.environ:
        pytest.skip("not run by make: what is installed may be older than the sources")
    env = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    done = subprocess.run(["make", "--dry-run", "setup"], cwd=ROOT, env=env, capture_output=True, text=True, check=True)
    assert "Nothing to be done" in done.stdout


def test_there_is_one_version() -> None:
    front_end = json.loads((ROOT / "labextension/package.json").read_text())
    lock = json.loads((ROOT / "labextension/package-lock.json").read_text())
    installed = json.loads((Path(sys.prefix) / LABEXTENSION / "package.json").read_text())
    versions = {front_end["version"], lock["version"], installed["version"], metadata.version("jupyter_slurm")}
    assert versions == {jupyter_slurm.__version__}


def test_the_lock_file_names_no_registry_and_every_checksum() -> None:
    lock = json.loads((ROOT / "labextension/package-lock.json").read_text())["packages"]
    assert [name for name, entry in lock.items() if "resolved" in entry] == []
    assert [name for name, entry in lock.items() if name and "integrity" not in entry] == []


def test_what_is_imported_is_declared_and_what_is_declared_is_imported() -> None:
    assert imported() <= declared()
    assert declared() - FIXED <= imported()


def test_both_extensions_are_enabled() -> None:
    for kind, line in (
        ("labextension", "jupyter-slurm v.*enabled.*OK"),
        ("server extension", "jupyter_slurm.*enabled"),
    ):
        command = [sys.executable, "-P", "-m", "jupyter", *kind.split(), "list"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert re.search(line, done.stdout + done.stderr), done.stdout + done.stderr


def test_jupyter_has_a_subcommand() -> None:
    jupyter = Path(sysconfig.get_path("scripts"), "jupyter")
    done = subprocess.run([jupyter, "slurm", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == jupyter_slurm.__version__


def test_types_are_shipped() -> None:
    assert (Path(jupyter_slurm.__file__).parent / "py.typed").exists()


# --- what is released: the files of dist/


# Beside JupyterLab, this one included. Paramiko and what it needs have 24 MB, ipywidgets and what it needs 11 MB: their
# releases grow, so that the limit of the sum leaves room for them, and the limit of this package does not.
MOST_PACKAGES = 12
MOST_INSTALLED_BYTES = 54_000_000
MOST_OWN_BYTES = 13_500_000
MOST_BYTES = 2_000_000
OURS = ("https://github.com/jupyter-slurm/jupyter-slurm", "https://jupyter-slurm.readthedocs.io/")


@pytest.fixture
def released_wheel() -> Path:
    wheel = next((ROOT / "dist").glob("*.whl"), None)
    if wheel is None:
        assert not os.environ.get("CI"), "`make test` builds it"
        pytest.skip("nothing was built here")
    return wheel


def released_metadata(wheel: Path) -> email.message.Message:
    with zipfile.ZipFile(wheel) as archive:
        (about,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return email.message_from_bytes(archive.read(about), policy=email.policy.default)


def closure(names: Iterable[str]) -> set[str]:
    """Return distributions with all that they require here."""
    todo, found = [(normal(name), "") for name in names], set[tuple[str, str]]()
    while todo:
        name, extra = one = todo.pop()
        if one not in found:
            found.add(one)
            for needed in map(Requirement, metadata.requires(name) or []):
                if needed.marker is None or needed.marker.evaluate({"extra": extra}):
                    todo += [(normal(needed.name), each) for each in ("", *needed.extras)]
    return {name for name, _ in found}


def installed_bytes(name: str) -> int:
    """Return the size of a distribution's files, with the compiled modules that pip adds."""
    files = (Path(file.locate()) for file in metadata.distribution(name).files or [])
    return sum(file.stat().st_size for file in files if file.exists())


def test_the_released_wheel_has_the_panel_and_the_license_and_nothing_else(released_wheel: Path) -> None:
    folder = released_wheel.name.partition("-py3")[0]
    kinds = {name.removeprefix(f"{folder}.data/data/").split("/")[0] for name in names(released_wheel)}
    assert kinds == {"jupyter_slurm", "etc", "share", f"{folder}.dist-info"}
    (panel,) = {
        name.partition("/share/")[2].rpartition("/")[0] for name in names(released_wheel) if "remoteEntry" in name
    }
    assert panel == f"{LABEXTENSION.relative_to('share')}/static"
    assert f"{folder}.dist-info/licenses/LICENSE" in names(released_wheel)
    unwanted = re.compile(r"(^|/)(tests?|node_modules|__pycache__)/|\.map$|\.pyc$|(^|/)\.")
    assert [name for name in names(released_wheel) if unwanted.search(name)] == []
    assert released_wheel.stat().st_size < MOST_BYTES


def test_the_released_metadata_is_complete_and_its_page_has_absolute_links(released_wheel: Path) -> None:
    about = released_metadata(released_wheel)
    places = dict(line.split(", ") for line in about.get_all("Project-URL"))
    assert {"Homepage", "Documentation", "Changelog", "Issues"} <= places.keys()
    assert all(place.startswith(OURS) for place in places.values())
    assert about["Author-email"]
    assert about["License-Expression"] == "BSD-3-Clause"
    links = re.findall(r"\]\(([^)]*)\)", about.get_payload())
    assert len(links) > 5
    assert [link for link in links if not link.startswith("https://")] == []


def test_the_conda_recipe_requires_the_same_versions_and_is_of_this_version() -> None:
    recipe = yaml.safe_load((ROOT / ".ci/conda/recipe.yaml").read_text())
    pip_names = {"python-fastjsonschema": "fastjsonschema"}
    needed = (line.partition(" ") for line in recipe["requirements"]["run"] if not line.startswith("python >="))
    here = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pairs = {(normal(pip_names.get(name, name)), SpecifierSet(versions)) for name, _, versions in needed}
    assert pairs == {(normal(each.name), each.specifier) for each in map(Requirement, here["dependencies"])}
    assert recipe["context"]["version"] == jupyter_slurm.__version__


def test_the_npm_package_is_public_and_names_its_repository() -> None:
    about = json.loads((ROOT / "labextension/package.json").read_text())
    assert "private" not in about
    assert about["publishConfig"] == {"access": "public"}
    assert about["repository"]["url"] == f"git+{OURS[0]}.git"
    assert {"README.md", *(each.split("/")[0] for each in about["files"])} == {"README.md", "lib", "schema", "style"}


def test_the_released_wheel_adds_few_packages_to_jupyterlab(released_wheel: Path) -> None:
    needed = [Requirement(each) for each in released_metadata(released_wheel).get_all("Requires-Dist")]
    own = closure(each.name for each in needed if each.marker is None)
    added = {"jupyter-slurm", *own} - closure(["jupyterlab"])
    assert len(added) <= MOST_PACKAGES, sorted(added)
    sizes = {name: installed_bytes(name) for name in added}
    assert sizes["jupyter-slurm"] <= MOST_OWN_BYTES
    assert sum(sizes.values()) <= MOST_INSTALLED_BYTES, sizes


# --- with and without Node.js


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Provide the files of this checkout without build products."""
    skipped = shutil.ignore_patterns(
        "node_modules", "lib", ".*", "dist", "test-results", "__pycache__", "tests", "examples"
    )
    shutil.copytree(ROOT, tmp_path / "checkout", ignore=skipped)
    shutil.copytree(ROOT / ".github", tmp_path / "checkout/.github")  # with the page for PyPI
    shutil.rmtree(tmp_path / "checkout/jupyter_slurm/labextension", ignore_errors=True)
    return tmp_path / "checkout"


@pytest.fixture
def without_node(tmp_path: Path) -> dict[str, str]:
    """Provide an environment whose only program is a shell."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/sh").symlink_to("/bin/sh")
    return {**os.environ, "PATH": str(tmp_path / "bin")}


def pip(*arguments: str | Path, env: dict[str, str], python: str | Path = sys.executable) -> None:
    command = [str(each) for each in (python, "-P", "-m", "pip", "--disable-pip-version-check", *arguments)]
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def names(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_a_checkout_without_node_installs_only_if_the_panel_is_left_out_on_request(
    checkout: Path, without_node: dict[str, str], tmp_path: Path
) -> None:
    with pytest.raises(AssertionError, match=r"needs Node\.js 20 or newer(?s:.*)JUPYTER_SLURM_WITHOUT_LABEXTENSION=1"):
        pip("wheel", "--no-deps", "-w", tmp_path, checkout, env=without_node)
    asked = {**without_node, "JUPYTER_SLURM_WITHOUT_LABEXTENSION": "1"}
    pip("wheel", "--no-deps", "-w", tmp_path, checkout, env=asked)
    (wheel,) = tmp_path.glob("*.whl")
    assert any(name.endswith(str(SERVER_CONFIG)) for name in names(wheel))
    assert not any("remoteEntry" in name for name in names(wheel))


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_the_sdist_has_the_panel_and_installs_without_node(without_node: dict[str, str], tmp_path: Path) -> None:
    sdist = next((ROOT / "dist").glob("*.tar.gz"), None)
    if sdist is None:
        assert not os.environ.get("CI"), "`make test` builds it"
        pytest.skip("nothing was built here")
    pip("wheel", "--no-deps", "-w", tmp_path, sdist, env=without_node)
    (wheel,) = tmp_path.glob("*.whl")
    assert sum("remoteEntry" in name for name in names(wheel)) == 1
    with zipfile.ZipFile(wheel) as archive:
        (about,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        assert email.message_from_bytes(archive.read(about))["Version"] == jupyter_slurm.__version__


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_an_editable_install_has_both_extensions(checkout: Path, tmp_path: Path) -> None:
    if shutil.which("npm") is None:
        assert not os.environ.get("CI"), "`make test` installs Node.js"
        pytest.skip("Node.js is not here")
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv/bin/python"
    pip("install", "--no-deps", "-e", checkout, env=dict(os.environ), python=python)
    assert list((tmp_path / "venv" / LABEXTENSION / "static").glob("remoteEntry.*.js"))
    assert (tmp_path / "venv" / SERVER_CONFIG).exists()
    where = [str(python), "-P", "-c", "import jupyter_slurm; print(jupyter_slurm.__file__)"]
    done = subprocess.run(where, capture_output=True, text=True, check=True)
    assert done.stdout.startswith(str(checkout))
