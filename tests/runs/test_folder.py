"""Tests of the run folder."""

import errno
import json
import logging
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
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
from rl_teacher.runs import folder as run_folder
from rl_teacher.runs.config_comparison import differences, flatten
from rl_teacher.runs.folder import (
    Experiment,
    State,
    home,
    invalid_name_reason,
    last_change,
    shortened_name,
    validate_name,
)
from rl_teacher.store.database import default_url
from rl_teacher.store.files import folder_errors
from rl_teacher.store.lock import FolderLock
from rl_teacher.store.records import Counts
from rl_teacher.store.store import Store
from tests.store.comparisons import ENV_ID, ask

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
    with Store.open(default_url(home())) as store:
        [comparison_id] = ask(store, store.experiments.ensure(name, ENV_ID, {}), 1)
        store.labels.add(comparison_id, Answer.LEFT, labeler)


def fail_with(code):
    def fail(*_):
        raise OSError(code, os.strerror(code))

    return fail


def damage_store():
    (home() / "labels.sqlite").write_bytes(b"no database" * 1000)


class TestHome:
    def test_home_that_others_can_read_is_made_private(self):
        home().mkdir()
        home().chmod(0o755)
        with Experiment.open("x", CONFIG):
            assert stat.S_IMODE(home().stat().st_mode) == 0o700

    def test_home_that_all_users_share_is_warned_about(self, caplog):
        home().mkdir()
        home().chmod(0o1777)
        with Experiment.open("x", CONFIG):
            assert stat.S_IMODE(home().stat().st_mode) == 0o1777
        assert f"Other users of this machine have access to {home()}" in caplog.text

    def test_new_home_is_readable_by_its_owner_only(self):
        with Experiment.open("x", CONFIG):
            assert stat.S_IMODE(home().stat().st_mode) == 0o700

    def test_environment_variable_sets_home(self, tmp_path):
        assert home() == tmp_path / "home"

    @pytest.mark.parametrize("value", [None, ""])
    def test_default_home_is_in_user_folder(self, monkeypatch, value):
        monkeypatch.delenv("RL_TEACHER_HOME")
        if value is not None:
            monkeypatch.setenv("RL_TEACHER_HOME", value)
        assert home() == Path.home() / ".rl-teacher"

    def test_tilde_is_expanded(self, monkeypatch):
        monkeypatch.setenv("RL_TEACHER_HOME", "~/teaching")
        assert home() == Path.home() / "teaching"


class TestNames:
    @pytest.mark.parametrize(
        "name", ["syn-1400", "a", "Hopper v2", "ünï", "环境", "x" * 100, "a.b_c"]
    )
    def test_valid_name_is_unchanged(self, name):
        assert validate_name(name) == name

    @pytest.mark.parametrize(
        ("name", "fault"),
        [
            ("", "empty"),
            ("   ", "empty"),
            ("a/b", "slash"),
            ("..", "dot"),
            (".hidden", "dot"),
            ("a\\b", "slash"),
            ("a\nb", "control"),
            ("a\0b", "control"),
            ("\x1b[31m", "control"),
            ("a\u2028b", "control"),
            ("\udcff", "control"),
            (" a", "space"),
            ("a.unfinished", "ends with .unfinished"),
            ("x" * 300, "300 characters"),
            ("环" * 81, "240 bytes"),
        ],
    )
    def test_invalid_name_is_refused_with_broken_rule(self, name, fault):
        with pytest.raises(BadExperimentName, match=fault):
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
        assert invalid_name_reason(name) is None
        assert name.startswith(stem[:30])

    def test_only_a_name_that_is_too_long_is_shortened(self):
        assert shortened_name("x" * 90, ".archived1") == "x" * 90 + ".archived1"
        assert len(shortened_name("x" * 91, ".archived1")) == 100

    def test_shortened_names_of_different_stems_differ(self):
        one, other = (shortened_name("x" * 100 + end, "_seed=1") for end in "ab")
        assert one[:70] == other[:70]
        assert one != other


