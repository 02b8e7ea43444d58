"""Certificates for servers of tests, made by openssl."""

from __future__ import annotations

import ssl
import subprocess
from dataclasses import dataclass
from pathlib import Path

from conftest import require_tool

KEY = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1"


@dataclass(frozen=True)
class Certificate:
    """A certificate that is its own CA."""

    cert: Path
    key: Path

    def context(self) -> ssl.SSLContext:
        """A server's side of TLS."""
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        made.load_cert_chain(self.cert, self.key)
        return made

    def trusting(self) -> ssl.SSLContext:
        """The side of a client that trusts it."""
        return ssl.create_default_context(cafile=self.cert)


def certificate(folder: Path, *, password: str = "") -> Certificate:
    """A new certificate for 127.0.0.1, in this folder."""
    openssl = require_tool("openssl", "install it")
    made = Certificate(folder / "certificate.pem", folder / "key.pem")
    argv = [openssl, *f"req -x509 {KEY} -days 2 -subj /CN=127.0.0.1 -keyout {made.key} -out {made.cert}".split()]
    argv += ["-passout", f"pass:{password}"] if password else ["-nodes"]
    subprocess.run([*argv, "-addext", "subjectAltName=IP:127.0.0.1"], check=True, capture_output=True)
    return made
