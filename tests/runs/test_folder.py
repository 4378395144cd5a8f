"""Tests of the run folder."""

import errno
import json
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_teacher.clips.answer import Answer
from rl_teacher.common.errors import (
    BadExperimentName,
    ConfigMismatch,
    CorruptCheckpoint,
    ExperimentInUse,
    ExperimentNotFound,
    RunFolderUnusable,
    StoreUnavailable,
)
from rl_teacher.common.files import folder_errors
from rl_teacher.runs.config_comparison import check_same_config
from rl_teacher.runs.folder import (
    Experiment,
    home,
    is_valid_name,
    open_store,
    shortened_name,
    validate_name,
)
from rl_teacher.runs.status import Phase
from rl_teacher.store.checkpoints import Checkpoint
from tests.runs.statuses import report
from tests.store.comparisons import ask

CONFIG = {"env_id": "ShortHopper-v1", "labels": 1400, "ppo": {"gamma": 0.99, "sizes": [64, 64]}}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("RL_TEACHER_HOME", str(tmp_path / "home"))
    return tmp_path / "home" / "experiments"


@pytest.fixture
def experiment():
    with Experiment.open("syn-1400", CONFIG) as opened:
        yield opened


def answer_one_comparison(name, labeler):
    report(name, "training")
    with open_store() as store:
        [comparison_id] = ask(store, store.experiments.get(name).id, 1)
        store.labels.add(comparison_id, Answer.LEFT, labeler)


def damage_store():
    (home() / "labels.sqlite").write_bytes(b"no database" * 1000)


def phase_of(name):
    return Experiment.find(name).summary().phase


class TestHome:
    @pytest.mark.parametrize(("before", "after"), [(None, 0o700), (0o755, 0o700), (0o1777, 0o1777)])
    def test_home_is_private_unless_all_users_share_it(self, before, after, caplog):
        if before is not None:
            home().mkdir()
            home().chmod(before)
        with Experiment.open("x", CONFIG):
            assert stat.S_IMODE(home().stat().st_mode) == after
        assert (str(home()) in caplog.text) == (after == 0o1777)

    @pytest.mark.parametrize(
        ("value", "expected"), [(None, ".rl-teacher"), ("", ".rl-teacher"), ("~/other", "other")]
    )
    def test_home_is_in_user_folder_unless_given(self, monkeypatch, value, expected):
        monkeypatch.delenv("RL_TEACHER_HOME")
        if value is not None:
            monkeypatch.setenv("RL_TEACHER_HOME", value)
        assert home() == Path.home() / expected


class TestNames:
    @pytest.mark.parametrize(
        "name", ["syn-1400", "a", "Hopper v2", "ünï", "环境", "x" * 100, "a.b_c"]
    )
    def test_valid_name_is_unchanged(self, name):
        assert validate_name(name) == name

    @pytest.mark.parametrize(
        "name",
        [
            *("", "   ", "a/b", "..", ".hidden", "a\\b", "a\nb", "a\0b", "\x1b[31m", "a\u2028b"),
            *("\udcff", " a", "a.unfinished", "x" * 101, "环" * 81),
        ],
    )
    def test_invalid_name_is_refused(self, name):
        with pytest.raises(BadExperimentName):
            validate_name(name)

    def test_unicode_spellings_are_normalised(self):
        assert validate_name("Zoe\u0308") == validate_name("Zo\u00eb")

    @given(name=st.text(max_size=120))
    def test_any_text_is_refused_or_names_direct_subfolder(self, name):
        try:
            accepted = validate_name(name)
        except BadExperimentName:
            return
        inside = Path("/experiments") / accepted
        assert inside.parent == Path("/experiments")
        assert os.path.normpath(inside) == str(inside)
        assert len(os.fsencode(accepted)) <= 240

    @given(stem=st.text("aé环😀", min_size=1, max_size=120))
    def test_shortened_name_is_valid_and_keeps_suffix(self, stem):
        name = shortened_name(stem, ".archived-12")
        assert name.endswith(".archived-12")
        assert is_valid_name(name)
        assert name.startswith(stem[:30])

    def test_only_a_name_that_is_too_long_is_shortened_with_a_hash(self):
        assert shortened_name("x" * 90, ".archived1") == "x" * 90 + ".archived1"
        one, other = (shortened_name("x" * 100 + end, "_seed=1") for end in "ab")
        assert one[:70] == other[:70]
        assert one != other


