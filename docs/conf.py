"""Configuration of Sphinx for the documentation."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "extensions"))

from jupyter_slurm import __version__
from jupyter_slurm.documentation import DOCUMENTATION_URL

project = "jupyter_slurm"
author = "the jupyter_slurm developers"
copyright = f"2026, {author}"  # noqa: A001 - Sphinx's name
version = release = __version__

extensions = [
    "myst_parser",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinxext.opengraph",
    "executed_pages",
    "reference_pages",
]
myst_enable_extensions = ["attrs_inline", "colon_fence", "deflist"]
myst_heading_anchors = 4
exclude_patterns = ["_build", "outputs", "extensions"]
suppress_warnings = ["myst.strikethrough"]

autodoc_typehints = "none"
autodoc_member_order = "bysource"
napoleon_google_docstring = False
napoleon_use_rtype = False

html_theme = "pydata_sphinx_theme"
html_title = "jupyter_slurm"
html_baseurl = DOCUMENTATION_URL
html_theme_options = {"show_prev_next": True, "navigation_with_keys": False, "header_links_before_dropdown": 7}
html_static_path = []
ogp_site_url = DOCUMENTATION_URL
ogp_social_cards = {"enable": False}
copybutton_prompt_text = r"\$ "
copybutton_prompt_is_regexp = True
copybutton_only_copy_prompt_lines = True
copybutton_selector = "div:not(.executed-output) > div.highlight > pre"
pygments_style = "friendly"
