"""Second factors of sites: PAM services for a gateway, and the user's answers."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import struct
from dataclasses import dataclass
from pathlib import Path

__all__ = ["WAYS_IN", "Codes", "Way"]

_END = "account required pam_permit.so\nsession required pam_permit.so\n"
_PASSWORD = "auth required pam_unix.so\n"
# $USER is the user who logs in; the module increments the counter in the file.
_CODE = "auth required pam_google_authenticator.so user=root no_strict_owner secret=/etc/ssh/codes/${USER}\n"
_PUSH = (
    "auth optional pam_echo.so file=/etc/ssh/push.txt\n"
    "auth required pam_exec.so quiet expose_authtok /etc/ssh/push.sh\n"
    "auth required pam_permit.so\n"  # the other modules do not set credentials, and one must
)
_PUSH_TEXT = """Two-factor login for %u

Enter a passcode or select one of the following options:
 1. Push to XXX-XXX-0042
"""
# A file stands for the phone: `yes` in it is the button.
_PUSH_SCRIPT = """#!/bin/bash
IFS= read -r -d '' answer
[ "$answer" = 1 ] || exit 1
for _ in {1..300}; do
  [ "$(cat /etc/ssh/phone 2>/dev/null)" = yes ] && exit 0
  sleep 0.1
done
exit 1
"""


@dataclass(frozen=True)
class Way:
    """Authentication of sshd (``AuthenticationMethods``) and of PAM."""

    methods: str
    pam: str

    def options(self) -> dict[str, str | int]:
        """Return settings of sshd_config(5)."""
        return {"UsePAM": "yes", "KbdInteractiveAuthentication": "yes", "AuthenticationMethods": self.methods}


WAYS_IN = {
    "code": Way("keyboard-interactive", _CODE + _END),
    "key+code": Way("publickey,keyboard-interactive", _CODE + _END),
    "password+code": Way("keyboard-interactive", _PASSWORD + _CODE + _END),
    "key+push": Way("publickey,keyboard-interactive", _PUSH + _END),
}
"""Authentication at a gateway.

A one-time code; a key and then a code (partial success); a password and then a code, two rounds; a key and then "press
1 for a push".
"""


class Codes:
    """One-time codes of a user on one host (HOTP, RFC 4226): one for each login, the next available at once.

    Parameters
    ----------
    directory : Path
        /etc/ssh of that host.
    user : str
        Login name.
    """

    def __init__(self, directory: Path, user: str) -> None:
        self._secret = secrets.token_bytes(20)
        self._file = directory / "codes" / user
        self._phone = directory / "phone"
        self._file.parent.mkdir(mode=0o700)
        self._file.touch(0o600)
        self._file.write_text(f'{base64.b32encode(self._secret).decode()}\n" HOTP_COUNTER 1\n" WINDOW_SIZE 3\n')
        (directory / "push.txt").write_text(_PUSH_TEXT)
        (directory / "push.sh").write_text(_PUSH_SCRIPT)
        (directory / "push.sh").chmod(0o755)

    @property
    def used(self) -> int:
        """Return the number of used codes."""
        line = next(line for line in self._file.read_text().splitlines() if "HOTP_COUNTER" in line)
        return int(line.split()[-1]) - 1

    def next(self) -> str:
        """Return the code that the host will accept next."""
        digest = hmac.new(self._secret, struct.pack(">Q", self.used + 1), hashlib.sha1).digest()
        offset = digest[-1] & 0xF
        return f"{(struct.unpack_from('>I', digest, offset)[0] & 0x7FFFFFFF) % 1_000_000:06d}"

    def press_yes(self) -> None:
        """Approve pushes from now on."""
        self._phone.write_text("yes\n")

    def put_phone_away(self) -> None:
        """Approve no pushes from now on."""
        self._phone.unlink(missing_ok=True)
