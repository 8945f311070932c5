"""Commands over SSH with any login shell and any output of its start-up files."""

import asyncio
import os
from pathlib import Path

import pytest

from jupyter_slurm.errors import CommandMissing, TransportError
from jupyter_slurm.transport.base import Completed
from jupyter_slurm.transport.ssh.shell import pool as pool_module
from jupyter_slurm.transport.ssh.shell.login_shell_check import check_prelude

pytestmark = pytest.mark.root

pytestmark = pytest.mark.root


@pytest.fixture(params=["paramiko", "openssh"])
def ssh_carrier(request):
    """Return the carrier."""
    return request.param


NOISE = "echo welcome; echo oops >&2; "

_ALIASES = "alias exec 'echo not this'; alias printenv 'echo nor this'; alias env true"

# Names that the shell, its files and Slurm have; aliases are expanded without a terminal, too.
_OWN_ALIASES = "\n".join(
    f"alias {name}='echo evil'"
    for name in ("ls", "cat", "cd", "printf", "exec", "read", "sh", "squeue", "sbatch", "kill")
)

# Login shell, start-up files.
SHELLS = {
    "bash": ("bash", {}),
    "bash-noisy": ("bash", {".bashrc": NOISE}),
    "bash-reads": ("bash", {".bashrc": "read line; echo got $line"}),
    "bash-becomes-zsh": ("bash", {".bashrc": "echo hello; exec zsh"}),
    "bash-aliases": ("bash", {".bashrc": f"shopt -s expand_aliases\n{_OWN_ALIASES}\nexport BASH_ENV=~/.bashrc"}),
    "bash-terminal": (
        "bash",
        {".bashrc": "stty erase ^H; tput cols; mesg n; tty; PROMPT_COMMAND='echo evil'; PS1=x; bind x"},
    ),
    "bash-slow": ("bash", {".bashrc": "sleep 4; echo at last"}),
    "zsh-noisy": ("zsh", {".zshenv": NOISE + "setopt noglob nullglob"}),
    "fish-noisy": ("fish", {".config/fish/config.fish": NOISE}),
    "tcsh-noisy": ("tcsh", {".tcshrc": 'echo welcome; sh -c "echo oops >&2"; ' + _ALIASES}),
    "csh-terminal": (
        "csh",
        {".cshrc": "stty erase ^H; set prompt = '%m> '; alias sh 'echo evil'; alias squeue 'echo no'"},
    ),
    "zsh-aliases": ("zsh", {".zshenv": f"setopt aliases\n{_OWN_ALIASES}\nstty erase ^H"}),
    "tcsh-reads": ("tcsh", {".tcshrc": "set line = $<"}),
    "dash": ("dash", {}),
}

LOGIN_FILES = {
    "bash": {".bash_profile": "echo hi; export PATH=$PATH:$HOME/far FAR=y"},
    "zsh": {".zprofile": "echo hi; export PATH=$PATH:$HOME/far FAR=y"},
    "fish": {
        ".config/fish/config.fish": "status is-login; and set -gx PATH $PATH $HOME/far; and set -gx FAR y; echo hi"
    },
    "tcsh": {".tcshrc": _ALIASES, ".login": "echo hi; setenv PATH ${PATH}:$HOME/far; setenv FAR y"},
    "dash": {".profile": "echo hi; PATH=$PATH:$HOME/far; export PATH FAR=y"},
}


@pytest.fixture(scope="module")
def shell_host(ssh_host, new_user):
    users = {name: new_user(shell=shell, files=files) for name, (shell, files) in SHELLS.items()}
    users |= {f"login-{shell}": new_user(shell=shell, files=files) for shell, files in LOGIN_FILES.items()}
    return ssh_host(name="shells", users=list(users.values())), users


@pytest.mark.parametrize("name", SHELLS)
async def test_any_login_shell_and_whatever_its_files_print(shell_host, connect, name):
    host, users = shell_host
    transport = connect(host, user=users[name]).transport
    odd = ["a b", "$HOME", "!!", "*", "'", '"', "\\", "\n", "~", "\udcff", "{a,b}", "%d"]
    done = await transport.run(["printf", "%s\\0", *odd])
    assert (done.exit_code, done.stderr) == (0, b"")
    assert done.stdout.split(b"\0")[:-1] == [os.fsencode(word) for word in odd]
    done = await transport.run(
        ["sh", "-c", "cat; echo $JUPYTER_SLURM_SHELL >&2; exit 5"], stdin=bytes(range(256)) * 1000
    )
    assert done == Completed(5, bytes(range(256)) * 1000, b"\n")


async def test_start_up_files_that_take_long_are_waited_for_and_told_of(ssh_host, new_user, connect, monkeypatch):
    """Check start-up files slower than the command's own time limit: the wait is reported, and is limited."""
    monkeypatch.setattr(pool_module, "_SLOW_NOTICE_S", 0.2)
    user = new_user(files={".bashrc": "until [ -e ~/go ]; do sleep 0.05; done"})
    host, told = ssh_host(name="slow", users=[user]), asyncio.Event()

    async def slow():
        told.set()
        await asyncio.Event().wait()

    impatient = connect(host, user=user, timeout=0.5).transport
    with pytest.raises(TransportError, match=r"did not start within 0\.5 s") as refused:
        await impatient.run(["true"])
    assert "patience" in refused.value.hint
    transport = connect(host, user=user, slow=slow).transport
    running = asyncio.create_task(transport.run(["echo", "x"], timeout=2))
    await told.wait()
    await asyncio.sleep(2.5)
    assert not running.done()
    Path(f"~{user}/go").expanduser().touch()
    assert (await running).stdout == b"x\n"


