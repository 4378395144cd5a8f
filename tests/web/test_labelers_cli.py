"""`rl-teacher labelers` and `rl-teacher export`."""

import json
import re
from datetime import timedelta
from urllib.parse import parse_qs, urlsplit

import pytest

from rl_teacher.cli import main
from rl_teacher.clips.answer import Answer
from rl_teacher.runs.folder import open_store
from rl_teacher.store.store import utc_now
from rl_teacher.web import labelers_cli
from rl_teacher.web.address import local_address
from tests.store.credentials import identify

ADDRESS = local_address("127.0.0.1", 8765, "this-one", "a-database", "some-media")


@pytest.fixture
def experiment():
    """Experiment with a label in the store of the home."""
    with open_store() as store:
        experiment_id = store.experiments.ensure("hopper", "ShortHopper-v1", {})
        pairs = [("a" * 64, "b" * 64)]
        [comparison_id] = store.comparisons.add(experiment_id, pairs, "ShortHopper-v1", 60, 0)
        store.labels.add(comparison_id, Answer.LEFT, "Zoë")
    return "hopper"


def identity_of(token):
    """Return name and role of a credential's owner, or None."""
    with open_store() as store:
        found = identify(store, token)
    return None if found is None else (found.name, found.role)


class TestAdd:
    def test_add_prints_link_if_service_runs(self, capsys, monkeypatch, experiment):
        monkeypatch.setattr(labelers_cli, "running_service", lambda database: ADDRESS)
        assert main(["labelers", "add", "Ann", "--experiment", experiment]) == 0
        [link] = re.findall(r"link: (\S+)", capsys.readouterr().out)
        assert link.startswith("http://127.0.0.1:8765/e/hopper/label?token=rlt_")
        [token] = parse_qs(urlsplit(link).query)["token"]
        assert identity_of(token) == ("Ann", "labeler")

    def test_add_limits_labeler_to_experiment(self, experiment):
        only = labelers_cli.add("Ann", "labeler", None, experiment).credential
        everything = labelers_cli.add("Bob", "labeler", None).credential
        with open_store() as store:
            bound, free = (identify(store, each) for each in (only, everything))
        assert bound is not None
        assert free is not None
        assert (bound.experiment, free.experiment) == (experiment, None)

    @pytest.mark.parametrize(
        "arguments",
        [
            ["owner"],
            ["synthetic:oracle"],
            [""],
            ["x" * 101],
            ["Zoë", "--role", "admin"],
            ["Zoë", "--days", "0"],
            ["Zoë", "--days", "nan"],
            ["Zoë", "--days", "1e9"],
            ["Zoë", "--experiment", "walker"],
            ["Zoë", "--experiment", "hopper", "--role", "owner"],
        ],
    )
    def test_add_with_invalid_arguments_adds_no_labeler(self, arguments, capsys):
        assert main(["labelers", "add", *arguments]) == 2
        assert "error:" in capsys.readouterr().err
        with open_store() as store:
            assert {each.name for each in store.labelers.all()} <= {"owner"}


class TestRevoke:
    def test_revoke_removes_access_and_keeps_labeler(self, capsys, experiment):
        credential = labelers_cli.add("Ann", "labeler", None).credential
        assert main(["labelers", "revoke", "Ann"]) == 0
        assert "1 credential of Ann revoked" in capsys.readouterr().out
        assert identity_of(credential) is None
        with open_store() as store:
            assert "Ann" in {each.name for each in store.labelers.all()}


class TestInvites:
    def test_invite_prints_link_for_a_class(self, capsys, monkeypatch, experiment):
        monkeypatch.setattr(labelers_cli, "running_service", lambda database: ADDRESS)
        arguments = ["--uses", "30", "--days", "2", "--experiment", experiment]
        assert main(["labelers", "invite", *arguments]) == 0
        [link] = re.findall(r"link: (\S+)", capsys.readouterr().out)
        assert link.startswith("http://127.0.0.1:8765/join?invite=rlt_")
        [token] = parse_qs(urlsplit(link).query)["invite"]
        with open_store() as store:
            names = [store.access.accept_invite(token, name)[0].name for name in ("Ann", "Bob")]
            [made] = store.access.invites()
        assert names == ["Ann", "Bob"]
        assert (made.max_uses, made.num_uses, made.experiment) == (30, 2, experiment)
        assert timedelta(days=1.9) < made.expires_at - utc_now() < timedelta(days=2.1)

    def test_revoked_invite_is_listed_as_revoked(self, capsys):
        labelers_cli.invite(5, 7.0)
        assert main(["labelers", "revoke-invite", "1"]) == 0
        assert main(["labelers", "invites"]) == 0
        assert re.search(r"1 +labeler +all +0 of 5 .* revoked", capsys.readouterr().out)


class TestExportLabels:
    def test_jsonl_export_prints_lines(self, capfdbinary, experiment):
        assert main(["export", experiment, "--format", "jsonl"]) == 0
        [row] = map(json.loads, capfdbinary.readouterr().out.splitlines())
        assert (row["labeler"], row["answer"]) == ("Zoë", "left")

    def test_export_writes_file(self, capsys, tmp_path, experiment):
        path = tmp_path / "labels.jsonl"
        arguments = ["export", experiment, "--format", "jsonl", "--out", str(path)]
        assert main(arguments) == 0
        assert "1 label in" in capsys.readouterr().out
        assert path.stat().st_size > 100
