"""Server-sent events and polling of the store."""

import asyncio
import contextlib
import json
from collections import Counter

import pytest
from starlette.requests import Request

from rl_teacher.common.errors import StoreUnavailable
from rl_teacher.store.metrics import MetricsLog
from rl_teacher.web.experiment_views import ExperimentViews
from rl_teacher.web.poller import Poller, Snapshot, SnapshotReader, Subscriber
from rl_teacher.web.routes.events import CREDENTIAL_CHECK_S, EventStream, listen
from tests.web.conftest import TOKEN, Trainer, assert_problem, label, post


@pytest.fixture
def watch(store, clock):
    return SnapshotReader(store, ExperimentViews(store, clock))


def owners(name):
    return Subscriber(name, "owner", is_owner=True)


def labelers(name, labeler="ann"):
    return Subscriber(name, labeler, is_owner=False)


def told(news, watch, *listeners):
    """Return the types and contents of the events after one poll."""
    events = news.of(watch.look(frozenset(listeners)))
    return [(event.event, json.loads(event.raw_data)) for event in events]


def kinds(events):
    return [kind for kind, _ in events]


class TestExperimentEvents:
    def test_first_events_describe_current_state(self, watch, trainer):
        trainer.say("training")
        trainer.ask(2)
        for step in (1, 2):
            trainer.store.metrics.append(trainer.id, step, {"true_return": 0.5})
        episode = {"clip": trainer.hang("latest"), "predicted_rewards": [1.0], "step": 2}
        trainer.store.experiments.set_latest_episode(trainer.id, episode)
        events = dict(told(EventStream(owners("hopper")), watch, owners("hopper")))
        assert list(events) == ["experiment", "progress", "episode", "metrics"]
        assert events["experiment"]["phase"] == "training"
        assert events["progress"]["waiting"] == 2
        assert events["episode"]["clip"]["num_frames"] == 30
        assert events["metrics"]["step"] == 2

    def test_unchanged_state_sends_no_events(self, watch, trainer):
        news = EventStream(owners("hopper"))
        told(news, watch, owners("hopper"))
        assert told(news, watch, owners("hopper")) == []

    def test_only_changed_parts_are_sent(self, watch, trainer, program):
        news = EventStream(owners("hopper"))
        told(news, watch, owners("hopper"))
        trainer.store.metrics.append(trainer.id, 1, {})
        assert kinds(told(news, watch, owners("hopper"))) == ["metrics"]
        [comparison_id] = trainer.ask()
        assert kinds(told(news, watch, owners("hopper"))) == ["experiment", "progress"]
        post(program, label(comparison_id))
        assert kinds(told(news, watch, owners("hopper"))) == ["experiment", "progress"]
        trainer.say("training")
        assert kinds(told(news, watch, owners("hopper"))) == ["experiment", "progress"]

    def test_slow_subscriber_receives_each_metrics_row_once(self, watch, trainer):
        news = EventStream(owners("hopper"))
        told(news, watch, owners("hopper"))
        for step in range(5):
            trainer.store.metrics.append(trainer.id, step, {})
            watch.look(frozenset({owners("hopper")}))
        events = told(news, watch, owners("hopper"))
        assert [row["step"] for kind, row in events if kind == "metrics"] == [0, 1, 2, 3, 4]

    def test_other_experiments_are_not_sent(self, watch, trainer, store, media):
        Trainer(store, media, "other").say("training")
        listeners = map(owners, ("hopper", "other", None))
        events = told(EventStream(owners("hopper")), watch, *listeners)
        assert {content.get("name", "hopper") for _, content in events} == {"hopper"}

    def test_bound_subscriber_receives_only_own_experiment(self, watch, trainer, store, media):
        Trainer(store, media, "other").say("training")
        bound = Subscriber(None, "cleo", is_owner=False, only="hopper")
        events = told(EventStream(bound), watch, bound, labelers(None))
        assert [content["name"] for _, content in events] == ["hopper"]
        everything = told(EventStream(labelers(None)), watch, bound, labelers(None))
        assert {content["name"] for _, content in everything} == {"hopper", "other"}

    def test_silent_run_is_reported_as_lost(self, watch, trainer, clock):
        trainer.say("training")
        news = EventStream(owners("hopper"))
        told(news, watch, owners("hopper"))
        clock.advance(20)
        assert dict(told(news, watch, owners("hopper")))["experiment"]["phase"] == "lost"

    def test_recreated_experiment_resumes_events(self, watch, trainer, store, media):
        news = EventStream(owners("hopper"))
        told(news, watch, owners("hopper"))
        store.experiments.delete("hopper")
        assert told(news, watch, owners("hopper")) == []
        anew = Trainer(store, media)
        anew.say("random")
        store.metrics.append(anew.id, 1, {})
        assert kinds(told(news, watch, owners("hopper"))) == ["experiment", "progress", "metrics"]


