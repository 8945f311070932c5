"""Tests of the kind of a cell in a magic, and of the words of a line that name files of this computer."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from IPython.core.interactiveshell import InteractiveShell

from jupyter_slurm import load_ipython_extension, unload_ipython_extension
from jupyter_slurm.client.submission.script_files import read_script
from jupyter_slurm.domain.magic_line.expand import MISSING
from jupyter_slurm.domain.magic_line.parser import MagicLine, parse_cell_line
from jupyter_slurm.domain.options.option_parser import OptionTable
from jupyter_slurm.errors import CellError, UsageError
from jupyter_slurm.magics import sessions
from jupyter_slurm.magics.cell_options import cell_kind
from jupyter_slurm.magics.completion.completer import _allowed_keywords
from jupyter_slurm.magics.environments import environments, images
from jupyter_slurm.magics.sbatch import CELL_KEYWORDS, _parse_file_line
from jupyter_slurm.magics.srun import LINE_KEYWORDS
from jupyter_slurm.magics.user_namespace import parse_for_cluster
from jupyter_slurm.widgets import submit_form

TABLE = OptionTable.for_command("sbatch")


class _Parsed(Exception):
    """The parsed line, in place of a submission."""


@pytest.fixture
def shell() -> Any:
    return InteractiveShell()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Provide the home of this computer, other than that of the cluster."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PROJECT", "project")
    return tmp_path


def remote(*, is_logged_in: bool) -> Any:
    """Return a cluster over SSH."""
    return SimpleNamespace(
        name="mycluster",
        is_remote=True,
        login_variables=lambda: {"HOME": "/users/ana42", "USER": "ana42"} if is_logged_in else {},
        tables={"sbatch": TABLE},
    )


def parsed(line: str) -> MagicLine:
    return parse_cell_line(line, TABLE, CELL_KEYWORDS)


# The kind of a cell ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cell", ["nvidia-smi", "hostname\n", "make -j8", "cd /tmp\nls", "pwd\nx = 1", "pwd\n\n"])
def test_a_command_of_a_shell_is_refused_before_it_waits_for_a_gpu(shell: Any, cell: str) -> None:
    with pytest.raises(CellError, match="because it has no variable") as caught:
        cell_kind(shell, parsed("--gpus 1 wait"), cell)
    assert "#!/bin/bash" in str(caught.value.hint)
    assert "add in=" in str(caught.value.hint)


@pytest.mark.parametrize("cell", ["ls -l", "pwd", "\n\nls", "who"])
def test_a_single_line_may_be_a_magic_without_its_sign(shell: Any, cell: str) -> None:
    """IPython on the node runs it."""
    assert cell_kind(shell, parsed(""), cell) == "python"


def test_a_magic_that_the_node_lacks_is_refused(shell: Any) -> None:
    """Those of this extension, and aliases of the notebook."""
    load_ipython_extension(shell)
    try:
        shell.run_line_magic("alias", "gpus nvidia-smi")
        shell.run_line_magic("alias_magic", "clock time")
        for cell in ("squeue", "sinfo\n", "sacct", "srun", "gpus", "clock"):
            assert shell.find_line_magic(cell.strip()), cell
            with pytest.raises(CellError, match=f"no variable {cell.strip()}"):
                cell_kind(shell, parsed(""), cell)
        for cell in ("ls", "hist", "pwd", "time", "ll"):
            assert cell_kind(shell, parsed(""), cell) == "python"
    finally:
        unload_ipython_extension(shell)


@pytest.mark.parametrize("cell", ["ls", "ls -l", "pwd", "print(1)"])
def test_the_form_takes_the_cells_that_a_line_takes(shell: Any, cell: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submit_form, "get_ipython", lambda: shell)
    monkeypatch.setattr(submit_form, "option_table", lambda cluster, command: TABLE)
    monkeypatch.setattr(submit_form, "python_named", lambda name, cluster: "python3")
    form = SimpleNamespace(_cluster=remote(is_logged_in=True), line="%%sbatch -n 1")
    make = cast(Any, submit_form.SubmitForm)._submission
    assert make(form, cell).kind == "python"
    with pytest.raises(CellError) as caught:
        make(form, "nvidia-smi")
    assert caught.value.hint == "Add #!/bin/bash as its first line if it is a shell script."


@pytest.mark.parametrize("line", ["in=f", "sweep=lr:1,2"])
def test_variables_that_are_sent_may_bring_any_name(shell: Any, line: str) -> None:
    assert cell_kind(shell, parsed(line), "helper\nlr") == "python"


def test_a_script_is_a_script(shell: Any) -> None:
    assert cell_kind(shell, parsed(""), "#!/bin/bash\nnvidia-smi\n") == "script"
    with pytest.raises(CellError, match="The cell is empty"):
        cell_kind(shell, parsed(""), " \n")


def test_no_keyword_is_offered_after_a_command_with_the_name_of_one() -> None:
    assert _allowed_keywords("%srun", ["env"], "F") is None
    assert _allowed_keywords("%srun", ["env=torch", "wait"], "o") == LINE_KEYWORDS


# Files of this computer -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_logged_in", [False, True])
@pytest.mark.parametrize("line", ["~/job.sh", "$HOME/job.sh", "< ~/job.sh", "<$HOME/job.sh", "-p gpu ~/job.sh x"])
def test_the_script_of_a_line_is_a_file_of_this_computer(home: Path, line: str, is_logged_in: bool) -> None:
    (home / "job.sh").write_text("#!/bin/sh\ntrue\n")
    cluster = remote(is_logged_in=is_logged_in)
    parsed, _, name = _parse_file_line(line, cluster, TABLE, lambda name: MISSING)
    assert name == f"{home}/job.sh"
    assert read_script(cluster, parsed.rest[0], name).text == "#!/bin/sh\ntrue\n"
    far = f"{'/users/ana42' if is_logged_in else '~'}/none.sh"
    with pytest.raises(UsageError, match=f"{home}/none.sh cannot be read") as caught:
        read_script(cluster, far, f"{home}/none.sh")
    assert str(caught.value.hint).endswith(f"For a script on the cluster, use `%sbatch mycluster:{far}`.")


def test_other_words_have_the_variables_of_the_cluster(home: Path) -> None:
    line = "stage=$HOME/data:$HOME/d,~/code -o ~/x.out mycluster:$HOME/job.sh ~/arg $PROJECT"
    parsed, as_typed, _ = _parse_file_line(line, remote(is_logged_in=True), TABLE, lambda name: MISSING)
    assert parsed.keywords["stage"] == f"{home}/data:/users/ana42/d,~/code"
    assert parsed.options == ["-o", "/users/ana42/x.out"]
    assert parsed.rest == ["mycluster:/users/ana42/job.sh", "/users/ana42/arg", "$PROJECT"]
    assert as_typed.options == ["-o", "~/x.out"]
    with pytest.raises(UsageError, match="two scripts: /users/ana42/a and"):
        _parse_file_line("~/a < ~/b", remote(is_logged_in=True), TABLE, lambda name: MISSING)


@pytest.mark.parametrize("is_logged_in", [False, True])
def test_a_staged_folder_of_a_cell_is_one_of_this_computer(home: Path, is_logged_in: bool) -> None:
    line, cluster = "stage=$HOME/$PROJECT:$HOME/p -o $HOME/x.out", remote(is_logged_in=is_logged_in)
    there = "/users/ana42" if is_logged_in else "$HOME"
    found = parse_for_cluster(parse_cell_line, cluster, line, TABLE, CELL_KEYWORDS, lambda name: MISSING)
    assert found.keywords["stage"] == f"{home}/project:{there}/p"
    assert found.options == ["-o", f"{there}/x.out"]


@pytest.mark.parametrize("is_logged_in", [False, True])
def test_the_files_of_jobs_that_make_something_are_of_this_computer(
    home: Path, shell: Any, monkeypatch: pytest.MonkeyPatch, is_logged_in: bool
) -> None:
    cluster = remote(is_logged_in=is_logged_in)

    def submit(cluster: Any, request: Any) -> Any:
        raise _Parsed(request)

    for module, name in ((images, "submit_image"), (environments, "create_environment")):
        monkeypatch.setattr(module, "addressed", lambda line: (cluster, line))
        monkeypatch.setattr(module, name, submit)
    for word in ("~/Dockerfile", "$HOME/Dockerfile"):
        with pytest.raises(_Parsed) as caught:
            images.run(shell, f"build me/x:1 {word} context=/data", {})
        assert cast("Any", caught.value).args[0].file == f"{home}/Dockerfile"
    with pytest.raises(_Parsed) as caught:
        environments.run(shell, "create torch from=$HOME/r.txt -o $HOME/x.out", {})
    found = cast("Any", caught.value).args[0].parsed
    assert found.keywords["from"] == f"{home}/r.txt"
    assert found.options[1] == ("/users/ana42" if is_logged_in else "$HOME") + "/x.out"


def test_the_staged_folder_of_a_session_is_one_of_this_computer(
    home: Path, shell: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def launch(cluster: Any, parsed: MagicLine, *, on: Any) -> Any:
        raise _Parsed(parsed)

    monkeypatch.setattr(sessions, "resolve_cluster", lambda name: remote(is_logged_in=True))
    monkeypatch.setattr(sessions, "launch", launch)
    with pytest.raises(_Parsed) as caught:
        sessions.run(shell, " stage=$HOME/data dir=~/work -- serve {port} ~/x", {})
    found = cast("Any", caught.value).args[0]
    assert found.keywords["stage"] == f"{home}/data"
    assert found.args == ["serve", "{port}", "/users/ana42/x"]