class TestOpening:
    def test_new_experiment_stores_config(self, experiment, folder):
        assert experiment.config == CONFIG
        assert json.loads((folder / "syn-1400" / "config.json").read_text()) == CONFIG

    def test_same_config_resumes_experiment(self):
        with Experiment.open("x", CONFIG) as first:
            first.append_metrics({"step": 1})
        with Experiment.open("x", {**CONFIG, "ppo": {"gamma": 0.99, "sizes": (64, 64)}}) as again:
            assert again.metrics() == [{"step": 1}]

    def test_other_config_is_refused_with_all_differences(self):
        with Experiment.open("x", {**CONFIG, "seed": 0}) as first:
            first.append_metrics({"step": 1})
        other = {"env_id": "Reacher-v1", "labels": 1400, "ppo": {"gamma": 0.9, "sizes": [64, 64]}}
        with pytest.raises(ConfigMismatch) as caught:
            Experiment.open("x", {**other, "clip": None})
        text = str(caught.value)
        assert '  env_id: was "ShortHopper-v1", now "Reacher-v1"\n' in text
        assert "  ppo.gamma: was 0.99, now 0.9\n" in text
        assert "  seed: was 0, now absent\n" in text
        assert "  clip: was absent, now null\n" in text
        assert "sizes" not in text
        remedy = "choose another name, or delete it with `rl-teacher delete`."
        assert text.endswith(f"\nGive the earlier values to continue it, {remedy}")

    def test_failed_start_without_records_accepts_another_config(self):
        with Experiment.open("x", CONFIG) as first:
            first.fail()
        with Experiment.open("x", {"seed": 1}) as corrected:
            assert corrected.config == {"seed": 1}

    @pytest.mark.parametrize("record", ["checkpoint", "owner", "synthetic:module:function"])
    def test_failed_run_with_records_refuses_another_config(self, record):
        with Experiment.open("x", CONFIG) as first:
            if record == "checkpoint":
                first.save_checkpoint(1, {}, {})
            else:
                answer_one_comparison("x", record)
            first.fail()
        with pytest.raises(ConfigMismatch):
            Experiment.open("x", {"seed": 1})

    def test_failed_start_with_reproducible_labels_accepts_another_config(self):
        with Experiment.open("x", CONFIG) as first:
            first.append_metrics({"step": 1})
            answer_one_comparison("x", "synthetic:oracle")
            first.fail()
        with Experiment.open("x", {"seed": 1}) as corrected:
            assert corrected.starts_over
            assert (corrected.config, corrected.metrics()) == ({"seed": 1}, [])

    def test_stopped_start_with_labels_refuses_another_config(self):
        with Experiment.open("x", CONFIG):
            answer_one_comparison("x", "synthetic:oracle")
        with pytest.raises(ConfigMismatch):
            Experiment.open("x", {"seed": 1})

    def test_rest_of_interrupted_deletion_is_not_resumed(self, folder):
        with Experiment.open("x", CONFIG) as deleted:
            deleted.save_checkpoint(1, {}, {})
            deleted.append_metrics({"step": 1})
        (folder / "x" / "config.json").unlink()
        with Experiment.open("x", {"seed": 1}) as new:
            assert (new.load_checkpoint(), new.metrics()) == (None, [])

    @pytest.mark.parametrize("stored_config", [None, CONFIG])
    def test_experiment_in_store_keeps_its_checkpoints_if_its_config_is_lost(
        self, folder, stored_config
    ):
        with Experiment.open("x", CONFIG) as damaged:
            answer_one_comparison("x", "owner")
            damaged.save_checkpoint(1, {}, {})
        (folder / "x" / "config.json").unlink()
        with Experiment.open("x", CONFIG, stored_config=stored_config) as again:
            assert again.load_checkpoint() is not None

    @pytest.mark.parametrize("is_config_lost", [False, True])
    def test_failed_start_is_kept_while_store_cannot_be_read(self, folder, is_config_lost):
        with Experiment.open("x", CONFIG) as first:
            first.append_metrics({"step": 1})
            first.fail()
        if is_config_lost:
            (folder / "x" / "config.json").unlink()
        damage_store()
        with pytest.raises(StoreUnavailable):
            Experiment.open("x", {"seed": 1})
        assert first.metrics() == [{"step": 1}]

    def test_refused_config_changes_nothing_and_releases_lock(self):
        with Experiment.open("x", CONFIG) as first:
            first.append_metrics({"step": 1})
            first.finish()
        with pytest.raises(ConfigMismatch):
            Experiment.open("x", {})
        found = Experiment.find("x")
        assert (found.state, found.config, len(found.metrics())) == (State.FINISHED, CONFIG, 1)

    def test_force_new_starts_over_with_new_config(self):
        with Experiment.open("x", CONFIG) as first:
            first.append_metrics({"step": 1})
            first.save_checkpoint(1, {}, {})
        with Experiment.open("x", {"seed": 1}, force_new=True) as fresh:
            assert fresh.metrics() == []
            assert fresh.load_checkpoint() is None
            assert fresh.config == {"seed": 1}

    def test_experiment_in_use_is_refused_with_process_id(self, experiment):
        with pytest.raises(ExperimentInUse, match=f"process {os.getpid()}"):
            Experiment.open(experiment.name, CONFIG)

    def test_force_new_is_refused_while_experiment_runs(self, experiment):
        experiment.append_metrics({"step": 1})
        with pytest.raises(ExperimentInUse):
            Experiment.open(experiment.name, CONFIG, force_new=True)
        assert experiment.metrics() == [{"step": 1}]

    def test_unreadable_config_is_refused_with_remedy(self, folder):
        Experiment.open("x", CONFIG).close()
        (folder / "x" / "config.json").write_text('{"env_')
        with pytest.raises(CorruptCheckpoint, match="`rl-teacher delete`"):
            Experiment.open("x", CONFIG)
        Experiment.open("x", CONFIG, force_new=True).close()

    def test_lock_that_cannot_be_signed_is_released(self, monkeypatch):
        with monkeypatch.context() as patched:
            patched.setattr(FolderLock, "sign", fail_with(errno.ENOSPC))
            # Its traceback refers to the experiment, as that of a notebook's last error does.
            with pytest.raises(RunFolderUnusable, match="disk is full") as _caught:
                Experiment.open("x", CONFIG)
        Experiment.open("x", CONFIG).close()

    def test_invalid_name_creates_no_folder(self, folder):
        with pytest.raises(BadExperimentName):
            Experiment.open("../x", CONFIG)
        assert not folder.exists()

    def test_file_in_place_of_home_is_refused(self, tmp_path):
        (tmp_path / "home").write_text("")
        with pytest.raises(RunFolderUnusable, match="a file is where a folder is needed"):
            Experiment.open("x", CONFIG)

    @pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs Linux's /proc")
    def test_unwritable_home_is_named(self, monkeypatch):
        monkeypatch.setenv("RL_TEACHER_HOME", "/proc/teaching")
        with pytest.raises(RunFolderUnusable, match=r"/proc/teaching.*RL_TEACHER_HOME"):
            Experiment.open("x", CONFIG)

    @pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs Linux's /dev/full")
    def test_full_disk_is_reported(self, experiment):
        (experiment.folder / "metrics.jsonl").symlink_to("/dev/full")
        with pytest.raises(RunFolderUnusable, match="the disk is full"):
            experiment.append_metrics({"step": 1})

    @pytest.mark.parametrize(
        ("code", "words"),
        [
            (errno.EROFS, "read-only file system"),
            (errno.EACCES, "you may not write there"),
            (errno.ENOSPC, "the disk is full"),
            (errno.EDQUOT, "quota"),
            (errno.EFBIG, "largest size that is allowed"),
            (errno.EIO, "Input/output error"),
        ],
    )
    def test_operating_system_errors_are_explained(self, tmp_path, code, words):
        with pytest.raises(RunFolderUnusable, match=words), folder_errors(tmp_path):
            raise OSError(code, os.strerror(code))