@pytest.mark.parametrize("shell", LOGIN_FILES)
async def test_a_path_that_only_a_login_shell_sets(shell_host, connect, shell):
    host, users = shell_host
    plain = connect(host, user=users[f"login-{shell}"]).transport
    assert (await plain.run(["sh", "-c", "echo $FAR"])).stdout == b"\n"
    login = connect(host, user=users[f"login-{shell}"], login_shell=True).transport
    done = await login.run(["sh", "-c", "echo $FAR; echo $PATH"])
    assert done.stderr == b""
    assert done.stdout.startswith(b"y\n")
    assert done.stdout.endswith(b"/far\n")


async def test_a_prelude_is_run_once_and_what_it_prints_is_nobodys_answer(login_node, connect, new_folder):
    folder = new_folder(login_node.user)
    prelude = (
        f"module() {{ echo loading $2 >&2; export PATH=$PATH:/opt/$2; }}\necho x >>{folder}/runs; module load slurm"
    )
    transport = connect(login_node, prelude=prelude).transport
    for _ in range(3):
        done = await transport.run(["sh", "-c", "echo $PATH"])
        assert (done.stderr, done.stdout.endswith(b":/opt/slurm\n")) == (b"", True)
    assert (folder / "runs").read_text() == "x\n"


@pytest.mark.parametrize("prelude", ["exit 3", "echo 'half"])
async def test_a_prelude_that_ends_the_shell_is_named(login_node, connect, prelude):
    with pytest.raises(TransportError, match="prelude"):
        await connect(login_node, prelude=prelude).transport.run(["true"])


async def test_start_up_files_that_end_the_login_shell_are_named(ssh_host, new_user, connect):
    user = new_user(files={".bashrc": "echo 'no quota left' >&2; exit 1"})
    closed = new_user(shell="/usr/sbin/nologin")
    host = ssh_host(name="ending", users=[user, closed])
    for who, said in ((user, "no quota left"), (closed, "This account is currently not available")):
        with pytest.raises(TransportError, match=f"login shell ended.*{said}"):
            await connect(host, user=who).transport.run(["true"])


# Start-up files, and what is said of them.
_READERS = {
    "exec fish": ("bash", ".bashrc", "replace it with fish, which reads all its input"),
    "cat": ("bash", ".bashrc", "start-up files read all its input"),
    "exec fish # csh": ("tcsh", ".tcshrc", "replace it with fish"),
}


async def test_start_up_files_that_read_all_input_are_named_before_the_patience_is_over(
    ssh_host, new_user, connect, monkeypatch
):
    monkeypatch.setattr(pool_module, "_SILENCE_S", 0.5)
    users = {
        line: new_user(shell=shell, files={name: f"echo hello\n{line}\n"})
        for line, (shell, name, _) in _READERS.items()
    }
    host = ssh_host(name="readers", users=list(users.values()))
    for line, (shell, name, said) in _READERS.items():
        with pytest.raises(TransportError, match=said) as refused:
            await connect(host, user=users[line], timeout=1000).transport.run(["true"])
        assert name.lstrip(".") in refused.value.hint, (shell, line)


GREETING = "#%Module\nprepend-path PATH /opt/slurm/bin\nputs stderr {loading slurm}\n"
FOLDER = "export MODULEPATH=$HOME/modulefiles\n"


@pytest.mark.parametrize("sh", ["dash", "bash"])
async def test_a_prelude_has_the_command_module(ssh_host, new_user, connect, unavailable, sh):
    """Check a prelude with ``module`` of the system, also if start-up files have not defined it for /bin/sh."""
    if not os.path.exists("/usr/share/modules/init/sh"):
        unavailable("environment-modules is not installed")
    files = {".bashrc": FOLDER, ".bash_profile": f". /etc/profile\n{FOLDER}", "modulefiles/slurm": GREETING}
    user = new_user(shell="bash", files=files)
    host = ssh_host(name=f"modules-{sh}", users=[user], mounts={"/bin/sh": Path(f"/bin/{sh}")})
    for login in (False, True):
        link = connect(host, user=user, login_shell=login, prelude="module load slurm")
        done = await link.transport.run(["sh", "-c", "echo $PATH"])
        assert b"/opt/slurm/bin" in done.stdout, (sh, login)
        end = await check_prelude(link.link, "module load slurm", login, 60)
        assert (end.exit_code, end.output) == (0, "loading slurm")


async def test_what_a_prelude_says_stands_where_its_command_is_missing(login_node, connect):
    for prelude, said in (
        ("source /opt/x/init; modul load slurm", "exit code 127"),
        ("echo 'no licence'  >&2; false", "exit code 1: no licence"),
        ("printf 'a\\033[31m\\r\\nb\\377' >&2; (exit 3)", "exit code 3: a[31m\nb\ufffd"),
        ("head -c 300000 /dev/zero | tr '\\0' x >&2; echo the end >&2; false", "xxxthe end"),
        ("true", "`prelude`"),
    ):
        with pytest.raises(CommandMissing) as missing:
            await connect(login_node, prelude=prelude).transport.run(["sbatch-of-a-module"])
        assert said in missing.value.hint, missing.value.hint
