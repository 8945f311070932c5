"""Displays of clusters that are not trusted."""

from __future__ import annotations

import time
from typing import Any

import pytest

from jupyter_slurm.client.output import untrusted_displays

PNG = "iVBORw0KGgo="
TABLE = (
    '<div>\n<style scoped>\n .dataframe {position: fixed}\n</style>\n<table border="1" class="dataframe">\n<thead>\n'
    '<tr style="text-align: right;">\n<th></th>\n<th>a &amp; b</th>\n</tr>\n</thead>\n<tbody><tr><th>0</th><td>1</td>'
    "</tr></tbody></table></div>"
)


@pytest.fixture(autouse=True)
def nobody_is_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(untrusted_displays, "is_trusted", lambda cluster: cluster == "local")


def shown(**data: Any) -> dict[str, Any]:
    bundle = {name.replace("__", "/", 1).replace("_", "."): content for name, content in data.items()}
    return untrusted_displays.screened("far", bundle, {})[0]


def test_elements_without_end_tags_are_not_nested() -> None:
    rows = "".join(f"<tr><td>{number}<td>x" for number in range(300))
    found = shown(text__html=f"<table>{rows}</table><ul>{'<li>one' * 300}</ul>")["text/html"]
    assert [found.count(f"<{tag}>") for tag in ("tr", "td", "li")] == [300, 600, 300]
    assert "Not shown" not in found


def test_displays_of_trusted_clusters_are_as_they_are() -> None:
    given = {"application/javascript": "alert(1)", "text/html": "<script>1</script>"}
    assert untrusted_displays.screened("local", given, {"x": {}}) == (given, {"x": {}})


def test_figures_tables_and_texts_are_kept() -> None:
    assert untrusted_displays.screened(
        "far", {"image/png": PNG, "text/plain": "<Figure>"}, {"image/png": {"width": 3}}
    ) == (
        {"image/png": PNG, "text/plain": "<Figure>"},
        {"image/png": {"width": 3}},
    )
    found = shown(text__html=TABLE, text__plain="a")
    assert found["text/plain"] == "a"
    assert '<table border="1" class="dataframe">' in found["text/html"]
    assert '<tr style="text-align: right;">' in found["text/html"]
    assert "<th>a &amp; b</th>" in found["text/html"]
    assert "fixed" not in found["text/html"]
    assert "Not shown" not in found["text/html"]
    assert shown(text__latex=r"$\frac{1}{2}$", text__markdown="**a**") == {
        "text/latex": r"$\frac{1}{2}$",
        "text/markdown": "**a**",
    }
    drawing = shown(**{"image__svg+xml": '<svg onload="alert(1)"/>'})
    assert drawing.keys() == {"text/html"}
    assert drawing["text/html"].startswith('<img src="data:image/svg+xml,%3c')


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        ("application/javascript", "alert(1)"),
        ("application/vnd.bokehjs_exec.v0+json", ""),
        ("application/vnd.plotly.v1+json", {"data": []}),
        ("application/vnd.jupyter.widget-view+json", {"model_id": "1"}),
        ("application/x-anything", "x"),
        ("application/pdf", PNG),
        ("text/html", "<script>alert(1)</script>"),
        ("text/html", ["<scr", "ipt>alert(1)</script>"]),
        ("text/html", "<iframe src='javascript:alert(1)'></iframe>"),
        ("text/html", 3),
        ("text/markdown", "<img src=x onerror=alert(1)>"),
        ("text/markdown", "[x](javascript:alert(1))"),
        ("text/latex", r"$\href{javascript:alert(1)}{x}$"),
        ("image/png", '"><script>alert(1)</script>'),
        ("image/svg+xml", {"a": 1}),
    ],
)
def test_what_can_run_code_is_replaced_by_a_note(kind: str, content: Any) -> None:
    found, metadata = untrusted_displays.screened(
        "far", {kind: content, "text/plain": "text"}, {kind: {"isolated": True}}
    )
    assert found.keys() == {"text/plain"}
    assert found["text/plain"].startswith(f"text\nNot shown: {kind}.")
    assert 'trust = "always"' in found["text/plain"]
    assert "explanation/trust" in found["text/plain"]
    assert not metadata.get("text/html")


