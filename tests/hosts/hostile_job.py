"""A job that attacks the computer it came from, by means of the folder that is copied back (``stage=``).

``CELL`` is a Python cell that does everything at once: run it with ``stage=FOLDER`` on any cluster, or on the replica of
a site. ``fill`` puts secrets into the folder first, ``check_untouched`` says afterwards what the job has achieved.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

__all__ = ["CELL", "HELD", "SECRETS", "check_untouched", "fill", "leaked"]

HELD = (
    *(
        ".envrc",
        ".env",
        ".vscode/tasks.json",
        ".vscode/settings.json",
        ".idea/workspace.xml",
        ".pre-commit-config.yaml",
    ),
    *(".husky/pre-commit", ".jupyter/jupyter_server_config.py", ".Rprofile", ".exrc", ".bashrc", ".config/x"),
    *("conftest.py", "pkg/conftest.py", "sitecustomize.py", "usercustomize/__init__.py", "evil.pth", "Makefile"),
    *("jupyter_server_config.py", "ipython_config.py", "pyproject.toml", "setup.py", "pytest.ini", "package.json"),
    *("json.py", "logging/__init__.py", "HEAD", "CONFTEST.PY", "line\nbreak", "escape\x1b[2J"),
)
"""Files that something on the computer of the user runs, or whose name hides what it is."""

SECRETS = {
    ".git/config": "token of git\n",
    ".git/hooks/pre-commit": "#!/bin/sh\n",
    ".hg/hgrc": "token of hg\n",
    ".ssh/id_ed25519": "private key\n",
    "private.txt": "left out by the filter\n",
    "deep/private.txt": "left out by the filter\n",
    "own env/pyvenv.cfg": "home = /usr/bin\n",
    "own env/bin/python": "a python\n",
    "own env/lib/token": "token in an environment\n",
    "[conda] *env/conda-meta/history": "",
    "[conda] *env/token": "token in an environment\n",
}
"""Files of the user that must neither be sent nor be changed, by path."""

CELL = f"""
import os
HELD, SECRETS = {HELD!r}, {tuple(SECRETS)!r}

def write(path, text):
    os.makedirs(os.path.dirname(path) or '.', exist_ok=True)
    with open(path, 'w') as file:
        file.write(text)

for folder in ('.', 'deep', '.git', 'own env'):
    write(f'{{folder}}/.rsync-filter', '!\\n+ .*\\n+ *\\n+ .git/\\n+ .git/config\\n')
for path in HELD:
    write(path, 'evil')
for path in SECRETS:
    write(path, 'evil')
write('own env/lib/evil.pth', 'import evil')
write('new env/pyvenv.cfg', 'home = /')
write('new env/bin/python', 'evil')
write('.GIT/config', 'evil')
write('.g\\u200cit/config', 'evil')
for name, target in (
    ('absolute', '/etc/passwd'), ('up', '../../secret'), ('deep/up', '../../secret'), ('winding', 'deep/../../secret'),
    ('of git', '.git/config'), ('through', 'deep'), ('fine', 'result'), ('of env', 'own env/bin/python'),
):
    os.symlink(target, name)
os.mkfifo('pipe')
try:
    os.mknod('device', 0o20666, os.makedev(1, 3))
except PermissionError:
    pass
write('result', 'result')
os.chmod('result', 0o6777)
"""
"""The job. It ends without an error."""


def fill(folder: Path) -> None:
    """Write a project with secrets, and with a filter that leaves some of them out."""
    for name, text in SECRETS.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    (folder / ".rsync-filter").write_text("- private.txt\n")
    (folder / "program.py").write_text("print('the program')\n")


def check_untouched(folder: Path, accepted: Iterable[str] = ()) -> None:
    """Check that a folder has the result of the job, and nothing that the job wanted to place in it."""
    assert (folder / "result").read_text() == "result"
    assert not (folder / "result").stat().st_mode & 0o6000
    assert os.readlink(folder / "fine") == "result"
    for name, text in SECRETS.items():
        assert (folder / name).read_text() == text, f"the job has changed {name}"
    assert (folder / ".rsync-filter").read_text() == "- private.txt\n"
    placed = {str(path.relative_to(folder)) for path in folder.rglob("*")} - set(accepted)
    assert not placed & {*HELD, "deep/.rsync-filter", ".git/.rsync-filter", "own env/lib/evil.pth", "device", "pipe"}
    assert not {name for name in placed if name.startswith(("new env", ".GIT", ".g\u200c"))}
    leading = {name for name in placed if (folder / name).is_symlink()}
    assert leading <= {"fine", "through"}, f"links to files that the job must not choose: {leading}"


def leaked(copy: Path) -> list[str]:
    """Return the secrets that the copy of the folder on the cluster has."""
    texts = {text for text in SECRETS.values() if text}
    return [str(path) for path in copy.rglob("*") if path.is_file() and path.read_text(errors="replace") in texts]
