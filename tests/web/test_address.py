"""Address file and access token of the running service, and links to it."""

import json
import os
import stat
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, replace
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from rl_teacher.common.errors import BadInput, RunFolderUnusable
from rl_teacher.web.address import (
    access_token,
    await_service,
    base_url,
    label_path,
    link,
    local_address,
    location_id,
    one_time_link,
    published,
    read_address,
    running_service,
    service_proof,
)


def server_with_body(make_body):
    """Return a server that answers a request for a nonce with what the function returns."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(make_body(self.path.partition("nonce=")[2]))

        def log_message(self, format, *args):  # noqa: A002 - name in the base class
            pass

    return HTTPServer(("127.0.0.1", 0), Handler)


@contextmanager
def serving(make_body):
    """Run such a server and yield its address, published under the instance `this-one`."""
    server = server_with_body(make_body)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield local_address("127.0.0.1", server.server_port, "this-one", "database", "media")
    server.shutdown()
    thread.join()
    server.server_close()


def answer_with(token, instance, nonce):
    """Return the response of a service that knows this token."""
    proof = service_proof(token, instance, nonce)
    return json.dumps({"status": "ok", "instance": instance, "proof": proof}).encode()


@pytest.fixture
def service(home):
    """Address of a server that answers as the instance `this-one` of the home."""
    with serving(lambda nonce: answer_with(access_token(home), "this-one", nonce)) as address:
        yield address


def test_published_service_is_found_until_it_stops(service, home):
    with published(service):
        assert running_service() == service
        assert running_service(location_id("database"), location_id("media")) == service
    assert running_service() is None
    assert list((home / "services").iterdir()) == []


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"<html>", b"[]", b'{"status": "ok"}', b"\xff"),
        b'{"status": "ok", "instance": "this-one"}',
        b'{"status": "ok", "instance": "this-one", "proof": "\xc3\xa4"}',
        answer_with("t" * 43, "this-one", "0" * 32),
    ],
)
def test_other_server_on_the_port_is_ignored(body):
    with serving(lambda _: body) as address, published(address):
        assert running_service() is None


@pytest.mark.parametrize(("known", "instance"), [(False, "this-one"), (True, "another")])
def test_server_that_cannot_prove_the_published_instance_is_ignored(home, known, instance):
    """A stranger's server does not know the token, or asks another service of the home."""
    token = access_token(home) if known else "t" * 43
    with serving(lambda nonce: answer_with(token, instance, nonce)) as address, published(address):
        assert running_service() is None


def test_link_for_the_browser_contains_no_token(home, service, monkeypatch):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    url = link(service, label_path("walker"))
    opened = one_time_link(service, url)
    assert access_token(home) in url
    assert access_token(home) not in opened
    assert opened.startswith(f"{service.url}/e/walker/label?code=")


def test_first_of_two_services_is_found_after_the_second_stops(service, home):
    token = access_token(home)
    with serving(lambda nonce: answer_with(token, "second", nonce)) as other, published(service):
        second = replace(other, instance="second")
        os.utime(home / "services" / "this-one.json", (0, 0))
        with published(second):
            assert running_service() == second
        assert running_service() == service


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
    assert local_address(host, 8765, "this-one", "database", "media").url == url


@pytest.mark.parametrize(
    "url",
    [
        *("lab.example", "lab.example:8765", "ftp://lab.example", "https://", "https://:80"),
        *(
            "http://lab:port",
            "http://lab:0",
            "http://lab/labels",
            "http://lab?a=1",
            "http://lab/#a",
        ),
        "http://me@lab",
    ],
)
def test_public_url_with_more_or_less_than_host_and_port_is_refused(url):
    with pytest.raises(BadInput, match=r"--public-url .* was given.*such as https://label"):
        base_url(url)


def test_service_exit_during_startup_is_reported():
    process = subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"])
    with pytest.raises(BadInput, match=r"exited with 3.*rl-teacher serve"):
        await_service(process)


def test_address_module_does_not_import_the_server():
    code = "import rl_teacher.web.address, sys; print({'fastapi', 'granian'} & set(sys.modules))"
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert found.stdout.strip() == "set()"


def test_token_is_created_once(tmp_path):
    token = access_token(tmp_path / "home")
    assert len(token) >= 43
    assert access_token(tmp_path / "home") == token
    assert access_token(tmp_path / "other") != token


def test_permissions_of_token_file_are_restricted(tmp_path):
    access_token(tmp_path)
    (tmp_path / "access-token").chmod(0o644)
    access_token(tmp_path)
    assert stat.S_IMODE((tmp_path / "access-token").stat().st_mode) == 0o600


@pytest.mark.parametrize("content", [b"", b"short", b"\xff" * 50, b"spaces in it " * 5])
def test_invalid_token_file_is_rejected(tmp_path, content):
    (tmp_path / "access-token").write_bytes(content)
    with pytest.raises(RunFolderUnusable, match=r"access-token.*Delete it"):
        access_token(tmp_path)


def test_concurrent_callers_agree_on_token(tmp_path):
    with ThreadPoolExecutor(4) as pool:
        tokens = pool.map(access_token, [tmp_path] * 16)
    assert len(set(tokens)) == 1


@pytest.mark.parametrize(
    "changed",
    [{"port": 99_999}, {"port": True}, {"port": "80"}, {"host": None}, {"pid": []}, {"url": 3}],
)
def test_address_file_with_invalid_values_is_ignored(tmp_path, changed):
    address = local_address("127.0.0.1", 80, "this-one", "database", "media")
    path = tmp_path / "service.json"
    path.write_text(json.dumps(asdict(address)))
    assert read_address(path) == address
    path.write_text(json.dumps(asdict(address) | changed))
    assert read_address(path) is None
