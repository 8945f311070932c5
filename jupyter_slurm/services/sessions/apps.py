"""Named apps of ``launch app=NAME``: how each is started, protected, and found on a node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from jupyter_slurm.errors import UsageError

__all__ = ["APPS", "App", "command_of", "find_app", "words_of"]


@dataclass(frozen=True)
class App:
    """Server that ``app=NAME`` starts.

    Attributes
    ----------
    command : sequence of str
        Words of the command, with placeholders of the runner (``runner/session/app.py``).
    install : str
        Hint for a node that does not have it.
    package : str
        Python package that has its version; empty: the program prints it with ``--version``.
    lowest : str
        Lowest version that can be started.
    older : mapping
        Commands of versions before a version, the latest first.
    keywords : mapping
        Words for the value of each keyword of its own; ``{value}`` becomes the value.
    folders : sequence of str
        Keywords of them that name folders.
    required : str
        Keyword without which it cannot start.
    login : str
        Path of its login form; empty where it needs no login.
    files : mapping
        Files in its private folder.
    """

    command: Sequence[str]
    install: str
    package: str = ""
    lowest: str = ""
    older: Mapping[str, Sequence[str]] = field(default_factory=dict)
    keywords: Mapping[str, Sequence[str]] = field(default_factory=dict)
    folders: Sequence[str] = ()
    required: str = ""
    login: str = ""
    files: Mapping[str, str] = field(default_factory=dict)


_WITH_PIP = "Install it into the environment of the job with `pip install {}`, or choose another one with env=NAME."
_MLFLOW = ("mlflow", "server", "--static-prefix", "{base_url}", "--workers", "1")
# Apps without a login listen on a Unix socket of their user. Marimo has a login, and no such socket.
APPS: Mapping[str, App] = {
    "code-server": App(
        (
            *("code-server", "--auth", "none", "--socket", "{socket}", "--socket-mode", "600"),
            # --ignore-last-opened: else it opens the folder of the last session, not that of dir=.
            *("--disable-telemetry", "--disable-update-check", "--ignore-last-opened", "."),
        ),
        "Install it on the cluster as its guide describes: https://coder.com/docs/code-server/install.",
    ),
    "marimo": App(
        (
            *(
                "marimo",
                "--quiet",
                "edit",
                "--headless",
                "--host",
                "{host}",
                "--port",
                "{port}",
                "--base-url",
                "{base_url}",
            ),
            *("--token-password-file", "{secret_file}", "--skip-update-check"),
        ),
        _WITH_PIP.format("marimo"),
        "marimo",
        "0.18",
        keywords={"notebook": ("{value}",)},
        login="auth/login",
    ),
    "mlflow": App(
        (*_MLFLOW, "--uvicorn-opts", "--uds {socket}"),
        _WITH_PIP.format("mlflow"),
        "mlflow",
        "2.0",
        # gunicorn takes `unix:PATH:PORT` as the path of a socket.
        {"3.3": (*_MLFLOW, "--host", "unix:{socket}", "--port", "0")},
        {"store": ("--backend-store-uri", "{value}")},
    ),
    "rstudio": App(
        (
            *("rserver", "--server-daemonize=0", "--auth-none=1", "--www-socket={socket}", "--server-user={user}"),
            *("--www-root-path={base_url}", "--server-data-dir={state}"),
            *("--secure-cookie-key-file={state}/cookie-key", "--database-config-file={state}/database.conf"),
        ),
        "Use an image that has RStudio Server, for example image=rocker/rstudio, or ask the administrators for it.",
        files={"database.conf": "provider=sqlite\ndirectory={state}\n"},
    ),
    "tensorboard": App(
        (
            "tensorboard",
            "--host",
            "unix://{socket}",
            "--port",
            "0",
            "--load_fast",
            "false",
            "--path_prefix",
            "{base_url}",
        ),
        _WITH_PIP.format("tensorboard"),
        "tensorboard",
        "2.4",
        keywords={"logdir": ("--logdir", "{value}")},
        folders=("logdir",),
        required="logdir",
    ),
}
"""The apps by name. Jupyter is one by name only: it is what a launch without an app starts."""

_EXAMPLES = {"logdir": "runs", "notebook": "analysis.py", "store": "sqlite:///mlflow.db"}


def find_app(name: str) -> App:
    """Return the app of a name.

    Raises
    ------
    UsageError
        There is no such app.
    """
    app = APPS.get(name)
    if app is None:
        raise UsageError(
            f"app={name} is not supported.",
            hint=f"Use one of jupyter, {', '.join(APPS)}, or write a command with a {{port}} after --.",
            option="app",
        )
    return app


def command_of(name: str, values: Mapping[str, str]) -> list[str]:
    """Return the command of an app with the values of its keywords.

    Raises
    ------
    UsageError
        A keyword is not one of the app, or is missing.
    """
    return [*find_app(name).command, *words_of(name, values)]


def words_of(name: str, values: Mapping[str, str]) -> list[str]:
    """Return the words for the values of an app's keywords.

    Raises
    ------
    UsageError
        A keyword is not one of the app, or is missing.
    """
    app, words = find_app(name), list[str]()
    for keyword, value in values.items():
        if keyword not in app.keywords:
            owner = next((other for other, one in APPS.items() if keyword in one.keywords), name)
            raise UsageError(
                f"{keyword}= is not a keyword of app={name}.",
                hint=f"Omit it, or use it with app={owner}.",
                option=keyword,
            )
        if value.startswith("-") or "{" in value:
            raise UsageError(
                f"{keyword}={value} begins with a dash or has a brace.",
                hint=f"Write a path, such as ./{value}.",
                option=keyword,
            )
        words += [word.replace("{value}", value) for word in app.keywords[keyword]]
    if app.required and app.required not in values:
        example = f"app={name} {app.required}={_EXAMPLES[app.required]}"
        raise UsageError(f"app={name} needs {app.required}=.", hint=f"For example: {example}.", option=app.required)
    return words
