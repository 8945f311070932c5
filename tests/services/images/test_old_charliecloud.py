"""Tests of an old Charliecloud: stand-ins of ch-build, ch-builder2tar and ch-tar2dir, with the real builder below."""

from __future__ import annotations

import json
import os
import pwd
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from containers import Node
from registry import Registry

pytestmark = [pytest.mark.root, pytest.mark.slow]

PROGRAMS = {
    "ch-run": """#!/bin/sh
[ "$1" = --help ] && { /usr/bin/ch-run --help | /usr/bin/grep -v -e "  --home" -e --set-env; exit; }
for word; do
    case $word in
    --) break ;;
    --home) echo "ch-run: unrecognized option '--home'" >&2; exit 64 ;;
    --set-env) echo "ch-run: --set-env takes the image for its file" >&2; exit 64 ;;
    esac
done
exec /usr/bin/ch-run --home "$@"
""",
    "ch-build": """#!/bin/sh
[ "$1 $3" = "-t -f" ] || exit 9
export PATH=/usr/bin:/bin CH_IMAGE_STORAGE="$CH_GROW_STORAGE"
unset CH_GROW_STORAGE
exec /usr/bin/ch-image --no-cache build --force --tag="$2" --file="$4" "$5"
""",
    "ch-builder2tar": """#!/bin/sh
export PATH=/usr/bin:/bin CH_IMAGE_STORAGE="$CH_GROW_STORAGE"
unset CH_GROW_STORAGE
exec /usr/bin/ch-convert -i ch-image -o tar "$1" "$2/$(echo "$1" | tr / %).tar.gz"
""",
    "ch-tar2dir": """#!/bin/sh
PATH=/usr/bin:/bin
tree=$2/$(basename "$1" .tar.gz)
mkdir "$tree" && tar -C "$tree" -xzf "$1"
""",
}


@pytest.fixture
def old_path(short_path: Path, unavailable: Callable[[str], None]) -> dict[str, str]:
    """Provide the PATH of a node with the programs of an old Charliecloud only."""
    if shutil.which("ch-image") is None or shutil.which("ch-run") is None:
        unavailable("charliecloud-builders is not installed")
    folder = short_path / "old"
    folder.mkdir()
    for name, text in PROGRAMS.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    return {"PATH": str(folder)}


def _wish(node: Node, folder: Path, **wish: Any) -> Path:
    place = node.job(run=[])
    record = json.loads((place / "job.json").read_text())
    record["image"] = {"runtime": "charliecloud", "image_dir": str(folder), **wish}
    (place / "job.json").write_text(json.dumps(record))
    return place


def test_an_image_is_built_fetched_and_run_by_the_old_programs(
    node: Node, registry: Registry, old_path: dict[str, str], short_path: Path
) -> None:
    base, _ = registry.add("base/old")
    folder = short_path / "im ages"
    folder.mkdir()
    os.chown(folder, pwd.getpwnam(node.user).pw_uid, -1)
    env = {**old_path, **registry.env, "USER": node.user}  # a home in /home has an option of its own
    text = f"FROM {base}\nCOPY told /etc/told\n"
    context = node.folder / "con text"
    context.mkdir(mode=0o755)
    (context / "told").write_text("/told/")
    file = {"name": "Dockerfile", "kind": "dockerfile", "text": text, "folder": str(context)}
    place = _wish(node, folder, act="build", name="me/one:2", file=file)
    code, out, err = node.run(place, program="container-build.py", **env)
    assert code == 0, out + err
    assert sorted(path.name for path in folder.iterdir()) == ["me%one+2.charliecloud", "me%one+2.charliecloud.json"]
    described = {"runtime": "charliecloud", "image_dir": str(folder)}
    show = node.job(run=["/bin/cat", "/etc/image", "/etc/told"], image="me/one:2", **described)
    code, out, err = node.run(show, **env)
    assert (code, out) == (0, "base/old/told/"), err
    show = node.job(run=["/bin/cat", "/etc/image"], image=base, **described)  # fetched in the job
    code, out, err = node.run(show, **env)
    assert (code, out) == (0, "base/old"), err
    code, _, err = node.run(
        _wish(node, folder, act="pull", name="me/two:1", **{"from": "docker"}), program="container-build.py", **env
    )
    assert (code, "from= needs ch-convert" in err) == (1, True), err