class TestOpening:
    def test_same_config_resumes_experiment(self):
        with Experiment.open("x", CONFIG) as first:
            first.metrics_file.append({"step": 1})
        with Experiment.open("x", {**CONFIG, "ppo": {"gamma": 0.99, "sizes": (64, 64)}}) as again:
            assert (again.config, again.metrics()) == (CONFIG, [{"step": 1}])

    def test_other_config_is_refused_with_all_differences(self):
        with Experiment.open("x", {**CONFIG, "seed": 0}) as first:
            first.checkpoints.save(Checkpoint(1, {}, {}))
        other = {"env_id": "Reacher-v1", "labels": 1400, "ppo": {"gamma": 0.9, "sizes": [64, 64]}}
        with pytest.raises(ConfigMismatch) as caught:
            Experiment.open("x", {**other, "clip": None})
        lines = str(caught.value).splitlines()[1:-1]
        assert [line.split(":")[0].strip() for line in lines] == [*("env_id", "ppo.gamma", "seed")]
        found = Experiment.find("x")
        assert (found.config["seed"], len(found.checkpoints.files())) == (0, 1)
        Experiment.open("x", {**CONFIG, "seed": 0}).close()

    @pytest.mark.parametrize("has_labels", [False, True])
    def test_start_without_checkpoint_and_labels_does_not_bind_the_name(self, has_labels):
        with Experiment.open("x", CONFIG) as first:
            first.metrics_file.append({"step": 1})
            if has_labels:
                answer_one_comparison("x", "synthetic:oracle")
        if has_labels:
            with pytest.raises(ConfigMismatch):
                Experiment.open("x", {"seed": 1})
            return
        with Experiment.open("x", {"seed": 1}) as corrected:
            assert corrected.starts_over
            assert (corrected.config, corrected.metrics()) == ({"seed": 1}, [])

    @pytest.mark.parametrize("stored_config", [None, CONFIG])
    def test_folder_without_config_is_resumed_only_if_the_store_has_labels(
        self, folder, stored_config
    ):
        with Experiment.open("x", CONFIG) as first:
            first.checkpoints.save(Checkpoint(1, {}, {}))
        (folder / "x" / "config.json").unlink()
        with Experiment.open("x", CONFIG, stored_config=stored_config) as again:
            assert (again.checkpoints.load() is None) == (stored_config is None)

    def test_failed_start_is_kept_while_store_cannot_be_read(self):
        with Experiment.open("x", CONFIG) as first:
            first.metrics_file.append({"step": 1})
        damage_store()
        with pytest.raises(StoreUnavailable):
            Experiment.open("x", {"seed": 1})
        assert first.metrics() == [{"step": 1}]

    def test_force_new_starts_over_with_new_config(self, folder):
        with Experiment.open("x", CONFIG) as first:
            first.metrics_file.append({"step": 1})
            first.checkpoints.save(Checkpoint(1, {}, {}))
        (folder / "x" / "config.json").write_text('{"env_')
        with pytest.raises(CorruptCheckpoint, match=r"config\.json"):
            Experiment.open("x", CONFIG)
        with Experiment.open("x", {"seed": 1}, force_new=True) as fresh:
            assert (fresh.metrics(), fresh.checkpoints.load()) == ([], None)
            assert fresh.config == {"seed": 1}

    @pytest.mark.parametrize("force_new", [False, True])
    def test_experiment_in_use_is_refused_with_process_id(self, experiment, force_new):
        experiment.metrics_file.append({"step": 1})
        with pytest.raises(ExperimentInUse, match=f"process {os.getpid()}"):
            Experiment.open(experiment.name, CONFIG, force_new=force_new)
        assert experiment.metrics() == [{"step": 1}]

    def test_invalid_name_creates_no_folder(self, folder):
        with pytest.raises(BadExperimentName):
            Experiment.open("../x", CONFIG)
        assert not folder.exists()

    def test_file_in_place_of_home_is_refused(self, tmp_path):
        (tmp_path / "home").write_text("")
        with pytest.raises(RunFolderUnusable, match="RL_TEACHER_HOME"):
            Experiment.open("x", CONFIG)

    @pytest.mark.parametrize("code", [errno.EROFS, errno.EACCES, errno.ENOSPC, errno.EIO])
    def test_operating_system_errors_name_the_folder(self, tmp_path, code):
        with pytest.raises(RunFolderUnusable, match=str(tmp_path)), folder_errors(tmp_path):
            raise OSError(code, os.strerror(code))


@given(
    config=st.dictionaries(
        st.text(),
        st.none() | st.integers() | st.text() | st.dictionaries(st.text(), st.integers()),
    )
)
def test_config_has_no_difference_to_itself(config):
    check_same_config("x", config, config)


