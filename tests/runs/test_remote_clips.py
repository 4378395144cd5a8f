"""Tests of clips that are uploaded to an object store, with a real server of S3."""

import contextlib
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest

from rl_teacher.runs import clip_renderer
from rl_teacher.runs.backup import restore_backup, save_backup
from rl_teacher.runs.doctor import examine
from rl_teacher.runs.folder import home, open_store
from rl_teacher.store.media import MediaFiles
from rl_teacher.store.store import Store
from tests.robustness.processes import await_
from tests.runs.test_clip_renderer import ask, finish, make_renderer, record
from tests.store.comparisons import open_comparisons
from tests.test_person_teaches import CONFIG, OPTIONS, Labeler, running

ENV_ID = "ShortReacher-v1"


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch):
    monkeypatch.setattr(clip_renderer, "RETRY_S", 0.05)
    monkeypatch.setattr(clip_renderer, "MAX_RETRY_S", 0.2)


@pytest.fixture
def clip_store(s3, database):
    with Store.open(database) as store:
        yield SimpleNamespace(store=store, media=MediaFiles(s3.url))


@contextlib.contextmanager
def asked(clip_store):
    """Ask a comparison, and yield a renderer, its segments and the number that are open."""
    venv, segments = record(ENV_ID)
    experiment_id = ask(clip_store, ENV_ID, segments)
    renderer = make_renderer(ENV_ID, venv, clip_store)
    yield (
        renderer,
        segments,
        lambda: len(open_comparisons(clip_store.store, experiment_id, limit=5)),
    )
    renderer.close()


def test_comparison_is_open_once_its_clips_are_in_the_object_store(s3, clip_store):
    with asked(clip_store) as (renderer, segments, num_open):
        renderer.show(segments)
        finish(renderer)
        assert num_open() == 1
        assert renderer.waiting_since is None
        for each in segments:
            clip = clip_store.store.clips.get(each.content_hash)
            assert MediaFiles(s3.url).get(clip.media_key)
            assert MediaFiles(s3.url).get(f"scenes/{clip.scene_hash}.json")


@pytest.mark.slow
def test_comparison_waits_until_a_stopped_server_is_back(s3, clip_store):
    with asked(clip_store) as (renderer, segments, num_open):
        s3.stop()
        renderer.show(segments)
        await_(lambda: renderer.waiting_since is not None)
        began_s = time.monotonic()
        for _ in range(20):
            renderer.show(segments)
        assert time.monotonic() - began_s < 1.0
        assert num_open() == 0
        s3.start()
        finish(renderer)
        assert num_open() == 1
        assert renderer.waiting_since is None


@pytest.mark.slow
def test_clips_of_run_that_ended_before_their_upload_are_uploaded_by_the_next(s3, clip_store):
    with asked(clip_store) as (renderer, segments, num_open):
        s3.stop()
        renderer.show(segments)
        await_(lambda: renderer.waiting_since is not None)
        began_s = time.monotonic()
        renderer.close()
        assert time.monotonic() - began_s < 10.0
        assert num_open() == 0
        s3.start()
        next_renderer = make_renderer(ENV_ID, renderer.venv, clip_store)
        next_renderer.show(segments, is_recent=False)
        finish(next_renderer)
        next_renderer.close()
        assert num_open() == 1


def test_clip_whose_row_was_not_written_after_its_upload_is_published_again(
    s3, clip_store, monkeypatch
):
    with asked(clip_store) as (renderer, segments, num_open), monkeypatch.context() as patch:
        patch.setattr(clip_store.store.clips, "publish", lambda _clips: 1 / 0)
        renderer.show(segments)
        with pytest.raises(ZeroDivisionError):
            finish(renderer)
        assert num_open() == 0
        patch.undo()
        next_renderer = make_renderer(ENV_ID, renderer.venv, clip_store)
        next_renderer.show(segments)
        finish(next_renderer)
        next_renderer.close()
        assert num_open() == 1


@pytest.mark.slow
@pytest.mark.usefixtures("_shapes_unchecked", "_no_page")
def test_run_outlasts_a_stopped_object_store(s3, make_database, monkeypatch):
    make_database(home() / "labels.sqlite")
    monkeypatch.setenv("RL_TEACHER_MEDIA_URL", s3.url)
    seen = []
    monkeypatch.setattr(
        "rl_teacher.report.progress.Progress.status", lambda _, text: seen.append(text)
    )

    def warnings():
        with open_store() as store:
            return [each.status["problems"] for each in store.experiments.all() if each.status]

    config = replace(CONFIG, n_labels=24)
    with running(config, OPTIONS) as run, Labeler() as labeler:
        await_(lambda: len(labeler.answers) >= 4)
        s3.stop()
        await_(lambda: any("clips wait for their upload since" in text for text in seen))
        await_(lambda: any("Clips wait for their upload" in str(each) for each in warnings()))
        s3.start()
        await_(lambda: run.outcome is not None or run.error is not None)
    assert run.error is None
    assert run.outcome.is_finished
    assert len(labeler.answers) == config.n_labels
    assert [fault for check in examine() for fault in check.faults] == []


@pytest.fixture
def filled(s3, make_database, monkeypatch):
    """Home with a comparison whose clips are in the object store, and the keys of their files."""
    monkeypatch.setenv("RL_TEACHER_MEDIA_URL", s3.url)
    make_database(home() / "labels.sqlite")
    with (
        open_store() as store,
        asked(SimpleNamespace(store=store, media=MediaFiles(s3.url))) as (renderer, segments, _),
    ):
        renderer.show(segments)
        finish(renderer)
        clips = [store.clips.get(each.content_hash) for each in segments]
    return [*(each.media_key for each in clips), f"scenes/{clips[0].scene_hash}.json"]


def test_backup_contains_clips_of_the_object_store(filled, s3, tmp_path, monkeypatch):
    contents = {key: MediaFiles(s3.url).get(key) for key in filled}
    save_backup(tmp_path / "backup")
    restored_url = f"{s3.url}-restored"
    monkeypatch.setenv("RL_TEACHER_HOME", str(tmp_path / "new"))
    monkeypatch.setenv("RL_TEACHER_MEDIA_URL", restored_url)
    restore_backup(tmp_path / "backup")
    assert {key: MediaFiles(restored_url).get(key) for key in filled} == contents


def test_doctor_examines_clips_in_the_object_store(filled, s3):
    def clips():
        return next(each for each in examine() if each.name == "clips")

    assert (clips().num_examined, clips().faults) == (2, [])
    MediaFiles(s3.url).remove(filled[0])
    [fault] = clips().faults
    assert filled[0] in fault
