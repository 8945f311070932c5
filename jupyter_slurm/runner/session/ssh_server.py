"""SSH server of a job, for ``serve.py``: OpenSSH's sshd as the ordinary user, on the loopback of the node.

It accepts one key, which the user's own computer has made for it, and has a host key that only this job knows. The
login shell gets the environment of the job, which sshd itself does not pass on. Like any other command, the server is
in use while it has connections.

Python 3.8+, standard library only.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing takes as long to load as everything else in this module
    from typing import Any

if "load" not in globals():  # load() sets it in the modules that it loads
    import runpy

    load = runpy.run_path(__file__[: -len("session/ssh_server.py")] + "loader.py")["load"]
if TYPE_CHECKING:
    from jupyter_slurm.runner import proc
    from jupyter_slurm.runner.job_directory import JobDirectory
    from jupyter_slurm.runner.session import command
else:
    # That of ``serve.py``, which catches its errors.
    command = sys.modules.get("jupyter_slurm_session_command") or load("session.command")
    proc = command.proc

_SYSTEM_FOLDERS = ("/usr/sbin", "/usr/local/sbin", "/sbin")  # of sshd; few users have them on their PATH
# Where Debian's sshd confines a child if it runs as root. The system's own service makes it, if that was ever started.
_OF_ROOT = "/run/sshd"
_KEYGEN_TIMEOUT_S = 60.0
_KEY = re.compile(r"ssh-ed25519 [A-Za-z0-9+/=]{40,200}")
# StrictModes would refuse directories below /tmp. Who could replace the job directory could replace its script, too.
# Dead clients are noticed, because a connection keeps the job.
_CONFIG = """\
ListenAddress 127.0.0.1
HostKey "{folder}/host_key"
AuthorizedKeysFile "{keys}"
PidFile none
StrictModes no
UsePAM no
AuthenticationMethods publickey
PubkeyAuthentication yes
PasswordAuthentication no
PermitRootLogin prohibit-password
PermitUserEnvironment yes
AllowAgentForwarding no
X11Forwarding no
PermitTunnel no
GatewayPorts no
MaxSessions 100
ClientAliveInterval 60
ClientAliveCountMax 3
PrintMotd no
AcceptEnv LANG LC_*
Subsystem sftp internal-sftp
"""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OF_A_LOGIN = frozenset("HOME USER LOGNAME SHELL MAIL TERM PWD OLDPWD SHLVL _ XDG_RUNTIME_DIR XDG_SESSION_ID".split())


def key_line(key: str, env: dict[str, str]) -> str:
    """Return the line of ``authorized_keys`` with the environment of the job, as far as sshd can carry it."""
    options = []
    for name, value in sorted(env.items()):
        is_plain = _NAME.fullmatch(name) and not re.search(r'[\n\r\0\ud800-\udfff]|\\"|\\$', value)
        if is_plain and name not in _OF_A_LOGIN and not name.startswith(("SSH_", "JUPYTER_SLURM")):
            options.append('environment="{}={}"'.format(name, value.replace('"', '\\"')))
    return " ".join([*([",".join(options)] if options else []), key]) + "\n"


class SshServer(command.CommandProcess):  # type: ignore[misc, unused-ignore]  # its class is loaded
    """sshd of a session.

    Parameters
    ----------
    place : JobDirectory
        Job directory (``job_directory.py``).
    env : dict
        Environment of the job.
    """

    def __init__(self, place: JobDirectory, env: dict[str, str]) -> None:
        super().__init__(place.job["session"], env)
        self._put, self._key = place.put, str(place.job["session"]["ssh"])
        self.folder = os.path.join(place.folder, "serving")

    def start(self) -> None:
        """Make the keys, and start the server on a free port."""
        search = os.pathsep.join([self.env["PATH"], *_SYSTEM_FOLDERS])
        sshd, keygen = (self._find(name, search) for name in ("sshd", "ssh-keygen"))
        if not _KEY.fullmatch(self._key):
            raise command.SessionStartError("The key of this computer is not valid.", "Run `jupyter slurm code` again.")
        if os.geteuid() == 0:
            os.makedirs(_OF_ROOT, 0o755, exist_ok=True)
        shutil.rmtree(self.folder, ignore_errors=True)  # of an earlier run: the job was requeued
        os.mkdir(self.folder, 0o700)
        self._make_host_key(keygen)
        keys = os.path.join(self.folder, "authorized_keys")
        self._put(keys, key_line(self._key, self.env))
        config = os.path.join(self.folder, "sshd_config")
        self._put(config, _CONFIG.format(folder=self.folder, keys=keys.replace("%", "%%")))
        self.words = [sshd, "-D", "-e", "-f", config, "-p", "{port}"]
        super().start()

    def _find(self, name: str, search: str) -> str:
        found = shutil.which(name, path=search)
        if found is None:
            raise command.SessionStartError(
                f"{proc.node_name()} has no {name}, which an editor needs to reach the node.",
                "Install OpenSSH into your environment with `conda install openssh`, or ask the administrators for the "
                "package openssh-server on the nodes.",
            )
        return os.path.abspath(found)

    def _make_host_key(self, keygen: str) -> None:
        path = os.path.join(self.folder, "host_key")
        argv = [keygen, "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", path]
        done: Any = subprocess.run(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=_KEYGEN_TIMEOUT_S
        )
        if done.returncode:
            text = done.stdout.decode("utf-8", "replace").strip()[:200]
            raise command.SessionStartError(f"ssh-keygen made no host key: {text}", "Check free space and your quota.")

    def end(self) -> None:
        """End the server and its connections, and remove its keys."""
        super().end()
        shutil.rmtree(self.folder, ignore_errors=True)