@given(
    config=st.dictionaries(
        st.text(),
        st.none() | st.integers() | st.text() | st.dictionaries(st.text(), st.integers()),
    )
)
def test_config_has_no_difference_to_itself(config):
    assert differences(flatten(config), flatten(config)) == []


class TestFinding:
    def test_running_experiment_is_found_and_readable(self, experiment):
        experiment.append_metrics({"step": 5})
        assert Experiment.find("syn-1400").metrics() == [{"step": 5}]

    @pytest.mark.usefixtures("experiment")
    def test_missing_experiment_suggests_nearest_name(self):
        with pytest.raises(ExperimentNotFound, match=r"'syn-140'.*Did you mean syn-1400"):
            Experiment.find("syn-140")

    def test_error_without_experiments_names_home(self, tmp_path):
        with pytest.raises(ExperimentNotFound, match=f"nor any other yet, in {tmp_path / 'home'}"):
            Experiment.find("x")

    @pytest.mark.usefixtures("experiment")
    def test_found_experiment_is_read_only(self):
        found = Experiment.find("syn-1400")
        with pytest.raises(RuntimeError, match="read-only"):
            found.append_metrics({"step": 1})
        with pytest.raises(RuntimeError, match="read-only"):
            found.wipe()

    def test_list_contains_environment_state_step_and_labels(self, experiment):
        experiment.append_metrics({"step": 4000, "labels_answered": 17})
        [summary] = Experiment.all()
        assert (summary.name, summary.env_id) == ("syn-1400", "ShortHopper-v1")
        assert (summary.state, summary.step, summary.labels.answered) == (State.RUNNING, 4000, 17)

    def test_labels_are_counted_in_store(self, experiment):
        with Store.open(default_url(home())) as store:
            there = store.experiments.ensure("syn-1400", "ShortHopper-v1", CONFIG)
            pairs = [("a", "b"), ("b", "c"), ("a", "c")]
            one, two, _ = store.comparisons.add(there, pairs, "x", 60, 0)
            store.labels.add(one, Answer.LEFT, "owner")
            store.labels.add(two, Answer.EQUAL, "owner")
            store.labels.add(two, None, "owner")
        [summary] = Experiment.all()
        assert (summary.step, summary.labels) == (0, Counts(3, 1))
        experiment.append_metrics({"step": 4000, "labels_answered": 17})
        assert Experiment.find("syn-1400").summary().labels.answered == 1

    def test_unreadable_store_falls_back_to_logged_labels(self, experiment):
        experiment.append_metrics({"step": 4000, "labels_answered": 17})
        damage_store()
        assert [summary.labels.answered for summary in Experiment.all()] == [17]

    def test_list_creates_no_database(self, experiment):
        assert len(Experiment.all()) == 1
        assert not (home() / "labels.sqlite").exists()

    def test_list_is_sorted_by_latest_change(self, folder):
        for age, name in enumerate(["new", "old"]):
            Experiment.open(name, CONFIG).close()
            for path in (folder / name).iterdir():
                os.utime(path, (1e9 - age, 1e9 - age))
        assert [summary.name for summary in Experiment.all()] == ["new", "old"]

    @pytest.mark.usefixtures("experiment")
    @pytest.mark.parametrize("name", [".state.json.1.2.unfinished", "other.json"])
    def test_list_ignores_files_that_vanish(self, folder, name):
        (folder / "syn-1400" / name).symlink_to("nothing")
        assert [summary.name for summary in Experiment.all()] == ["syn-1400"]

    @pytest.mark.usefixtures("experiment")
    def test_list_leaves_out_experiment_that_is_deleted_meanwhile(self, monkeypatch):
        monkeypatch.setattr(run_folder, "experiment_names", lambda: ["deleted", "syn-1400"])
        assert [summary.name for summary in Experiment.all()] == ["syn-1400"]

    def test_folder_without_json_file_has_a_time(self, tmp_path):
        assert last_change(tmp_path).timestamp() == 0

    def test_list_without_experiments_is_empty(self):
        assert Experiment.all() == []

    @pytest.mark.parametrize("content", ["{", "[]", "3", "[" * 100_000])
    def test_list_ignores_other_folders_and_keeps_damaged_configs(self, folder, content):
        Experiment.open("x", CONFIG).close()
        (folder / "x" / "config.json").write_text(content)
        (folder / "mine").mkdir()
        (folder / ".cache").mkdir()
        (folder / ".cache" / "config.json").write_text("{}")
        assert [(summary.name, summary.env_id) for summary in Experiment.all()] == [("x", "?")]

    @pytest.mark.parametrize("value", ["7", None, [1], {}, float("inf")])
    def test_list_shows_damaged_metrics_as_zero(self, folder, value):
        Experiment.open("x", CONFIG).close()
        row = dict.fromkeys(("step", "labels_asked", "labels_answered", "clips_sorted"), value)
        (folder / "x" / "metrics.jsonl").write_text(json.dumps(row))
        [summary] = Experiment.all()
        assert (summary.step, summary.labels, summary.clips) == (0, Counts(0, 0), 0)