class TestFinding:
    @pytest.mark.usefixtures("experiment")
    def test_missing_experiment_suggests_nearest_name(self):
        with pytest.raises(ExperimentNotFound, match="syn-1400"):
            Experiment.find("syn-140")

    def test_list_has_labels_of_the_store_or_else_the_logged_ones(self, experiment):
        assert Experiment.all()[0].step == 0
        assert not (home() / "labels.sqlite").exists()
        experiment.metrics_file.append({"step": 4000, "labels_answered": 17})
        answer_one_comparison("syn-1400", "owner")
        [summary] = Experiment.all()
        assert (summary.name, summary.env_id, summary.step) == ("syn-1400", "ShortHopper-v1", 4000)
        assert summary.labels == (1, 1)
        damage_store()
        assert [each.labels.answered for each in Experiment.all()] == [17]

    def test_list_is_sorted_by_latest_change(self, folder):
        for age, name in enumerate(["new", "old"]):
            Experiment.open(name, CONFIG).close()
            for path in (folder / name).iterdir():
                os.utime(path, (1e9 - age, 1e9 - age))
        (folder / "new" / "other.json").symlink_to("nothing")
        assert [summary.name for summary in Experiment.all()] == ["new", "old"]

    @pytest.mark.parametrize("content", ["{", "[]", "[" * 100_000])
    def test_list_ignores_other_folders_and_keeps_damaged_configs(self, folder, content):
        Experiment.open("x", CONFIG).close()
        (folder / "x" / "config.json").write_text(content)
        (folder / "mine").mkdir()
        assert [(summary.name, summary.env_id) for summary in Experiment.all()] == [("x", "?")]

    @pytest.mark.parametrize("value", ["7", None, [1], float("inf")])
    def test_list_shows_damaged_metrics_as_zero(self, folder, value):
        Experiment.open("x", CONFIG).close()
        row = dict.fromkeys(("step", "labels_asked", "labels_answered", "clips_sorted"), value)
        (folder / "x" / "metrics.jsonl").write_text(json.dumps(row))
        [summary] = Experiment.all()
        assert (summary.step, summary.labels, summary.clips) == (0, (0, 0), 0)


class TestPhase:
    @pytest.mark.parametrize(
        ("reported", "while_running", "afterwards"),
        [
            (None, Phase.STARTING, Phase.STOPPED),
            ("training", Phase.TRAINING, Phase.LOST),
            ("waiting", Phase.WAITING, Phase.LOST),
            ("stopped", Phase.STARTING, Phase.STOPPED),
            ("failed", Phase.STARTING, Phase.FAILED),
            ("finished", Phase.FINISHED, Phase.FINISHED),
        ],
    )
    def test_phase_is_the_reported_one_while_the_process_lives(
        self, experiment, reported, while_running, afterwards
    ):
        if reported is not None:
            report("syn-1400", reported)
        assert phase_of("syn-1400") is while_running
        experiment.close()
        assert phase_of("syn-1400") is afterwards

    def test_fitted_predictor_without_entry_is_finished(self, experiment):
        experiment.predictor_folder.mkdir()
        experiment.close()
        assert phase_of("syn-1400") is Phase.FINISHED

    def test_killed_experiment_is_lost_and_resumes_at_once(self):
        program = (
            "from rl_teacher.runs.folder import Experiment\n"
            f"experiment = Experiment.open('x', {CONFIG!r})\n"
            "experiment.metrics_file.append({'step': 1})\n"
            "print('open', flush=True)\n"
            "import time; time.sleep(60)\n"
        )
        report("x", "training")
        with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"open\n"
            assert phase_of("x") is Phase.TRAINING
            process.send_signal(signal.SIGKILL)
        assert phase_of("x") is Phase.LOST
        with Experiment.open("x", CONFIG) as experiment:
            assert experiment.metrics() == [{"step": 1}]


class TestWiping:
    def test_wipe_keeps_config_and_lock(self, experiment):
        experiment.checkpoints.save(Checkpoint(1, {}, {}))
        experiment.metrics_file.append({"step": 1})
        experiment.wipe()
        assert sorted(path.name for path in experiment.folder.iterdir()) == ["config.json", "lock"]
        experiment.metrics_file.append({"step": 2})
        assert experiment.metrics() == [{"step": 2}]


def test_import_loads_no_heavy_modules():
    program = "import sys, rl_teacher.runs.folder; print(*sys.modules)"
    found = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    heavy = {"sqlalchemy", "alembic", "jax", "matplotlib", "tensorboardX", "rich", "mujoco"}
    assert heavy & set(found.stdout.split()) == set()
