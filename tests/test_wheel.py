"""Tests of the built wheel: it contains the whole page and needs neither Node nor network."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import httpx
import pytest

from rl_teacher.web.address import access_token, await_service
from tests import test_deploy

ROOT = Path(__file__).parents[1]
PAGE = "rl_teacher/web/static/"

ADDRESS = re.compile(r"(?:https?:|wss?:)?//[a-z0-9-]+\.[a-z]{2,}[^\s\"'`)\\]*", re.IGNORECASE)
ASSET = re.compile(r"[\"'`](?:\.?/)?(?:assets/)?([\w.-]+\.(?:js|css|svg|png|wasm|woff2))[\"'`]")

NAMES = {
    "http://www.w3.org/1998/Math/MathML",
    "http://www.w3.org/1999/xhtml",
    "http://www.w3.org/1999/xlink",
    "http://www.w3.org/2000/svg",
    "http://www.w3.org/2000/xmlns/",
    "http://www.w3.org/XML/1998/namespace",
}
"""XML namespaces, which are never fetched."""


def pip(*arguments):
    """Run pip without network access."""
    subprocess.run(
        [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments],
        env=os.environ | {"PIP_NO_INDEX": "1"},
        check=True,
        capture_output=True,
    )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), str(ROOT))
    (built,) = folder.glob("rl_teacher-*.whl")
    return built


@pytest.fixture(scope="module")
def programs(wheel, tmp_path_factory):
    """Return the bin folder of a virtual environment that has only the wheel installed."""
    folder = tmp_path_factory.mktemp("venv")
    venv.create(folder, with_pip=False, symlinks=True)
    pip("--python", str(folder / "bin" / "python"), "install", "--no-deps", str(wheel))
    return folder / "bin"


@pytest.fixture
def environment(programs):
    """Return environment variables without Node and without the source tree of rl-teacher."""
    home = os.environ["RL_TEACHER_HOME"]
    libraries = sysconfig.get_paths()["purelib"]
    return {
        "PATH": str(programs),
        "PYTHONPATH": libraries,
        "HOME": os.environ["HOME"],
        "RL_TEACHER_HOME": home,
    }


@pytest.fixture
def service(programs, environment, tmp_path):
    """Yield an HTTP client of the installed `rl-teacher serve`."""
    command = [programs / "rl-teacher", "serve", "--port", "0", "--no-browser"]
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL
    ) as process:
        try:
            url = await_service(process).url
            token = access_token(Path(environment["RL_TEACHER_HOME"]))
            headers = {"Authorization": f"Bearer {token}"}
            with httpx.Client(base_url=url, headers=headers, trust_env=False) as client:
                yield client
        finally:
            process.terminate()
        assert process.wait(30) == 0


def assets_in(text):
    """Return the names of the page assets that a text refers to."""
    return set(ASSET.findall(text))


@pytest.mark.slow
def test_wheel_serves_whole_page_without_node_or_external_addresses(service, wheel, environment):
    assert shutil.which("node", path=environment["PATH"]) is None
    texts = {"/": service.get("/").raise_for_status().text}
    pending = assets_in(texts["/"])
    assert pending
    while pending:
        name = pending.pop()
        answer = service.get(f"/assets/{name}").raise_for_status()
        assert answer.content
        texts[name] = answer.text
        pending |= assets_in(texts[name]) - texts.keys()
    packed = {Path(name).name for name in zipfile.ZipFile(wheel).namelist() if PAGE in name}
    assets = texts.keys() - {"/"}
    assert packed == assets | {f"{each}.gz" for each in assets} | {"index.html", "circus.html"}
    outside = {address for text in texts.values() for address in ADDRESS.findall(text)} - NAMES
    assert outside == set()


@pytest.mark.slow
def test_wheel_starts_as_in_the_image_and_has_its_extras(programs, environment, wheel, tmp_path):
    command = test_deploy.image_commands()["image"]
    start = ([programs / "rl-teacher"], programs / "python")
    test_deploy.start_and_check(command, start, env=environment, cwd=tmp_path)
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (each for each in archive.namelist() if each.endswith(".dist-info/METADATA"))
        metadata = archive.read(name).decode()
    provided = re.findall(r"^Provides-Extra: (.*)$", metadata, re.MULTILINE)
    assert set(provided) == test_deploy.extras()
