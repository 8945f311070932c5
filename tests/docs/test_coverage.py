"""Coverage of the documentation: each keyword, setting, profile key, command and error code occurs, with a meaning."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import reference_cli
import reference_errors
import reference_http
import reference_magics
import reference_profile
import reference_settings

import jupyter_slurm
from jupyter_slurm import documentation, errors
from jupyter_slurm.client.environments.environment import KEYWORDS as ENVIRONMENT_KEYWORDS
from jupyter_slurm.client.images.image import KEYWORDS as IMAGE_KEYWORDS
from jupyter_slurm.client.kernels.kernel import KEYWORDS as KERNEL_KEYWORDS
from jupyter_slurm.client.sessions.launch import WORDS as LAUNCH_KEYWORDS
from jupyter_slurm.config import Settings
from jupyter_slurm.magics import remote, salloc, sbatch, srun

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
WRITTEN = "\n".join(
    path.read_text("utf-8")
    for folder in ("getting-started", "how-to", "clusters", "help", "admin", "explanation")
    for path in sorted((DOCS / folder).glob("*.md"))
)
KEYWORDS = {
    "sbatch": sbatch.CELL_KEYWORDS,
    "salloc": salloc.KEYWORDS,
    "srun": srun.CELL_KEYWORDS,
    "remote": remote.CELL_KEYWORDS,
    "launch": LAUNCH_KEYWORDS,
    "kernel": KERNEL_KEYWORDS,
    "image": IMAGE_KEYWORDS,
    "env": ENVIRONMENT_KEYWORDS,
}


@pytest.mark.parametrize("magic", KEYWORDS)
def test_each_keyword_is_explained(magic: str) -> None:
    missing = [
        name for name, value in KEYWORDS[magic].items() if not re.search(rf"\b{name}{'=' if value else ''}", WRITTEN)
    ]
    assert not missing


def test_each_keyword_of_a_magic_has_a_meaning() -> None:
    page = reference_magics.page()
    empty = re.findall(r"^\| (`[^|]+`) \| *\|$", page, re.MULTILINE)
    assert not empty


def test_each_setting_has_a_meaning_and_a_default() -> None:
    page = reference_settings.page()
    for name, trait in Settings.class_traits(config=True).items():
        assert f"## {name}\n\n{trait.help}" in page
        assert trait.help
    assert str(Path.home()) not in page


def test_each_profile_key_has_a_meaning() -> None:
    whole = reference_profile.schema()
    keys = dict(reference_profile.keys(whole, whole.get("definitions", {})))
    assert len(keys) > 50
    assert not [name for name, node in keys.items() if not node.get("description")]


def test_each_command_is_on_its_page() -> None:
    page = reference_cli.page()
    for name, parser in reference_cli.command_parsers():
        assert f"\n## {name}\n" in page
        assert name in WRITTEN
        assert all(action.help for action in parser._actions), name


def test_each_error_is_on_its_page() -> None:
    page = reference_errors.page()
    codes = {cls.code for cls in errors._tree(errors.SlurmError)}
    assert len(codes) > 30
    assert not [code for code in codes if f"`{code}`" not in page]


def test_each_operation_is_on_its_page() -> None:
    page = reference_http.page()
    found = list(reference_http.operations())
    assert len(found) > 50
    assert not [path for _, path, one in found if not one.get("summary") or path not in page]


def test_each_public_name_is_on_its_page() -> None:
    page = (DOCS / "reference" / "python-api.md").read_text("utf-8")
    names = {*jupyter_slurm.__all__} - {"__version__", "errors"}
    assert not [name for name in names if not re.search(rf":: jupyter_slurm\.{name}$", page, re.MULTILINE)]


def test_pages_that_hints_name_exist() -> None:
    package = Path(jupyter_slurm.__file__).parent
    texts = {path: path.read_text("utf-8") for path in package.rglob("*.py") if path.name != "documentation.py"}
    assert not [path for path, text in texts.items() if documentation.DOCUMENTATION_URL in text]
    named = {name for text in texts.values() for name in re.findall(r"page_url\(\"([^\"]+)\"", text)}
    assert named
    generated = {f"reference/{name}" for name in ("cli", "errors", "http-api", "magics", "settings", "site-profile")}
    missing = []
    for name in sorted(named):
        page, _, section = name.partition("#")
        path = DOCS / f"{page}.md"
        if page in generated:
            continue
        headings = re.findall(r"^#+ (.+)$", path.read_text("utf-8"), re.MULTILINE) if path.exists() else []
        anchors = {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}
        explicit = (
            set(re.findall(r"^\(([\w-]+)\)=$", path.read_text("utf-8"), re.MULTILINE)) if path.exists() else set()
        )
        if not path.exists() or (section and section not in anchors | explicit):
            missing.append(name)
    assert not missing


def test_an_address_of_a_page() -> None:
    assert documentation.page_url("help/faq#a-b") == f"{documentation.DOCUMENTATION_URL}help/faq.html#a-b"
