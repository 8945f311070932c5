"""Image registries that a site's nodes reach: a real one (Debian's docker-registry), under their names.

The registry has its own host, and answers on port 443 with a certificate that the site's hosts trust. So programs that
fetch images need no configuration.
"""

from __future__ import annotations

import gzip
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from ssh_hosts.machine import Machine, run

__all__ = ["BUNDLE", "SiteRegistry", "host_of", "make_certificate"]

BUNDLE = Path("/etc/ssl/certs/ca-certificates.crt")
"""Trusted certificates of a host: path on this machine, and on the replica."""

_HOSTS = {"docker.io": "registry-1.docker.io"}
_CONFIG = """version: 0.1
log: {{level: warn}}
storage: {{filesystem: {{rootdirectory: {folder}/images}}}}
http: {{addr: ":443", tls: {{certificate: {folder}/cert.pem, key: {folder}/key.pem}}}}
"""
# Runs beside the registry. A root file system becomes an image of two layers; the second has files that runtimes
# expect.
_PUSH = """
import gzip, hashlib, http.client, io, json, ssl, sys, tarfile, time

def ask(method, path, body=None, **headers):
    told = {name.replace("_", "-"): value for name, value in headers.items()}
    connection = http.client.HTTPSConnection("127.0.0.1", 443, context=ssl._create_unverified_context(), timeout=60)
    connection.request(method, path, body, told)
    answer = connection.getresponse()
    said = answer.read()
    if answer.status >= 300:
        sys.exit(f"{method} {path}: {answer.status} {said[:500]}")
    return answer

def digest(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()

def put(data):
    place = ask("POST", f"/v2/{name}/blobs/uploads/").getheader("Location").partition("//")[2].partition("/")[2]
    mark = "&" if "?" in place else "?"
    ask("PUT", f"/{place}{mark}digest={digest(data)}", data, Content_Type="application/octet-stream")
    return {"size": len(data), "digest": digest(data)}

name, tag, path = sys.argv[1:]
deadline = time.monotonic() + 60
while True:
    try:
        ask("GET", "/v2/")
        break
    except OSError:
        if time.monotonic() > deadline:
            raise
        time.sleep(0.1)
with open(path, "rb") as file:
    base = file.read()
more = io.BytesIO()
with tarfile.open(fileobj=more, mode="w") as layer:
    for one in ("etc/passwd", "etc/group"):
        layer.addfile(tarfile.TarInfo(one))
layers = [base, gzip.compress(more.getvalue(), mtime=0)]
config = json.dumps({
    "architecture": "amd64", "os": "linux", "config": {}, "history": [],
    "rootfs": {"type": "layers", "diff_ids": [digest(gzip.decompress(one)) for one in layers]},
}).encode()
kind = "application/vnd.docker."
manifest = {
    "schemaVersion": 2, "mediaType": kind + "distribution.manifest.v2+json",
    "config": {"mediaType": kind + "container.image.v1+json", **put(config)},
    "layers": [{"mediaType": kind + "image.rootfs.diff.tar.gzip", **put(one)} for one in layers],
}
ask("PUT", f"/v2/{name}/manifests/{tag}", json.dumps(manifest).encode(), Content_Type=manifest["mediaType"])
"""


def host_of(image: str) -> str:
    """Return the host that serves an image."""
    host = image.partition("/")[0]
    return _HOSTS.get(host, host)


def make_certificate(folder: Path, hosts: Iterable[str]) -> Path:
    """Create a certificate for these hosts in a folder; return it, and the bundle with all trusted certificates."""
    names = ",".join(f"DNS:{host}" for host in sorted(hosts))
    made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    made += ["-days", "9", "-subj", "/CN=registry", "-addext", f"subjectAltName={names}"]
    run(*made, "-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem"))
    bundle = folder / "bundle.pem"
    bundle.write_bytes(BUNDLE.read_bytes() + (folder / "cert.pem").read_bytes())
    bundle.chmod(0o644)
    return bundle


class SiteRegistry:
    """A registry with the lifetime of its host.

    Parameters
    ----------
    machine : Machine
        Its host, which has access to ``folder``.
    folder : Path
        Contains the certificate, and the images.
    """

    def __init__(self, machine: Machine, folder: Path) -> None:
        self._machine, self._folder = machine, folder
        (folder / "config.yml").write_text(_CONFIG.format(folder=folder))
        with (machine.directory / "log" / "registry.out").open("ab") as log:
            subprocess.run(
                machine.command("setsid", "--fork", "docker-registry", "serve", str(folder / "config.yml")),
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                check=True,
            )

    def push(self, image: str, tar: Path) -> None:
        """Create an image from a root file system."""
        name, _, tag = image.partition("/")[2].rpartition(":")
        packed = self._folder / "layer.tar.gz"
        with tar.open("rb") as plain, gzip.open(packed, "wb", compresslevel=1) as file:
            shutil.copyfileobj(plain, file, 1 << 20)
        self._machine.run("python3", "-c", _PUSH, name, tag, str(packed), timeout=300)
        packed.unlink()
