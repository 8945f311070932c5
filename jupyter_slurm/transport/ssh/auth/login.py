"""Login to one host: the authentication methods in OpenSSH's order, and the user's answers.

Sources: RFC 4252, RFC 4256; ssh(1), AUTHENTICATION; ssh_config(5), PreferredAuthentications.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from concurrent.futures import CancelledError, Future

import paramiko

from jupyter_slurm.domain.slurm_values import counted
from jupyter_slurm.errors import LoginDeclined, LoginFailed
from jupyter_slurm.transport.ssh.auth.userauth import (
    InfoRequest,
    LoginAccepted,
    LoginConnectionLost,
    LoginRefused,
    PasswordExpired,
    Reply,
    SignatureRequested,
    Userauth,
)
from jupyter_slurm.transport.ssh.config.ssh_config import HostConfig
from jupyter_slurm.transport.ssh.keys.identities import Identity, identities
from jupyter_slurm.transport.ssh.keys.private_keys import (
    KeyUnusable,
    PassphraseNeeded,
    PrivateKey,
    load_private_key,
    public_key,
    sign,
)
from jupyter_slurm.transport.ssh.keys.public_keys import CERTIFICATE, copy_key_hint, key_type, short_key_reason
from jupyter_slurm.transport.ssh.keys.ssh_agent import AgentRefusal, SshAgent
from jupyter_slurm.transport.ssh.prompts import Asker, Prompt, Question, printable

__all__ = ["log_in"]

_MAX_ROUNDS = 64  # of questions in one login
_MAX_METHODS = 16  # methods that a host may require one after the other
_REJECTED_TEXT = "That was not accepted. Try again."
_SOON = "Try again in a few minutes."


def log_in(transport: paramiko.Transport, host: HostConfig, asker: Asker) -> tuple[str, ...]:
    """Authenticate on a transport whose host key is verified. Blocks, also while a user answers.

    Returns
    -------
    tuple of str
        The attempts and their results: ``key PATH: accepted``, ``password: wrong`` …

    Raises
    ------
    LoginDeclined
        The user declined, or did not answer in time.
    LoginFailed
        The host refused the login. The error lists the attempts and the next step. ``reason`` in the details: the
        connection broke meanwhile, and a new attempt may succeed.
    """
    try:
        return _Login(transport, host, asker).run()
    except LoginFailed as error:
        failed = error
    # The error must not keep alive the frames that hold a password.
    failed.__context__ = None
    raise failed.with_traceback(None)


class _Login:
    """One login attempt. ``tried`` grows by a line for each method offered."""

    def __init__(self, transport: paramiko.Transport, host: HostConfig, asker: Asker) -> None:
        self._host, self._transport, self._asker = host, transport, asker
        self._auth = Userauth(transport, host.user)
        self._agent = SshAgent(host.identity_agent) if host.identity_agent else None
        self._used_methods: list[str] = []
        self._attempts = self._rounds = self._parts = 0
        self._is_notice_shown = False
        self._loaded: dict[str, PrivateKey] = {}

    def run(self) -> tuple[str, ...]:
        """Try the methods that the server accepts until the login is complete; return the attempts."""
        try:
            self._auth.request_service()
            reply = self._auth.request("none")
            methods = self._restart_methods()
            while not isinstance(reply, LoginAccepted):
                assert isinstance(reply, LoginRefused)
                if reply.partial:
                    self._parts += 1
                    if self._parts > _MAX_METHODS:
                        raise LoginConnectionLost("it never has enough", refusal=True)
                    self._used_methods.append("that was right, and the host wants more")
                    methods = self._restart_methods()
                reply = self._next(methods, reply)
        except LoginConnectionLost as lost:
            raise self._hung_up(lost) from None
        finally:
            self._loaded.clear()
        return tuple(self._used_methods)

    def _restart_methods(self) -> dict[str, Iterator[Reply]]:
        ways = {"publickey": self._keys, "keyboard-interactive": self._questions, "password": self._passwords}
        quiet = {"keyboard-interactive", "password"} if self._host.batch_mode else set()
        return {name: ways[name]() for name in self._host.authentications if name not in quiet}

    def _next(self, methods: dict[str, Iterator[Reply]], refused: LoginRefused) -> Reply:
        """Make the next attempt, by the first method that the server accepts and that has attempts left."""
        for name, attempts in methods.items():
            if name in refused.methods and (reply := next(attempts, None)) is not None:
                if isinstance(reply, PasswordExpired):
                    raise LoginFailed(
                        f"The password for {self._host.label} is right, but it must be changed first.",
                        hint=f"Log in once in a terminal: `ssh {self._host.name}`.",
                        host=self._host.name,
                        tried=self._used_methods,
                    )
                return reply
        raise self._failed(refused.methods)

    # Keys ---------------------------------------------------------------------------------------------------------

    def _keys(self) -> Iterator[Reply]:
        """Offer keys: first the public key; its passphrase is requested only if the server accepts the key."""
        mine, remarks = identities(self._host, self._agent)
        self._used_methods += remarks
        for identity in mine:
            with contextlib.suppress(_Skipped):
                yield self._key(identity)

    def _key(self, identity: Identity) -> Reply:
        blob = identity.blob
        if blob is None:
            assert identity.path is not None
            blob = public_key(self._private(identity, identity.path))
        algorithm = self._algorithm(identity, blob)
        reply = self._counted("publickey", False, algorithm, blob)
        if isinstance(reply, SignatureRequested):
            data = self._auth.signed_text(algorithm, blob)
            signature = self._sign(identity, data, algorithm.removesuffix(CERTIFICATE))
            reply = self._counted("publickey", True, algorithm, blob, signature)
        refused = isinstance(reply, LoginRefused) and not reply.partial
        why = f" ({identity.remark})" if identity.remark else ""
        self._used_methods.append(f"{identity.label}: {f'refused{why}' if refused else 'accepted'}")
        return reply

    def _algorithm(self, identity: Identity, blob: bytes) -> str:
        """Choose the signature algorithm: SHA-2 for RSA, whatever the key's own type."""
        own = key_type(blob)
        if why := short_key_reason(self._host, blob):
            raise self._skip(identity, why)
        suffix = CERTIFICATE if own.endswith(CERTIFICATE) else ""
        names = [own]
        if own.removesuffix(CERTIFICATE) == "ssh-rsa":
            told = self._transport.server_extensions.get("server-sig-algs", b"")
            server = (told.decode("ascii", "replace") if isinstance(told, bytes) else told).split(",")
            both = ("rsa-sha2-512", "rsa-sha2-256")
            names = [name + suffix for name in both if name in server or not any(each in server for each in both)]
        allowed = [name for name in names if not self._host.pubkey_algorithms or name in self._host.pubkey_algorithms]
        if not allowed:
            raise self._skip(identity, f"{own} is left out by PubkeyAcceptedAlgorithms")
        return allowed[0]

    def _sign(self, identity: Identity, data: bytes, algorithm: str) -> bytes:
        if identity.agent_key is not None and self._agent is not None:
            try:
                return self._agent.sign(identity.agent_key, data, algorithm)
            except AgentRefusal as error:
                raise self._skip(identity, f"the agent did not sign: {error}") from None
        if identity.path is None:
            raise self._skip(identity, "its private key is neither in the agent nor among the IdentityFiles")
        return sign(self._private(identity, identity.path), data, algorithm)

    def _private(self, identity: Identity, path: str) -> PrivateKey:
        """Load a key. Ask for its passphrase if needed, at most NumberOfPasswordPrompts times."""
        if path in self._loaded:
            return self._loaded[path]
        passphrase, left = None, 0 if self._host.batch_mode else self._host.password_prompts
        while True:
            try:
                key = self._loaded[path] = load_private_key(path, passphrase)
            except KeyUnusable as error:
                raise self._skip(identity, str(error)) from None
            except PassphraseNeeded:
                instruction = "That passphrase is wrong." if passphrase else ""
            else:
                return key
            if not left:
                raise self._skip(identity, "no passphrase opened it")
            question = Question(f"Passphrase for {path}")
            prompt = Prompt(self._host.label, "passphrase", "Your key is locked", instruction, (question,))
            (passphrase,) = self._ask_prompt(prompt)
            left = left - 1 if passphrase else 0  # empty answer: continue without this key

    def _skip(self, identity: Identity, reason: str) -> _Skipped:
        self._used_methods.append(f"{identity.label}: not offered, {reason}")
        return _Skipped()

    # Answers of the user --------------------------------------------------------------------------------------------

    def _passwords(self) -> Iterator[Reply]:
        for attempt in range(self._host.password_prompts):
            question = (Question(f"Password for {self._host.user}@{self._host.name}"),)
            prompt = Prompt(self._host.label, "password", "Password", self._notice(attempt), question)
            reply = self._counted("password", False, *self._ask_prompt(prompt))
            wrong = isinstance(reply, LoginRefused) and not reply.partial
            self._used_methods.append(f"password: {'wrong' if wrong else 'accepted'}")
            yield reply

    def _questions(self) -> Iterator[Reply]:
        for attempt in range(self._host.password_prompts):
            reply, rounds = self._counted("keyboard-interactive", "", ""), 0
            while isinstance(reply, InfoRequest):
                reply = self._answer(reply, attempt if rounds == 0 else 0)
                rounds += 1
            wrong = isinstance(reply, LoginRefused) and not reply.partial
            if rounds:
                self._used_methods.append(f"questions of the host: {'not accepted' if wrong else 'accepted'}")
            yield reply
            if not rounds:  # no question: a second attempt would be the same
                return

    def _answer(self, info_request: InfoRequest, attempt: int) -> Reply:
        self._rounds += 1
        if self._rounds > _MAX_ROUNDS:
            raise LoginConnectionLost("it never stops asking", refusal=True)
        # sshd prepends PAM's messages to the next question: only the last line is the question.
        texts = [text.strip().rpartition("\n") for text, _ in info_request.questions]
        questions = tuple(
            Question(last or "Answer", echo)
            for (_, _, last), (_, echo) in zip(texts, info_request.questions, strict=True)
        )
        parts = (self._notice(attempt), info_request.instruction, *(head for head, _, _ in texts))
        instruction = "\n".join(part for part in parts if part)
        prompt = Prompt(self._host.label, "keyboard-interactive", info_request.title, instruction, questions)
        if questions:
            return self._auth.answer(self._ask_prompt(prompt))
        if not (prompt.title or prompt.instruction):
            return self._auth.answer(())
        shown = self._asker.start(prompt)  # a notice to show while the server waits, for a telephone perhaps
        try:
            return self._auth.answer((), lambda: self._check_wanted(shown))
        finally:
            shown.cancel()

    def _check_wanted(self, answer: Future[list[str] | None]) -> None:
        if answer.done() and answer.result() is None:
            raise self._declined()

    def _notice(self, attempt: int) -> str:
        """Return the text above a question: the server's banner once, and whether the question is repeated."""
        banner, self._is_notice_shown = ("" if self._is_notice_shown else self._auth.notice), True
        return "\n".join(part for part in (banner, _REJECTED_TEXT if attempt else "") if part)

    def _ask_prompt(self, prompt: Prompt) -> list[str]:
        try:
            answers = self._auth.wait(self._asker.start(prompt))
        except CancelledError:
            answers = None
        except LoginConnectionLost as lost:
            raise self._declined(f" before {lost}") from None
        if answers is None:
            raise self._declined()
        if any(0xD800 <= ord(char) <= 0xDFFF for answer in answers for char in answer):
            # An encoding error would show the password.
            raise LoginFailed(
                f"The answer for {self._host.label} cannot be sent, because it is not UTF-8 text.",
                hint="Type it again, and check the encoding of the terminal and the keyboard.",
                host=self._host.name,
                tried=self._used_methods,
            )
        return answers

    def _counted(self, method: str, *fields: str | bytes | bool) -> Reply:
        self._attempts += 1
        return self._auth.request(method, *fields)

    # Errors after a failed login -------------------------------------------------------------------------------------

    def _declined(self, moment: str = "") -> LoginDeclined:
        return LoginDeclined(
            f"The login to {self._host.label} was not answered{moment}.",
            hint="Connect again, and answer the prompt in time.",
            host=self._host.name,
            tried=self._used_methods,
        )

    def _hung_up(self, lost: LoginConnectionLost) -> LoginFailed:
        said = self._auth.remark.strip()  # for example maintenance until Monday, or an expired account
        hint = "Try again later, or ask the administrators of the host." if said else _SOON
        if "Too many authentication failures" in str(lost) or (self._attempts >= 3 and not said):
            hint = (
                "The host limits the attempts (MaxAuthTries). If your ssh-agent holds many keys, name the "
                f"right one in ~/.ssh/config: Host {self._host.name}, IdentityFile …, IdentitiesOnly yes."
            )
        accident = {} if lost.refusal else {"reason": str(lost)}
        why = f"{lost}\n{said}".rstrip()
        return LoginFailed(
            f"{self._host.label} ended the login after {counted(self._attempts, 'attempts')}: {why}{self._list()}",
            hint=hint,
            host=self._host.name,
            tried=self._used_methods,
            **accident,
        )

    def _failed(self, methods: tuple[str, ...]) -> LoginFailed:
        takes = ", ".join(methods) or "nothing more"
        return LoginFailed(
            f"Login to {self._host.label} as {self._host.user} failed. The host accepts: "
            f"{printable(takes, 500)}.{self._list()}",
            hint=self._hint(set(methods)),
            host=self._host.name,
            tried=self._used_methods,
            methods=list(methods),
        )

    def _list(self) -> str:
        return "".join(f"\n  {line}" for line in self._used_methods)

    def _hint(self, methods: set[str]) -> str:
        host, ours = self._host, {"publickey", "keyboard-interactive", "password"}
        if "it has expired" in self._list():
            return "Get a new certificate from your site: yours has expired."
        if not methods & ours:
            return (
                'Set carrier = "openssh" under [login] in the profile: only OpenSSH can use the methods of '
                "this host (Kerberos, host-based)."
            )
        if not methods & set(host.authentications):
            return f"Enable one of these methods in ~/.ssh/config for this host: {', '.join(sorted(methods & ours))}."
        if host.batch_mode and methods & {"keyboard-interactive", "password"}:
            return "Remove BatchMode from ~/.ssh/config for this host, because it forbids prompts."
        if "password: wrong" in self._used_methods or any("not accepted" in line for line in self._used_methods):
            return (
                f"Check that {host.user} is your user name on this host. Some sites lock an account for a "
                "while after several wrong answers."
            )
        if any(line.startswith("agent ") for line in self._used_methods):
            return (
                "Your ssh-agent does not answer. If another one was started since, run `jupyter slurm agent "
                "stop`: the agent of jupyter_slurm then starts again with the ssh-agent of the terminal or "
                "notebook that uses it. IdentityAgent in ~/.ssh/config sets a permanent one."
            )
        named = f"~/.ssh/config (IdentityFile, for Host {host.name})"
        if not any(line.startswith(("key ", "certificate ")) for line in self._used_methods):
            return f"Create a key with `jupyter slurm init`, or name yours in {named}."
        return copy_key_hint(host, methods)


class _Skipped(Exception):
    """A key is skipped; the list of attempts has the reason."""
