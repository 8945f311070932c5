"""Tests of the panel's translations: complete, and at the path that JupyterLab searches."""

from __future__ import annotations

import importlib.util
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType

import pytest
from jupyterlab_server.translation_utils import get_language_pack

LANGUAGES = ("pt_BR",)


@pytest.fixture
def translations(request: pytest.FixtureRequest) -> ModuleType:
    """Provide the script that compares the translations."""
    path = Path(request.config.rootpath, "labextension", "translations.py")
    spec = importlib.util.spec_from_file_location("translations", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_text_is_translated(translations: ModuleType, language: str) -> None:
    assert len(translations.used()) > 100
    assert translations.missing(language) == {}, "labextension/translations.py says what is missing"
    assert not set(translations.catalogue(language)) - {"", *translations.used()}, "nobody says them any more"


@pytest.mark.parametrize("language", LANGUAGES)
def test_jupyterlab_finds_them(translations: ModuleType, language: str) -> None:
    """Only with the installed language pack of JupyterLab: otherwise the language cannot be chosen."""
    assert "jupyter_slurm" in {entry.name for entry in entry_points(group="jupyterlab.locale")}
    found, trouble = get_language_pack(language)
    assert not trouble.strip()
    assert found["jupyter_slurm"] == translations.catalogue(language)


def test_a_text_that_nobody_could_translate_is_found(translations: ModuleType) -> None:
    source = 'trans.__("one %1", n); this._trans._n(\n  "a \\"b\\"",\n  "c",\n  n,\n); _trans.__("three")'
    assert [*translations.texts(source)] == [("one %1",), ('a "b"', "c"), ("three",)]
    with pytest.raises(ValueError, match="not a plain text"):
        [*translations.texts("trans.__(label)")]
    assert [*translations.texts('toProblem(error, hint); toProblem(\n  error,\n  "look again",\n)')] == [
        ("look again",)
    ]
    with pytest.raises(ValueError, match="not a plain text"):
        [*translations.texts('toProblem(error, isOne ? "one" : "two")')]
