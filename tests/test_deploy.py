"""Tests of the files in `deploy` and of workflows: they are consistent, and their commands work."""

import configparser
import fnmatch
import ipaddress
import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from granian.utils.proxies import wrap_asgi_with_proxy_headers

from rl_teacher import cli, settings_commands
from rl_teacher.preparation import check
from rl_teacher.web import serve
from rl_teacher.web.address import await_service

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"
UNITS = ("rl-teacher.service", "rl-teacher-run@.service")
SECRETS = {"POSTGRES_PASSWORD": "p", "S3_SECRET_KEY": "s"}  # pragma: allowlist secret
OWN_SERVICES = ("serve", "trainer", "bucket")
SERVICE_KEYS = {
    *("build", "cap_add", "cap_drop", "command", "configs", "depends_on", "deploy", "entrypoint"),
    *("env_file", "environment", "expose", "extra_hosts", "healthcheck", "hostname", "image"),
    *("init", "labels", "logging", "network_mode", "networks", "ports", "profiles"),
    *("pull_policy", "read_only", "restart", "secrets", "security_opt", "shm_size", "stop_signal"),
    *("stop_grace_period", "sysctls", "tmpfs", "ulimits", "user", "volumes", "working_dir"),
}
"""Keys of the Compose specification, to detect misspelt ones."""


# --- files ---


def instructions():
    """Return the instructions of the Dockerfile, each as its name and its arguments."""
    text = re.sub(r"^\s*#.*\n", "", (DEPLOY / "Dockerfile").read_text(), flags=re.MULTILINE)
    return [
        tuple(line.split(maxsplit=1)) for line in text.replace("\\\n", " ").splitlines() if line
    ]


def only(name):
    """Return the arguments of the only instruction of this name."""
    (arguments,) = [rest for each, rest in instructions() if each == name]
    return arguments


def dockerfile_health_check():
    return json.loads(only("HEALTHCHECK").removeprefix("CMD "))


def interpolate(value: Any, variables) -> Any:
    """Replace `${NAME}`, `${NAME:-default}` and `${NAME:?error}` as Compose does."""
    if isinstance(value, dict):
        return {key: interpolate(each, variables) for key, each in value.items()}
    if isinstance(value, list):
        return [interpolate(each, variables) for each in value]
    if not isinstance(value, str):
        return value

    def replacement(match):
        name, operator, rest = match.groups()
        if operator == ":-":
            return variables.get(name) or rest
        assert operator != ":?" or name in variables, f"{name} {rest}"
        return variables[name]

    return re.sub(r"\$\{(\w+)(:[-?])?([^}]*)\}", replacement, value)


def compose(**variables) -> Any:
    content = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    return interpolate(content, SECRETS | variables)


def services(**variables) -> Any:
    return compose(**variables)["services"]


def unit(name):
    """Return the sections of a systemd unit; a key that occurs several times has its last value."""
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # pyright: ignore[reportAttributeAccessIssue]
    parser.read(DEPLOY / name)
    return parser


def comments(name):
    """Return the indented lines of the comments of a file, with continued lines joined."""
    lines = re.findall(r"^#     (.*)$", (DEPLOY / name).read_text(), re.MULTILINE)
    return re.sub(r"\\\n *", "", "\n".join(lines)).splitlines()


def ray_cluster() -> Any:
    return yaml.safe_load((DEPLOY / "ray-cluster.yaml").read_text())


def option(command, name):
    return command[command.index(name) + 1]


# --- commands ---


def image_commands():
    return {"image": json.loads(only("CMD"))}


def compose_commands():
    return {name: shlex.split(services()[name]["command"]) for name in ("serve", "trainer")}


def unit_commands():
    example = re.search(r"TEACH_OPTIONS=(.*)'", (DEPLOY / UNITS[1]).read_text())
    assert example is not None
    commands = {}
    for name, options in (
        (UNITS[0], ""),
        (UNITS[1], example[1]),
        (UNITS[1], "-p synth -e Reacher-v1 -l 175"),
        (UNITS[1], "-p rl -e Reacher-v1"),
    ):
        line = unit(name)["Service"]["ExecStart"]
        line = line.replace("%i", "reacher").replace("$TEACH_OPTIONS", options)
        program, *arguments = shlex.split(line)
        assert program == "/opt/rl-teacher/bin/rl-teacher"
        commands[f"{name} {options}".strip()] = arguments
    return commands


def ray_commands():
    (line,) = [each for each in comments("ray-cluster.yaml") if "rl-teacher teach" in each]
    words = shlex.split(line)
    return {"ray job": words[words.index("rl-teacher-env/bin/rl-teacher") + 1 :]}


def docker_commands():
    lines = [each for each in comments("Dockerfile") if each.startswith("docker run")]
    found = [words[words.index("rl-teacher") + 1 :] for words in map(shlex.split, lines)]
    return {f"docker run {number}": words for number, words in enumerate(found) if words}