class TestStates:
    def test_open_experiment_is_running(self, experiment):
        assert Experiment.find(experiment.name).state is State.RUNNING

    def test_closed_experiment_is_stopped(self):
        Experiment.open("x", CONFIG).close()
        assert Experiment.find("x").state is State.STOPPED

    def test_completed_experiment_is_finished(self):
        with Experiment.open("x", CONFIG) as experiment:
            experiment.finish()
        assert Experiment.find("x").state is State.FINISHED

    def test_error_marks_experiment_failed(self):
        with pytest.raises(ZeroDivisionError), Experiment.open("x", CONFIG):
            raise ZeroDivisionError
        assert Experiment.find("x").state is State.FAILED

    def test_experiment_that_another_process_has_taken_is_left_to_it(self, folder):
        run = Experiment.open("x", CONFIG)
        (folder / "x" / "lock").unlink()
        with Experiment.open("x", CONFIG) as other:
            with pytest.raises(ExperimentInUse, match="was deleted"), run:
                run.append_metrics({"step": 1})
            assert other.state is State.RUNNING

    def test_error_is_raised_although_another_process_has_the_experiment(self, folder):
        run = Experiment.open("x", CONFIG)
        (folder / "x" / "lock").unlink()
        with Experiment.open("x", CONFIG) as other:
            with pytest.raises(ZeroDivisionError), run:
                raise ZeroDivisionError
            assert other.state is State.RUNNING

    def test_keyboard_interrupt_marks_experiment_stopped(self):
        with pytest.raises(KeyboardInterrupt), Experiment.open("x", CONFIG):
            raise KeyboardInterrupt
        assert Experiment.find("x").state is State.STOPPED

    def test_resumed_experiment_is_running(self):
        with Experiment.open("x", CONFIG) as experiment:
            experiment.finish()
        with Experiment.open("x", CONFIG) as experiment:
            assert experiment.state is State.RUNNING

    def test_killed_experiment_is_shown_as_killed_and_resumes(self):
        program = (
            "from rl_teacher.runs.folder import Experiment\n"
            f"experiment = Experiment.open('x', {CONFIG!r})\n"
            "experiment.append_metrics({'step': 1})\n"
            "print('open', flush=True)\n"
            "import time; time.sleep(60)\n"
        )
        with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"open\n"
            assert Experiment.find("x").state is State.RUNNING
            process.send_signal(signal.SIGKILL)
        assert Experiment.find("x").state is State.KILLED
        with Experiment.open("x", CONFIG) as experiment:
            assert experiment.metrics() == [{"step": 1}]