class TestListEvents:
    def test_each_experiment_sends_one_summary(self, watch, trainer, store, media):
        Trainer(store, media, "other")
        events = told(EventStream(owners(None)), watch, owners(None))
        assert kinds(events) == ["experiment", "experiment"]
        assert {content["name"] for _, content in events} == {"hopper", "other"}

    def test_only_changed_experiments_are_sent(self, watch, trainer, store, media, clock):
        other = Trainer(store, media, "other")
        news = EventStream(owners(None))
        told(news, watch, owners(None))
        other.say("training")
        [(_, content)] = told(news, watch, owners(None))
        assert content["name"] == "other"
        clock.advance(20)
        assert len(told(news, watch, owners(None))) == 2

    def test_unchanged_experiment_is_not_read_again(self, watch, trainer, store, monkeypatch):
        watch.look(frozenset({owners(None)}))
        read = Counter()
        latest = MetricsLog.latest

        def count(store, experiment_id):
            read[experiment_id] += 1
            return latest(store, experiment_id)

        monkeypatch.setattr(MetricsLog, "latest", count)
        watch.look(frozenset({owners(None)}))
        assert not read


class TestLabelerEvents:
    def test_labelers_receive_no_metrics_returns_or_rewards(self, watch, trainer):
        trainer.store.metrics.append(trainer.id, 1, {"true_return": 0.5})
        episode = {"clip": trainer.hang("latest"), "predicted_rewards": [1.0], "true_return": 3.0}
        trainer.store.experiments.set_latest_episode(trainer.id, episode | {"step": 2})
        ann, olga = labelers("hopper"), owners("hopper")
        events = dict(told(EventStream(ann), watch, ann, olga))
        assert list(events) == ["experiment", "progress", "episode"]
        assert events["experiment"]["sparkline"] == []
        for shown in (events["episode"], events["experiment"]["latest_episode"]):
            assert shown["predicted_rewards"] is None
            assert shown["true_return"] is None
        assert dict(told(EventStream(olga), watch, ann, olga))["metrics"]["true_return"] == 0.5

    @pytest.mark.parametrize("name", ["hopper", None])
    def test_mine_counts_only_own_answers(self, watch, trainer, guest, other_guest, name):
        one, two, three = trainer.ask(3)
        post(guest, label(one), label(two))
        post(other_guest, label(three))
        listeners = [labelers(name, "ann"), labelers(name, "bob"), owners(name)]
        counted = [
            dict(told(EventStream(each), watch, *listeners))["experiment"]["progress"]["mine"]
            for each in listeners
        ]
        assert counted == [2, 1, 0]


