"""Image registry on this machine, with TLS: serves the requests of `docker pull` and the like from files.

Source: the OCI distribution specification, "Pull".
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import json
import os
import ssl
import subprocess
import tarfile
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from jupyter_slurm.embedded.machine.packages import find_program

__all__ = ["Registry", "registry"]

_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
_CONFIG = "application/vnd.docker.container.image.v1+json"
_LAYER = "application/vnd.docker.image.rootfs.diff.tar.gzip"


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _small(base: Path) -> bytes:
    """Return a root file system without Python: a shell and its libraries."""
    small = io.BytesIO()
    with tarfile.open(base) as whole, tarfile.open(fileobj=small, mode="w") as kept:
        for member in whole:
            if not member.name.startswith(("./usr/", "./sbin/")):
                kept.addfile(member, whole.extractfile(member) if member.isfile() else None)
    return small.getvalue()


def _packed(plain: bytes, level: int) -> tuple[str, bytes]:
    """Return the digest of a layer, and the layer."""
    return hashlib.sha256(plain).hexdigest(), gzip.compress(plain, level, mtime=0)


class Registry:
    """Registry with the images that a test has added. Names that begin with ``private/`` require a password.

    Attributes
    ----------
    host : str
        Prefix of the names of its images.
    certificate : Path
        Certificate that clients must trust.
    asked : list of str
        The requested paths.
    """

    def __init__(self, base: Path, folder: Path) -> None:
        self._root, self._base = base, _packed(_small(base), 1)
        self._manifests: dict[str, bytes] = {}
        self._blobs: dict[str, bytes] = {}
        self._gates: dict[str, threading.Event] = {}
        self.asked: list[str] = []
        self.certificate, key = folder / "registry.pem", folder / "registry.key"
        made = [
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
            "-days",
            "9",
        ]
        made += ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
        subprocess.run([*made, "-keyout", key, "-out", self.certificate], check=True, capture_output=True)
        self.certificate.chmod(0o644)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate, key)
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True, do_handshake_on_connect=False)
        self.host = f"127.0.0.1:{self.server.server_address[1]}"

    @property
    def env(self) -> dict[str, str]:
        """Return the variables with which a job trusts the registry."""
        path = str(self.certificate)
        return {"SSL_CERT_FILE": path, "REQUESTS_CA_BUNDLE": path}

    def add(
        self, name: str, *, is_held: bool = False, files: dict[str, bytes] | None = None
    ) -> tuple[str, Callable[[], None]]:
        """Add an image of three layers; return its name, and the event that releases its last layer if that is held.

        The image has a shell, and its name in /etc/image. With ``files``, it has these and Python too.
        """
        base = self._base if files is None else _packed(self._root.read_bytes(), 1)
        own = {"etc/passwd": b"", "etc/group": b"", **(files or {})}
        layers = [base, self._layer(own), self._layer({"etc/image": name.encode()})]
        config = json.dumps({
            "architecture": "amd64", "os": "linux", "config": {}, "history": [],
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{plain}" for plain, _ in layers]},
        }).encode()  # fmt: skip
        blobs = [config, *(packed for _, packed in layers)]
        self._blobs |= {_digest(blob): blob for blob in blobs}
        told = [
            {"mediaType": kind, "size": len(blob), "digest": _digest(blob)}
            for kind, blob in zip([_CONFIG, *[_LAYER] * 3], blobs, strict=True)
        ]
        manifest = {"schemaVersion": 2, "mediaType": _MANIFEST, "config": told[0], "layers": told[1:]}
        self._manifests[name] = json.dumps(manifest).encode()
        gate = threading.Event()
        if is_held:
            self._gates[_digest(blobs[-1])] = gate
        return f"{self.host}/{name}:1", gate.set

    def pulls(self, name: str) -> int:
        """Return how often the last layer of an image was fetched."""
        last = json.loads(self._manifests[name])["layers"][-1]["digest"]
        return self.asked.count(f"/v2/{name}/blobs/{last}")

    @staticmethod
    def _layer(files: dict[str, bytes]) -> tuple[str, bytes]:
        plain = io.BytesIO()
        with tarfile.open(fileobj=plain, mode="w") as layer:
            for path, data in files.items():
                member = tarfile.TarInfo(path)
                member.size, member.mode = len(data), 0o755 if "/bin/" in path else 0o644
                layer.addfile(member, io.BytesIO(data))
        return _packed(plain.getvalue(), 1)

    def find(self, path: str) -> tuple[int, str, bytes]:
        """Return the answer to a request."""
        if path == "/v2/":
            return 200, "application/json", b"{}"
        name, kind, wanted = path.removeprefix("/v2/").rsplit("/", 2)
        if name.startswith("private/"):
            return (
                401,
                "application/json",
                b'{"errors": [{"code": "UNAUTHORIZED", "message": "authentication required"}]}',
            )
        if kind == "manifests":
            manifest = self._manifests.get(name)
            if manifest is not None and wanted in ("1", _digest(manifest)):
                return 200, _MANIFEST, manifest
            return 404, "application/json", b'{"errors": [{"code": "MANIFEST_UNKNOWN", "message": "manifest unknown"}]}'
        if wanted not in self._blobs:
            return 404, "application/json", b'{"errors": [{"code": "BLOB_UNKNOWN", "message": "blob unknown"}]}'
        return 200, "application/octet-stream", self._blobs[wanted]

    def _handler(registry: Registry) -> type[BaseHTTPRequestHandler]:  # noqa: N805
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                if self.command == "GET":
                    registry.asked.append(self.path)
                    if gate := registry._gates.get(self.path.rsplit("/", 1)[-1]):
                        gate.wait()
                code, kind, data = registry.find(self.path)
                with contextlib.suppress(OSError):
                    self.send_response(code)
                    self.send_header("Docker-Distribution-Api-Version", "registry/2.0")
                    self.send_header("Content-Type", kind)
                    self.send_header("Content-Length", str(len(data)))
                    if code == 401:
                        self.send_header("WWW-Authenticate", 'Basic realm="tests"')
                    if kind == _MANIFEST:
                        self.send_header("Docker-Content-Digest", _digest(data))
                    self.end_headers()
                    if self.command == "GET":
                        self.wfile.write(data)

            do_HEAD = do_GET  # noqa: N815

            def log_message(self, *_: Any) -> None:
                pass

        return Handler


@pytest.fixture(scope="session")
def registry(image_tar: Path, short_tmp: Path, unavailable: Callable[[str], None]) -> Iterator[Registry]:
    """Provide a registry for this session."""
    if find_program("openssl") is None:
        unavailable("openssl is not installed")
    folder = short_tmp / "registry"
    folder.mkdir(mode=0o755)
    running = Registry(image_tar, folder)
    thread = threading.Thread(target=running.server.serve_forever, daemon=True)
    thread.start()
    yield running
    for gate in running._gates.values():
        gate.set()
    running.server.shutdown()
    running.server.server_close()
    os.unlink(folder / "registry.key")