@pytest.mark.parametrize(
    "html",
    [
        "<img src=x onerror=alert(1)>",
        "<img src='data:image/svg+xml,<svg onload=alert(1)>'>",
        "<a href='javascript:alert(1)'>x</a>",
        "<a href=' jAvAscript&colon;alert(1)'>x</a>",
        "<svg><script>alert(1)</script></svg>",
        "<math><mtext><table><mglyph><style><img src=x onerror=alert(1)></style></table></mtext></math>",
        "<b onclick=alert(1)>x</b>",
        "<object data='javascript:alert(1)'></object>",
        "<form action='https://evil.example'><button>x</button></form>",
        "<!--><img src=x onerror=alert(1)>-->",
        "<scr<script>ipt>alert(1)</scr</script>ipt>",
        "<base href='https://evil.example'><link rel=stylesheet href=//evil.example>",
        "<b data-commandlinker-command='notebook:run-all' class='jp-x'>x</b>",
        "<b style='background: url(https://evil.example)'>x</b><b style=\"position:fixed\">x</b>",
        "<noscript><p title='</noscript><img src=x onerror=alert(1)>'></noscript>",
        "<template><script>alert(1)</script></template>x<textarea></textarea><script>alert(1)</script>",
        "<![CDATA[<script>alert(1)</script>]]><?php <script>?>",
    ],
)
def test_no_html_acts(html: str) -> None:
    found = shown(text__html=f"begin {html} end").get("text/html", "")
    lowered = found.lower()
    for word in ("<script", "<svg", "<math", "<style", "<iframe", "<object", "<form", "<base", "<link", "<noscript"):
        assert word not in lowered
    for word in (' onerror="', ' onclick="', 'href="j', "url(", "position", "data-", "jp-", "<template", "<!"):
        assert word not in lowered
    assert "alert" not in [part.partition('"')[0] for part in lowered.split('src="')[1:]]


@pytest.mark.parametrize(
    "html",
    [
        '<p style="' + "color: " * 14 + '!">x</p>',
        '<p style="' + "color: " * 5000 + '!">x</p>',
        "<a x" * 8000,
        "<!--" * 16_000,
        "<b>" * 16_000 + "</i>" * 16_000,
    ],
    ids=lambda html: html[:20],
)
def test_html_of_a_job_does_not_hold_the_kernel(html: str) -> None:
    begun = time.process_time()
    shown(text__html=html)
    assert time.process_time() - begun < 1.0


@pytest.mark.parametrize(
    "style", ["color: red; text-align: right;", "color:red", "text-align: right; ", "color : red;border: 1px solid"]
)
def test_known_styles_are_kept(style: str) -> None:
    assert f'style="{style}"' in shown(text__html=f'<p style="{style}">x</p>')["text/html"]


@pytest.mark.parametrize("style", ["color: url(x)", "color: red; foo: bar", "color: red;" + " " * 2000])
def test_other_styles_are_left_out(style: str) -> None:
    assert shown(text__html=f'<p style="{style}">x</p>')["text/html"] == "<p>x</p>"


@pytest.mark.parametrize("html", ["<b>" * 300 + "x", "<b>x</b>" * 300_000, "<![x[y]]>"], ids=lambda html: html[:20])
def test_html_that_no_browser_needs_is_left_out_with_a_note(html: str) -> None:
    found = shown(text__html=html, text__plain="text")
    assert found["text/plain"].startswith("text\nNot shown: text/html.")
    assert found.get("text/html", "").count("<b>") <= 200


@pytest.mark.parametrize(("end", "text"), [("a &amp", "a &amp;"), ("1 <", "1 &lt;"), ("<a x", "&lt;a x")])
def test_unfinished_html_is_text(end: str, text: str) -> None:
    assert shown(text__html=f"<p>x</p>{end}")["text/html"] == f"<p>x</p>{text}"