class TestStreams:
    def test_streams_per_labeler_are_limited(self, app, guest, trainer):
        poller = app.state.services.poller
        poller._listeners.update({labelers("hopper"): 15, labelers(None): 5})
        assert_problem(guest.get("/api/v1/events"), 429)
        poller._listeners.clear()

    def test_stream_ends_after_revocation(self, app, guest, store, clock, trainer):
        token = guest.headers["Authorization"].split()[1]
        work = app.state.services
        request = Request({"type": "http", "state": {"credential": token}})

        async def hear():
            heard = 0
            stream = listen(request, work, labelers("hopper"))
            async for _ in stream:
                heard += 1
                if heard == 3:
                    clock.advance(CREDENTIAL_CHECK_S)
                    trainer.say("training")
                if heard == 5:
                    store.access.revoke_credentials("ann")
                    clock.advance(CREDENTIAL_CHECK_S)
            return heard

        heard = asyncio.run(asyncio.wait_for(hear(), 30))
        assert heard >= 5

    def test_missing_store_keeps_credential_valid(self, app, guest, database):
        token = guest.headers["Authorization"].split()[1]
        database.unlink()
        assert asyncio.run(app.state.services.authenticator.is_valid(token))
        assert asyncio.run(app.state.services.authenticator.is_valid(TOKEN))


class TestProblems:
    def test_problem_is_sent_once_until_resolved(self):
        news = EventStream(owners(None))
        trouble = Snapshot(problem='{"status": 503}')
        assert [event.event for event in news.of(trouble)] == ["problem"]
        assert list(news.of(trouble)) == []
        assert list(news.of(Snapshot())) == []
        assert [event.event for event in news.of(trouble)] == ["problem"]

    def test_store_errors_do_not_end_streams(self, watch):
        async def listen():
            looks = iter([StoreUnavailable("locked"), ZeroDivisionError(), None])

            def look(names):
                fault = next(looks, None)
                if fault is not None:
                    raise fault
                return Snapshot()

            poller = Poller(look, every_s=0.001)
            statuses = []
            async for sight in poller.snapshots(owners(None)):
                statuses.append(json.loads(sight.problem)["status"] if sight.problem else None)
                if statuses[-1] is None:
                    return statuses
            return statuses

        assert asyncio.run(listen()) == [503, 500, None]


class TestPoller:
    def test_one_poll_serves_all_subscribers(self):
        async def listen():
            asked_for = []

            def look(names):
                asked_for.append(names)
                return Snapshot()

            poller = Poller(look, every_s=0.01)

            async def hear(name, count):
                num_heard = 0
                async with contextlib.aclosing(poller.snapshots(owners(name))) as snapshots:
                    async for _ in snapshots:
                        num_heard += 1
                        if num_heard == count:
                            return

            await asyncio.gather(*[hear(name, 10) for name in ("a", "b", None) * 20])
            num_looks = len(asked_for)
            await asyncio.sleep(0.05)
            return asked_for, len(asked_for) - num_looks

        asked_for, after_the_last_left = asyncio.run(listen())
        assert len(asked_for) < 20
        assert frozenset(map(owners, ("a", "b", None))) in asked_for
        assert after_the_last_left <= 1

    def test_poller_is_idle_without_subscribers(self):
        async def wait():
            Poller(lambda names: pytest.fail("nobody asked"), every_s=0.001)
            await asyncio.sleep(0.02)

        asyncio.run(wait())

    def test_new_subscriber_triggers_poll(self):
        async def listen():
            poller = Poller(lambda names: Snapshot(), every_s=3600.0)
            for _ in range(3):
                async with contextlib.aclosing(poller.snapshots(owners(None))) as snapshots:
                    await asyncio.wait_for(anext(snapshots), 10)

        asyncio.run(listen())

    def test_close_ends_every_stream(self):
        async def listen():
            poller = Poller(lambda names: Snapshot(), every_s=3600.0)
            first_heard = asyncio.Event()

            async def hear():
                async for _ in poller.snapshots(owners(None)):
                    first_heard.set()

            listener = asyncio.create_task(hear())
            await first_heard.wait()
            poller.close()
            await asyncio.wait_for(listener, 10)
            async for _ in poller.snapshots(owners(None)):
                pytest.fail("it is closed")

        asyncio.run(listen())


def test_events_of_missing_experiment_are_not_found(program):
    assert_problem(program.get("/api/v1/events?experiment=walker"), 404)
