"""Files for the people of the project: versions, links, and forms that a hosting service can read."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

import jupyter_slurm

ROOT = Path(__file__).parents[2]
PAGES = ["CONTRIBUTING.md", "SECURITY.md", "CODE_OF_CONDUCT.md", "CHANGELOG.md"]


def test_the_citation_names_this_version() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    assert str(cited["cff-version"]) == "1.2.0"
    assert cited["version"] == jupyter_slurm.__version__
    assert cited["license"] == "BSD-3-Clause"
    assert cited["title"]
    assert cited["message"]
    assert all(author["name"] for author in cited["authors"])


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    targets = re.findall(r"\]\(([^)#]+)[^)]*\)", (ROOT / page).read_text("utf-8"))
    assert [target for target in targets if "://" not in target and not (ROOT / target).exists()] == []


def test_the_changelog_has_the_form_of_keep_a_changelog() -> None:
    text = (ROOT / "CHANGELOG.md").read_text("utf-8")
    releases = re.findall(r"^## (.+)$", text, re.MULTILINE)
    assert releases[0] == "[Unreleased]"
    assert all(re.fullmatch(r"\[\d+\.\d+\.\d+\] - \d{4}-\d{2}-\d{2}", release) for release in releases[1:])
    kinds = set(re.findall(r"^### (.+)$", text, re.MULTILINE))
    assert kinds <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
    unreleased = re.split(r"^## \[\d", text, maxsplit=1, flags=re.MULTILINE)[0]
    assert len(unreleased.splitlines()) <= 150, "a line for each theme, not for each commit"


@pytest.mark.parametrize("form", ["bug", "feature"])
def test_an_issue_form_is_complete(form: str) -> None:
    read = yaml.safe_load((ROOT / ".github" / "ISSUE_TEMPLATE" / f"{form}.yml").read_text("utf-8"))
    assert read["name"]
    assert read["description"]
    fields = [field for field in read["body"] if field["type"] != "markdown"]
    assert all(field["attributes"]["label"] for field in fields)
    names = [field["id"] for field in fields]
    assert len(names) == len(set(names))
    assert any(field.get("validations", {}).get("required") for field in fields)
