"""S3 server in this process, for the duration of a test."""

import importlib.util
import logging
import os
import uuid

import fsspec
import httpx
import pytest

PACKAGES = ("s3fs", "moto", "flask", "flask_cors")
KEY_ID, SECRET = "AKIAIOSFODNN7EXAMPLE", "s3cret-of-the-lab"
BUCKET = "bucket-of-the-lab"


def require_s3():
    """Skip the test if a package is not installed, or fail it in continuous integration."""
    missing = [each for each in PACKAGES if importlib.util.find_spec(each) is None]
    text = f"pip install {' '.join(missing)}"
    if missing and os.environ.get("CI") == "true":
        pytest.fail(text)
    if missing:
        pytest.skip(text)


class S3Server:
    """Server of S3 that can be stopped and started again; its objects stay.

    Attributes:
        url: Folder of media in a bucket that exists.
        endpoint: Address of the server.
    """

    def __init__(self):
        self.url = f"s3://{BUCKET}/{uuid.uuid4()}"
        self._port = 0
        self._server = None
        self.start()
        # Servers of earlier tests had the same objects.
        self.request("POST", "/moto-api/reset")

    @property
    def endpoint(self):
        return f"http://127.0.0.1:{self._port}"

    def start(self):
        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        moto_server = pytest.importorskip("moto.server")
        self._server = moto_server.ThreadedMotoServer("127.0.0.1", self._port, verbose=False)
        self._server.start()
        _, self._port = self._server.get_host_and_port()

    def stop(self):
        if self._server is not None:
            self._server.stop()
            self._server._server.server_close()
            self._server = None

    def request(self, method, path):
        """Send a request without credentials, which the server accepts for buckets."""
        response = httpx.request(method, self.endpoint + path, trust_env=False)
        return response.raise_for_status()

    def has_bucket(self, name):
        return f"<Name>{name}</Name>" in self.request("GET", "/").text


def forget_connections():
    """Let the next file system read the environment and connect again."""
    fsspec.get_filesystem_class("s3").clear_instance_cache()
