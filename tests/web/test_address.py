"""Address file of the running service, and links to it."""

import json
import subprocess
import sys
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from rl_teacher.common.errors import BadInput
from rl_teacher.web.address import (
    await_service,
    comparison_link,
    link,
    local_address,
    published,
    running_service,
    serves,
)
from rl_teacher.web.token import access_token


def server_with_body(body):
    """Return a server that answers every request with this body."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format, *args):  # noqa: A002 - name in the base class
            pass

    return HTTPServer(("127.0.0.1", 0), Handler)


@pytest.fixture
def service():
    """Address of a server that answers as the instance `this-one`."""
    server = server_with_body(b'{"status": "ok", "instance": "this-one"}')
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield local_address("127.0.0.1", server.server_port, "this-one", "store")
    server.shutdown()
    thread.join()
    server.server_close()


def test_published_service_is_found_until_it_stops(service, home):
    with published(service):
        assert running_service() == service
        assert running_service("store") == service
    assert running_service() is None
    assert not (home / "service.json").exists()


def test_service_of_another_store_is_ignored(service):
    with published(service):
        assert running_service("another store") is None


def test_missing_address_file_means_no_service():
    assert running_service() is None


def test_address_of_killed_service_is_ignored(service, home):
    with published(replace(service, port=1)):
        assert running_service() is None


def test_service_with_another_instance_is_ignored(service):
    with published(replace(service, instance="an older one")):
        assert running_service() is None


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b'{"status": "ok"}', b"\xff"])
def test_other_server_on_the_port_is_ignored(body):
    server = server_with_body(body)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    with published(local_address("127.0.0.1", server.server_port, "this-one", "store")):
        assert running_service() is None
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"url": 1}', b"\xff", b"null"])
def test_invalid_address_file_is_ignored(home, content):
    home.mkdir()
    (home / "service.json").write_bytes(content)
    assert running_service() is None


def test_service_removes_only_its_own_address_file(service, home):
    later = replace(service, instance="later")
    with published(later):
        pass
    with published(service), published(later):
        assert json.loads((home / "service.json").read_bytes())["instance"] == "later"
    assert not (home / "service.json").exists()
    first = published(service)
    first.__enter__()
    second = published(later)
    second.__enter__()
    first.__exit__(None, None, None)
    assert json.loads((home / "service.json").read_bytes())["instance"] == "later"
    second.__exit__(None, None, None)


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:8765"),
        (".".join("0000"), "http://127.0.0.1:8765"),
        ("::", "http://[::1]:8765"),
        ("::1", "http://[::1]:8765"),
        ("lab.example", "http://lab.example:8765"),
    ],
)
def test_wildcard_hosts_map_to_loopback_urls(host, url):
    assert local_address(host, 8765, "this-one", "store").url == url


def test_link_contains_token(home):
    address = local_address("127.0.0.1", 8765, "this-one", "store")
    token = access_token(home)
    assert link(address) == f"http://127.0.0.1:8765/?token={token}"
    assert link(address, "a b/ü?") == (
        f"http://127.0.0.1:8765/e/a%20b%2F%C3%BC%3F/label?token={token}"
    )


def test_comparison_link_contains_comparison_id(home):
    address = local_address("127.0.0.1", 8765, "this-one", "store")
    query = f"comparison=12&token={access_token(home)}"
    assert comparison_link(address, "x", 12) == f"http://127.0.0.1:8765/e/x/label?{query}"


def test_store_identifier_reveals_no_password():
    named = serves("postgresql://me:s3cret@host/labels", "s3://bucket")
    assert "s3cret" not in named
    assert named == serves("postgresql://me:s3cret@host/labels", "s3://bucket")
    assert named != serves("postgresql://me:s3cret@host/labels", "s3://other")


def test_service_exit_during_startup_is_reported():
    process = subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"])
    with pytest.raises(BadInput, match=r"ended with 3.*rl-teacher serve"):
        await_service(process)


def test_service_startup_times_out():
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    with pytest.raises(BadInput, match="does not answer"):
        await_service(process, timeout_s=0.2)
    process.kill()
    process.wait()


def test_address_module_does_not_import_the_server():
    code = "import rl_teacher.web.address, sys; print({'fastapi', 'uvicorn'} & set(sys.modules))"
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert found.stdout.strip() == "set()"