COMMANDS = (
    image_commands() | compose_commands() | unit_commands() | ray_commands() | docker_commands()
)


@pytest.mark.parametrize("arguments", COMMANDS.values(), ids=COMMANDS.keys())
def test_command_is_accepted_by_the_command_line(arguments, monkeypatch, capsys):
    configs = []

    def record(config, options, defaults):
        configs.append((config, options))
        return 0

    monkeypatch.setattr(settings_commands, "run_experiment", record)
    monkeypatch.setattr(serve, "serve", lambda *options: 0)
    assert cli.main(arguments) == 0, capsys.readouterr().err
    for config, options in configs:
        check(config, options)


def start_and_check(command, programs, env=None, cwd=None):
    """Start the service as deployed, but at any port, and execute the image's health check.

    Args:
        command: arguments of `rl-teacher`.
        programs: beginning of the command that starts `rl-teacher`, and Python.
        env: their environment variables.
        cwd: their working directory.
    """
    start, python = programs
    assert option(command, "--port") == "8765"
    arguments = [each if each != "8765" else "0" for each in command]
    with subprocess.Popen(
        [*start, *arguments], stdout=subprocess.DEVNULL, env=env, cwd=cwd
    ) as process:
        try:
            port = await_service(process).url.rpartition(":")[2].strip("/")
            _, *code = dockerfile_health_check()
            check = [each.replace(":8765/", f":{port}/") for each in code]
            subprocess.run([python, *check], check=True, timeout=60, env=env, cwd=cwd)
        finally:
            process.terminate()
        assert process.wait(60) == 0


@pytest.mark.parametrize("name", ["image", UNITS[0]])
def test_service_starts_as_deployed_and_passes_health_check(name):
    programs = ([sys.executable, "-m", "rl_teacher.cli"], sys.executable)
    start_and_check(COMMANDS[name], programs)


def extras():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return set(project["optional-dependencies"])


# --- image ---


def test_image_has_pinned_bases_and_ends_as_a_user_without_privileges():
    bases = [rest.split()[0] for name, rest in instructions() if name == "FROM"]
    assert bases
    assert all(re.fullmatch(r"[a-z]+:\d+\.\d+-slim-[a-z]+", each) for each in bases)
    names = [name for name, _ in instructions()]
    assert only("USER") == "teacher"
    assert names.index("USER") < names.index("ENTRYPOINT")
    assert "RUN" not in names[names.index("USER") :]
    assert "ADD" not in names


def test_build_context_has_the_sources_and_no_secrets():
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    rules = [each for each in lines if each and not each.startswith("#")]
    assert rules[0] == "*"
    kept = {each[1:] for each in rules if each.startswith("!")}
    assert kept == {path for path in kept if (ROOT / path).exists()}
    needed = {"src", "web-ui", "hatch_build.py", "pyproject.toml", "requirements.lock", "README.md"}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    licences = {each for each in project["license-files"] if "/" not in each}
    assert kept >= needed | licences
    assert not any(fnmatch.fnmatch(name, each) for name in ("deploy", ".git") for each in kept)
    assert only("COPY") == ". ."
    assert "deploy/.env" in (ROOT / ".gitignore").read_text().splitlines()


# --- compose ---


def test_compose_file_refers_only_to_what_it_defines():
    content = compose()
    assert set(content) <= {"name", "services", "volumes", "networks"} | {
        key for key in content if key.startswith("x-")
    }
    mounted = set()
    for name, service in content["services"].items():
        assert set(service) <= SERVICE_KEYS, name
        for volume in service.get("volumes", []):
            source, target = volume.split(":")[:2]
            mounted.add(source)
            assert target.startswith("/")
        for other, wanted in service.get("depends_on", {}).items():
            needed = content["services"][other]
            if wanted["condition"] == "service_healthy":
                assert "test" in needed["healthcheck"], other
            else:
                assert wanted["condition"] == "service_completed_successfully"
                assert "restart" not in needed, other
        if "build" in service:
            context = (DEPLOY / service["build"]["context"]).resolve()
            assert context == ROOT
            assert (context / service["build"]["dockerfile"]).is_file()
        else:
            assert re.search(r":v?\d", service["image"]), name
    assert mounted == set(content["volumes"])


def test_only_the_service_has_a_port_and_on_loopback_by_default():
    published = {name: each["ports"] for name, each in services().items() if "ports" in each}
    assert published == {"serve": ["127.0.0.1:8765:8765"]}
    assert services(LISTEN_ADDRESS="10.0.0.5")["serve"]["ports"] == ["10.0.0.5:8765:8765"]