class TestCheckpointsAndMetrics:
    def test_saved_checkpoint_is_loaded(self, experiment):
        arrays = {"agent/policy/0": np.eye(3), "rng": np.array([1, 2], np.uint32)}
        experiment.save_checkpoint(1000, arrays, {"episodes": 3})
        checkpoint = experiment.load_checkpoint()
        assert checkpoint is not None
        assert (checkpoint.step, checkpoint.meta) == (1000, {"episodes": 3})
        np.testing.assert_array_equal(checkpoint.arrays["agent/policy/0"], np.eye(3))

    def test_damaged_checkpoint_falls_back_with_warning(self, experiment, caplog):
        experiment.save_checkpoint(1000, {}, {})
        experiment.save_checkpoint(2000, {}, {})
        newest = max((experiment.folder / "checkpoints").iterdir())
        newest.write_bytes(newest.read_bytes()[:-1])
        with caplog.at_level(logging.WARNING):
            checkpoint = experiment.load_checkpoint()
        assert checkpoint is not None
        assert checkpoint.step == 1000
        assert "step 2000 is damaged" in caplog.text

    def test_metrics_of_a_resumed_run_have_no_duplicate_steps(self, experiment):
        for step in (10, 20, 30):
            experiment.append_metrics({"step": step})
        experiment.drop_metrics_after(20)
        experiment.append_metrics({"step": 30})
        assert [row["step"] for row in experiment.metrics()] == [10, 20, 30]

    def test_wipe_keeps_config_and_lock(self, experiment):
        experiment.save_checkpoint(1, {}, {})
        experiment.append_metrics({"step": 1})
        experiment.plot_path.write_bytes(b"")
        experiment.wipe()
        assert sorted(path.name for path in experiment.folder.iterdir()) == ["config.json", "lock"]
        with pytest.raises(ExperimentInUse):
            Experiment.open(experiment.name, CONFIG)

    def test_wiped_experiment_accepts_metrics(self, experiment):
        experiment.append_metrics({"step": 1})
        experiment.wipe()
        experiment.append_metrics({"step": 2})
        assert experiment.metrics() == [{"step": 2}]


def test_import_loads_no_heavy_modules():
    program = "import sys, rl_teacher.runs.folder; print(*sys.modules)"
    found = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    heavy = {"sqlalchemy", "alembic", "jax", "matplotlib", "tensorboardX", "rich", "mujoco"}
    assert heavy & set(found.stdout.split()) == set()
