"""Tests of the files in `deploy`: the commands that they contain work."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from rl_teacher.web.address import await_service

DEPLOY = Path(__file__).parents[1] / "deploy"


def dockerfile_command():
    (line,) = re.findall(r"^CMD (\[.*\])$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    return json.loads(line)


def dockerfile_health_check():
    pattern = r"^HEALTHCHECK CMD (\[.*\])$"
    (line,) = re.findall(pattern, (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    return json.loads(line)


def unit_command():
    text = (DEPLOY / "rl-teacher.service").read_text()
    (line,) = re.findall(r"^ExecStart=(.*)$", text, re.MULTILINE)
    program, *arguments = shlex.split(line)
    assert Path(program).name == "rl-teacher"
    return arguments


@pytest.mark.parametrize("command", [dockerfile_command(), unit_command()], ids=["image", "unit"])
def test_service_starts_as_deployed_and_passes_health_check(command):
    assert command[command.index("--port") + 1] == "8765"
    arguments = [each if each != "8765" else "0" for each in command]
    start = [sys.executable, "-m", "rl_teacher.cli", *arguments]
    with subprocess.Popen(start, stdout=subprocess.DEVNULL) as process:
        try:
            port = await_service(process).url.rpartition(":")[2].strip("/")
            _, *code = dockerfile_health_check()
            check = [each.replace(":8765/", f":{port}/") for each in code]
            subprocess.run([sys.executable, *check], check=True, timeout=60)
        finally:
            process.terminate()
        assert process.wait(60) == 0


def test_image_and_unit_keep_the_home_in_a_volume():
    image, unit = ((DEPLOY / name).read_text() for name in ("Dockerfile", "rl-teacher.service"))
    assert "ENV RL_TEACHER_HOME=/home/rl-teacher\nVOLUME /home\n" in image
    assert "StateDirectory=rl-teacher\n" in unit
    assert "Environment=RL_TEACHER_HOME=/var/lib/rl-teacher\n" in unit
