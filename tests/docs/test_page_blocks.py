"""Tests of the form of executed pages, of their stored outputs, and of the names that readers see."""

from __future__ import annotations

from pathlib import Path

import pytest
from page_blocks import Block, PageError, Run, find_digest, parse_page, read_pages
from page_outputs import Output, Stored, load_outputs, save_outputs
from pages.neutral import Neutral

HEAD = "---\nrun:\n  cluster: embedded\n  from: login\n---\n"

PAGE = f"""{HEAD}
# A page

```{{cell}}
:expect: on dgx\\d+: .
:hidden:
%load_ext jupyter_slurm

x = 1
```

:::::{{tab-set}}
::::{{tab-item}} One
```{{terminal}}
:fails:
$ squeue \\
>   --me
$ false
```
::::
:::::

````markdown
```{{cell}}
shown, not run
```
````

````{{note}}
```console
$ not run
```
```{{cell}}
1 / 0
```
````
"""


def test_blocks_are_read_in_their_order_from_containers_and_not_from_examples() -> None:
    page = parse_page(PAGE)
    assert page.run == Run("embedded", "login")
    assert [(block.kind, block.source) for block in page.blocks] == [
        ("cell", "%load_ext jupyter_slurm\n\nx = 1"),
        ("terminal", "$ squeue \\\n>   --me\n$ false"),
        ("cell", "1 / 0"),
    ]
    first, second, third = page.blocks
    assert (first.expected, first.is_hidden, first.fails) == (r"on dgx\d+: .", True, False)
    assert (second.expected, second.is_hidden, second.fails) == ("", False, True)
    assert second.commands == ["squeue \\\n  --me", "false"]
    assert PAGE.splitlines()[third.line - 1] == "```{cell}"


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("```{cell}\nx\n```\n", "line 1: without `run:`"),
        ("---\nrun:\n  cluster: embedded\n  from: home\n---\n", "`from: laptop`"),
        ("---\nrun: embedded\n---\n", "needs `cluster: NAME`"),
        (HEAD + "```{cell}\n:output: 1\nx\n```\n", "line 6: {cell} has no option output"),
        (HEAD + "```{terminal}\nsqueue\n```\n", "begins with `\\$ `, not with 'squeue'"),
    ],
)
def test_a_page_that_cannot_be_run_is_refused(text: str, fault: str) -> None:
    with pytest.raises(PageError, match=fault):
        parse_page(text)


def test_pages_are_named_by_their_path(tmp_path: Path) -> None:
    (tmp_path / "how-to").mkdir()
    (tmp_path / "_build").mkdir()
    for name in ("how-to/a.md", "_build/a.md"):
        (tmp_path / name).write_text(HEAD)
    (tmp_path / "plain.md").write_text("# Nothing is run\n")
    assert [page.name for page in read_pages(tmp_path)] == ["how-to/a"]


def test_outputs_are_kept_with_pictures_and_renewed_only_if_more_than_numbers_changed(tmp_path: Path) -> None:
    def stored(text: str, picture: bytes = b"") -> list[Stored]:
        outputs = [Output(text), *([Output(picture=picture)] if picture else [])]
        return [Stored("1", tuple(outputs)), Stored("2", ())]

    first = stored("Job 12: COMPLETED, ran 0:02\n key 20261125-9f", b"PNG")
    save_outputs(tmp_path, "how-to/page", first)
    assert load_outputs(tmp_path, "how-to/page") == first
    assert (tmp_path / "how-to" / "page-1-2.png").read_bytes() == b"PNG"
    save_outputs(tmp_path, "how-to/page", stored("Job 137:  COMPLETED, ran 0:31\n key 20261126-a7", b"other"))
    assert load_outputs(tmp_path, "how-to/page") == first
    changed = stored("Job 12: FAILED, ran 0:02\n key 20261125-9f")
    save_outputs(tmp_path, "how-to/page", changed)
    assert load_outputs(tmp_path, "how-to/page") == changed
    assert [path.name for path in (tmp_path / "how-to").iterdir()] == ["page.json"]
    assert load_outputs(tmp_path, "how-to/other") == []


def test_the_key_of_outputs_changes_with_the_text_alone() -> None:
    assert find_digest("cell", "x = 1 \n\ny\n") == Block("cell", "x = 1\n\ny", line=7, expected="y").digest
    assert len({find_digest("cell", "a"), find_digest("terminal", "a"), find_digest("cell", "b")}) == 3


def test_readers_see_neither_names_nor_numbers_nor_colors_of_a_run() -> None:
    neutral = Neutral(["jsl41234p0", "root"], {"/tmp/x/h": "/home/ana", "box7": "login"}, 39212782)
    assert neutral("\x1b[31mJob 39212783\x1b[0m of jsl41234p0 on box7, box7b, sbox7:\r\n10%\r100%\n") == (
        "Job 1202 of ana on login, box7b, sbox7:\n100%"
    )
    assert (
        neutral("/tmp/x/h/a and job_root, /root, ?token=0123456789abcdef")
        == "/home/ana/a and job_root, /root, ?token=…"
    )
    assert neutral("   JOBID     USER  ST\n39212785 jsl41234   R\n   12345 x") == (
        "   JOBID     USER  ST\n    1204      ana   R\n   12345 x"
    )
    assert neutral("Step 39212783.0 and 2.39212783") == "Step 1202.0 and 2.39212783"
    assert neutral("the user of it\nhost (root@x) asks root") == "the user of it\nhost (ana@x) asks ana"
    assert neutral("JOBID     USER        STATE\n39212785  jsl41234p0  RUNNING") == (
        "JOBID     USER        STATE\n1204      ana         RUNNING"
    )
    assert neutral("     User  JobID\n jsl4123+  1") == "     User  JobID\n      ana  1"
