"""Local side of the TLS door that the runner of a session opens on its node (``runner/session/tls_door.py``)."""

from __future__ import annotations

import datetime
import ssl
import threading

from jupyter_slurm.errors import TunnelError, TunnelUnproven
from jupyter_slurm.runner.session.tls_door import NAME, TlsConnection, context_of, secret_of
from jupyter_slurm.transport.base import Stream

__all__ = ["NAME", "enter", "new_pem"]

_CERTIFICATE_HEADER = "-----BEGIN CERTIFICATE-----"
_CLOCK_SKEW, _VALIDITY = datetime.timedelta(days=2), datetime.timedelta(days=3650)  # the clocks of nodes may be wrong


def new_pem() -> bytes:
    """Return a key and its certificate for one session."""
    from cryptography import x509  # both are dependencies of paramiko, and slow to import
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.datetime.now(datetime.UTC)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "jupyter_slurm session")])
    made = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    made = made.not_valid_before(now - _CLOCK_SKEW).not_valid_after(now + _VALIDITY)
    made = made.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    text, kind = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    own = key.private_bytes(text, kind, serialization.NoEncryption())
    return own + made.sign(key, hashes.SHA256()).public_bytes(text)


def enter(stream: Stream, pem: bytes, timeout: float, where: str) -> Stream:
    """Return a fresh stream to the server behind a TLS door; ``stream`` leads to the door.

    Raises
    ------
    TunnelUnproven
        The peer is not the session's runner.
    TunnelError
        The door does not exist, or ``timeout`` (seconds) is over.
    """
    timer = threading.Timer(timeout, stream.close)  # the peer may never send anything
    timer.daemon = True
    timer.start()
    try:
        text = pem.decode("ascii")
        sealed = TlsConnection(
            stream, context_of(text[text.index(_CERTIFICATE_HEADER) :], is_server=False), is_server=False
        )
        sealed.sendall(secret_of(pem))
    except ssl.SSLError as error:
        stream.close()
        raise TunnelUnproven(
            f"{where} does not belong to this session: {error.reason or 'the program sends no proof'}.",
            hint="Nothing was sent. Launch a new session: another user has taken the port of this one.",
            why="stranger",
        ) from error
    except (OSError, ValueError) as error:
        stream.close()
        raise TunnelError(
            f"{where} does not answer: {error}",
            hint="Check with `jupyter slurm sessions` whether the session is still running.",
            why="refused",
        ) from error
    finally:
        timer.cancel()
    return sealed
