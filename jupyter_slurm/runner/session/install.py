"""JupyterLab for a Python without one, if the launch of its session says ``jupyter=install``.

JupyterLab gets a virtual environment with access to all packages of the Python: an image may be read-only and is not
changed. The environment is created once, by one of several jobs, in the folder of images, for this Python of this
image.

Sources: venv and site of the Python library, pip-install(1). Python 3.8+, standard library only.
"""

from __future__ import annotations

import glob
import hashlib
import os
import platform
import re
import runpy
import shutil
import subprocess
import sys
import sysconfig
from typing import TYPE_CHECKING, Callable

loader = runpy.run_path(__file__[: -len("session/install.py")] + "loader.py")
load, path_of = loader["load"], loader["path_of"]
if TYPE_CHECKING:
    from jupyter_slurm.runner.container import image_fetch as images
    from jupyter_slurm.runner.container import lock
    from jupyter_slurm.runner.container.runtime_commands import RuntimeRefused
    from jupyter_slurm.runner.environment import tools
    from jupyter_slurm.runner.job_document import SessionPart
else:
    images, tools = load("container.image_fetch"), load("environment.tools")
    lock, RuntimeRefused = images.lock, images.RuntimeRefused

PACKAGE = "jupyterlab"
_PIP = ("install", "--no-input", "--retries=1", "--timeout=15", "--no-warn-script-location", PACKAGE)
_NOT_OFFERED = f"No matching distribution found for {PACKAGE}"  # also what pip says of an index that it did not reach


def python_with_jupyter(image: str, session: SessionPart, report: Callable[[str], None]) -> str:
    """Return a Python with all packages of this one and with JupyterLab.

    Parameters
    ----------
    image : str
        Image of this container; empty outside containers.
    session : dict
        ``session`` of the record: ``image_dir`` is the folder of images, if the profile names one.
    report : callable
        Called with a text that describes the progress.

    Raises
    ------
    RuntimeRefused
        JupyterLab cannot be installed; the message says why.
    """
    folder = images.make_folder(session, "jupyter")
    about = [image, sys.executable, sys.prefix, sys.version, platform.machine()]
    name = "{}.{}.{}-{}".format(*sys.version_info[:3], hashlib.sha256("\0".join(about).encode()).hexdigest()[:16])
    path = os.path.join(folder, name)
    python = os.path.join(path, "bin", "python")

    def is_present() -> bool:
        return os.path.lexists(python)

    def wait(who: str) -> None:
        report(f"waiting for {who}, which installs {PACKAGE}")

    try:
        with images.ending_on_sigterm(), lock.held(f"{path}.lock", is_present, wait) as is_ours:
            if is_ours:
                _make(path, report)
    except OSError as error:
        raise RuntimeRefused(f"{PACKAGE} cannot be stored in {folder}: {error.strerror or error}.") from None
    return python


def _make(path: str, report: Callable[[str], None]) -> None:
    """Create the environment under a unique name, because it cannot be moved, and link the final name to it."""
    for left in glob.glob(glob.escape(path) + ".*"):  # of installations that were killed before they created the link
        if not left.endswith(".lock"):
            shutil.rmtree(left, ignore_errors=True)
    made = f"{path}.{os.urandom(4).hex()}"
    try:
        _environment(made)
        _install(made, report)
        # another process assumed that this one had ended, and was faster
        if os.path.lexists(os.path.join(path, "bin", "python")):
            shutil.rmtree(made, ignore_errors=True)
            return
        draft = f"{made}.link"
        os.symlink(os.path.basename(made), draft)
        os.replace(draft, path)  # also replaces a link to a removed environment
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise


def _environment(path: str) -> None:
    try:
        import venv
    except ImportError:
        raise RuntimeRefused(
            f"{sys.executable} has no module venv. Choose an image with Jupyter, or with this module."
        ) from None
    venv.EnvBuilder(system_site_packages=True, symlinks=True, with_pip=False).create(path)
    if sys.prefix == sys.base_prefix:
        return
    # This Python is a virtual environment: the new environment would see only its base.
    own = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    for place in glob.glob(os.path.join(glob.escape(path), "lib", "python*", "site-packages")):
        with open(os.path.join(place, "of_the_image.pth"), "w", encoding="utf-8") as file:
            file.write("".join(f"{one}\n" for one in sorted(own)))


def _install(path: str, report: Callable[[str], None]) -> None:
    python = os.path.join(path, "bin", "python")
    env = {name: value for name, value in os.environ.items() if name not in ("PIP_TARGET", "PIP_PREFIX", "PIP_ROOT")}
    env.update(PIP_USER="0", PIP_DISABLE_PIP_VERSION_CHECK="1")
    if subprocess.run(
        [python, path_of("module_start"), "pip", "--version"], capture_output=True, env=env, check=False
    ).returncode:
        raise RuntimeRefused(
            f"{sys.executable} has no pip to install {PACKAGE}. Choose an image with Jupyter, or with pip."
        )
    report(f"installing {PACKAGE}")
    found: set[str] = set()

    def read(line: str) -> str:
        if name := re.match(r"Collecting ([\w.-]+)", line):
            found.add(name[1])
            return f"installing {PACKAGE}: {len(found)} packages so far" if len(found) % 20 == 0 else ""
        return f"installing {PACKAGE}: {len(found)} packages" if line.startswith("Installing collected") else ""

    code, lines = images.run([python, path_of("module_start"), "pip", *_PIP], read, report, env)
    if code:
        text = "\n".join(lines)
        last = next((line for line in reversed(lines) if line.startswith("ERROR:")), lines[-1] if lines else "")
        then = (
            "The node cannot reach PyPI. Choose an image with Jupyter, or set https_proxy or PIP_INDEX_URL."
            if _NOT_OFFERED in text or tools.is_unreached(text)
            else "Read the lines of pip above."
        )
        sys.stderr.write(f"{text}\n")
        raise RuntimeRefused(f"{PACKAGE} could not be installed for {sys.executable}: {last[:300]}. {then}")