def test_containers_have_no_privileges_and_write_only_to_volumes():
    for name, service in services().items():
        assert service["read_only"], name
        assert service["cap_drop"] == ["ALL"], name
        assert "cap_add" not in service, name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert service["image"] == "rl-teacher" or service["user"] not in ("root", "0"), name


def test_service_and_trainer_use_the_database_and_the_object_store():
    content = services()
    postgres, objects = content["postgres"]["environment"], content["objects"]
    for name in OWN_SERVICES[:2]:
        environment = content[name]["environment"]
        database = urlsplit(environment["RL_TEACHER_DATABASE_URL"])
        assert database.hostname == "postgres"
        assert database.username == postgres["POSTGRES_USER"]
        assert database.path == f"/{postgres['POSTGRES_DB']}"
        assert environment["PGPASSWORD"] == postgres["POSTGRES_PASSWORD"]
        media = urlsplit(environment["RL_TEACHER_MEDIA_URL"])
        assert media.scheme == "s3"
        assert content["bucket"]["entrypoint"][-1] == f"/objects/{media.netloc}"
        command = shlex.split(objects["command"])
        port = option(command, "--port")
        assert environment["AWS_ENDPOINT_URL"] == f"http://objects{port}"
        assert f"{port}{option(command, '--health')}" in objects["healthcheck"]["test"][-1]
        keys = objects["environment"]
        assert environment["AWS_ACCESS_KEY_ID"] == keys["ROOT_ACCESS_KEY"]
        assert environment["AWS_SECRET_ACCESS_KEY"] == keys["ROOT_SECRET_KEY"]
    assert "-o teacher /home/rl-teacher /objects" in (DEPLOY / "Dockerfile").read_text()
    assert re.search(rf"--uid {objects['user']} .*teacher", (DEPLOY / "Dockerfile").read_text())


@pytest.mark.parametrize("variables", [{}, {"SUBNET": "10.9.0.0/16"}])
def test_service_trusts_proxies_in_the_network_of_the_containers(variables):
    content = compose(**variables)
    network = ipaddress.ip_network(
        content["networks"]["default"]["ipam"]["config"][0]["subnet"], strict=True
    )
    given = content["services"]["serve"]["environment"]["FORWARDED_ALLOW_IPS"]
    app = wrap_asgi_with_proxy_headers(lambda scope, *_: scope["client"][0], given)

    def client_behind(proxy):
        headers = [(b"x-forwarded-for", b"198.51.100.7")]
        return app({"type": "http", "client": (proxy, 1), "headers": headers}, None, None)

    assert client_behind(str(network[1])) == "198.51.100.7"
    assert client_behind("192.0.2.1") == "192.0.2.1"


# --- workflows ---


def test_actions_of_workflows_are_pinned_by_their_digests():
    texts = [each.read_text() for each in (ROOT / ".github" / "workflows").iterdir()]
    used = re.findall(r"uses: (\S+)", "".join(texts))
    assert used
    assert all(re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", each) for each in used), used


# --- systemd ---


def verified_units(folder):
    """Write the units with a program that exists here, and return an instance of each."""
    for name in UNITS:
        text = (DEPLOY / name).read_text()
        (folder / name).write_text(text.replace("/opt/rl-teacher/bin/rl-teacher", "/bin/true"))
    instance = folder / "rl-teacher-run@reacher.service"
    instance.write_text((folder / UNITS[1]).read_text())
    return [folder / UNITS[0], instance]


needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="needs systemd-analyze; apt-get install systemd"
)


@needs_systemd
def test_systemd_finds_no_fault_in_the_units(tmp_path):
    for path in verified_units(tmp_path):
        done = subprocess.run(
            ["systemd-analyze", "verify", path], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        assert "Unknown" not in done.stderr


# --- Ray ---


def test_ray_accepts_the_cluster_file_and_refuses_an_unknown_key():
    from jsonschema import ValidationError
    from ray.autoscaler._private.util import prepare_config, validate_config

    validate_config(prepare_config(ray_cluster()))
    with pytest.raises(ValidationError, match="head_ssh_user"):
        validate_config(prepare_config(ray_cluster() | {"head_ssh_user": "x"}))


def ray_start_commands():
    config = ray_cluster()
    return config["head_start_ray_commands"][1], config["worker_start_ray_commands"][1]


@pytest.mark.parametrize("line", ray_start_commands(), ids=["head", "worker"])
def test_nodes_start_with_authentication_and_with_options_that_ray_knows(line):
    from ray.scripts.scripts import start

    limit, _, command = line.partition("; ")
    assert limit.startswith("ulimit")
    assert "~/.ray/auth_token" in ray_cluster()["file_mounts"]
    mode, program, *arguments = shlex.split(command)
    assert mode == "RAY_AUTH_MODE=token"
    assert program == "~/rl-teacher-env/bin/ray"
    assert arguments[0] == "start"
    start.make_context("start", arguments[1:])  # raises for unknown options
