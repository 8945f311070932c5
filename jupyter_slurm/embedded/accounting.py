"""Accounting of a cluster: a private MariaDB, slurmdbd, and the sacctmgr(1) commands that set it up."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

from jupyter_slurm.embedded.configuration import Machine
from jupyter_slurm.embedded.daemons import Daemons, Wait
from jupyter_slurm.embedded.description import Account, Description, Qos, User
from jupyter_slurm.errors import EmbeddedError

__all__ = ["add_cluster", "fill_database", "first_commands", "setup_commands", "start_database"]


def create_database(daemons: Daemons) -> None:
    """Create MariaDB's data directory. Only the user who runs the cluster can log in, and without a password."""
    user = Machine.user_name()
    # Not /tmp: MariaDB names its tables there after the process, and another PID namespace may have the same number.
    temporary = daemons.layout.database / "scratch"
    temporary.mkdir(mode=0o700)
    done = subprocess.run(
        [
            daemons.installation.program("mariadb-install-db"),
            "--no-defaults",
            f"--datadir={daemons.layout.database}/data",
            f"--user={user}",
            "--auth-root-authentication-method=socket",
            f"--auth-root-socket-user={user}",
            "--skip-test-db",
            "--skip-name-resolve",
        ],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        # MariaDB searches programs in the current directory and its helpers on PATH.
        cwd="/",
        env={"PATH": "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/nonexistent", **daemons.environment}
        | {"TMPDIR": str(temporary)},
        check=False,
    )
    if done.returncode != 0:
        raise EmbeddedError(
            f"The program mariadb-install-db failed.\n{(done.stdout + done.stderr)[-2000:]}",
            hint="See the output above. Choose a directory on a local disk with --dir.",
        )


def start_database(daemons: Daemons, wait: Wait) -> None:
    """Start MariaDB on a Unix socket only. Its data does not outlive the cluster, so nothing is synced."""
    layout = daemons.layout
    create_database(daemons)
    daemons.spawn(
        "mariadbd",
        daemons.installation.program("mariadbd"),
        "--no-defaults",
        f"--user={Machine.user_name()}",
        f"--datadir={layout.database}/data",
        f"--tmpdir={layout.database}/scratch",
        f"--socket={layout.database_socket}",
        f"--pid-file={layout.run}/mariadbd.pid",
        "--skip-networking",
        "--innodb-buffer-pool-size=64M",
        "--innodb-flush-log-at-trx-commit=0",
        "--innodb-lock-wait-timeout=900",
    )
    wait(layout.database_socket.exists, "mariadbd", "MariaDB did not open its socket")


def add_cluster(daemons: Daemons, description: Description) -> None:
    """Register in slurmdbd the cluster and the QOS of partitions, without which slurmctld does not start."""
    for argv in first_commands(description):
        _sacctmgr(daemons, *argv)


def fill_database(daemons: Daemons, description: Description, wait: Wait) -> None:
    """Register QOS, accounts and users in slurmdbd. slurmctld must be running, because slurmctld registers the GPUs.

    Raises EmbeddedError with sacctmgr's own message if a command is refused.
    """
    wanted = set(description.tres)

    def known() -> bool:
        rows = daemons.run_command("sacctmgr", "--noheader", "--parsable2", "list", "tres", "format=type,name").stdout
        return wanted <= {"/".join(line.split("|")) for line in rows.splitlines()}

    wait(known, "slurmctld", "slurmctld did not register its TRES with slurmdbd")
    for argv in setup_commands(description):
        _sacctmgr(daemons, *argv)


def _sacctmgr(daemons: Daemons, *argv: str) -> None:
    done = daemons.run_command("sacctmgr", "--immediate", "--quiet", *argv)
    if done.returncode != 0:
        said = (done.stderr + done.stdout).strip()
        raise EmbeddedError(
            f"sacctmgr refused {' '.join(argv)!r}: {said}",
            hint="Correct the accounts and users in the description of the cluster.",
            argv=list(argv),
            stderr=done.stderr,
        )


def first_commands(description: Description) -> Iterator[list[str]]:
    """Return the arguments of each sacctmgr call before slurmctld is started."""
    yield ["add", "cluster", description.name]
    for qos in description.qos:
        # "normal" always exists; adding it again would be an error.
        if qos.name != "normal":
            yield ["add", "qos", qos.name]


def setup_commands(description: Description) -> Iterator[list[str]]:
    """Return the arguments of each further sacctmgr call, in an order in which each call can succeed."""
    for qos in description.qos:
        if settings := _qos_settings(qos):
            yield ["modify", "qos", qos.name, "set", *settings]
    for account in _parents_first(description.accounts):
        yield ["add", "account", account.name, f"Cluster={description.name}", *_account_settings(account)]
    for user in description.users:
        yield ["add", "user", user.name, f"Cluster={description.name}", *_user_settings(user)]
        later = [f"QosLevel={','.join(user.qos)}"] if user.qos else []
        later += [f"DefaultQOS={user.default_qos}"] if user.default_qos else []
        if later:
            yield ["modify", "user", user.name, "set", *later]


def _limits(limits: dict[str, str]) -> list[str]:
    return [f"{key}={value}" for key, value in limits.items()]


def _qos_settings(qos: Qos) -> list[str]:
    settings = {
        "Priority": qos.priority,
        "Preempt": ",".join(qos.preempt),
        "PreemptMode": qos.preempt_mode,
        "GraceTime": qos.grace_time,
        "Flags": ",".join(qos.flags),
    }
    return [*(f"{key}={value}" for key, value in settings.items() if value not in ("", None)), *_limits(qos.limits)]


def _account_settings(account: Account) -> list[str]:
    settings = [f"Description={account.description or account.name}", f"Organization={account.name}"]
    if account.parent:
        settings.append(f"Parent={account.parent}")
    if account.fairshare is not None:
        settings.append(f"Fairshare={account.fairshare}")
    return [*settings, *_limits(account.limits)]


def _user_settings(user: User) -> list[str]:
    settings = [f"Account={','.join(user.accounts)}", f"DefaultAccount={user.default_account or user.accounts[0]}"]
    if user.admin:
        settings.append(f"AdminLevel={user.admin}")
    return [*settings, *_limits(user.limits)]


def _parents_first(accounts: tuple[Account, ...]) -> Iterator[Account]:
    """Yield each account after its parent; the description has been checked for unknown parents."""
    done = {"", "root"}
    waiting = list(accounts)
    while waiting:
        ready = [account for account in waiting if account.parent in done]
        if not ready:
            raise EmbeddedError(
                f"accounts.parent: the account {waiting[0].name} is its own ancestor.",
                hint="Correct `parent` in the description of the cluster.",
            )
        yield from ready
        done.update(account.name for account in ready)
        waiting = [account for account in waiting if account not in ready]
