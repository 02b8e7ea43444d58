"""Places for corpora, one on an S3 server on loopback: moto's. Its address and credentials are in the environment."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kfuzz.storage import Target

BUCKET = "corpora"


@pytest.fixture(scope="module")
def s3() -> Iterator[Any]:
    """The file system of the server; ``s3://corpora`` is an empty bucket."""
    from moto.server import ThreadedMotoServer
    from s3fs import S3FileSystem

    # The server logs each request.
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("AWS_ACCESS_KEY_ID", "test")
        environment.setenv("AWS_SECRET_ACCESS_KEY", "test")
        environment.setenv("AWS_DEFAULT_REGION", "us-east-1")
        environment.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        S3FileSystem.clear_instance_cache()
        fs = S3FileSystem(use_listings_cache=False)
        # Servers of one process share their buckets.
        if not fs.exists(BUCKET):
            fs.mkdir(BUCKET)
        yield fs
        S3FileSystem.clear_instance_cache()
    server.stop()


@pytest.fixture(params=["directory", "memory", pytest.param("s3", marks=pytest.mark.full)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A new place on each kind of file system. A test module that imports this imports ``s3`` too."""
    if request.param == "s3":
        request.getfixturevalue("s3")
    places = {"directory": str(tmp_path / "out"), "memory": f"memory://{tmp_path.name}"}
    made = places.get(request.param, f"s3://{BUCKET}/{tmp_path.name}")
    yield made
    Target.of(made).remove_directory("")
