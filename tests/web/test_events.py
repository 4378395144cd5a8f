"""Server-sent events and polling of the store."""

import asyncio
import contextlib
import json
import threading

import pytest
from starlette.requests import Request

from rl_teacher.common.errors import StoreUnavailable
from rl_teacher.store.records import Identity
from rl_teacher.web.experiment_views import ExperimentViews
from rl_teacher.web.poller import Poller, Snapshot, SnapshotReader, Subscriber
from rl_teacher.web.problems import TooMany
from rl_teacher.web.routes.events import (
    CREDENTIAL_CHECK_S,
    EventStream,
    listen,
    new_subscriber,
)
from tests.web.conftest import TOKEN, Trainer, assert_problem, label, post


@pytest.fixture
def reader(store, clock):
    return SnapshotReader(store, ExperimentViews(store, clock))


def owners(name):
    return Subscriber(name, "owner", is_owner=True)


def labelers(name, labeler="ann"):
    return Subscriber(name, labeler, is_owner=False)


def new_events(stream, reader, *listeners):
    """Return the types and contents of the events after one poll."""
    events = stream.of(reader.read(frozenset(listeners)))
    return [(event.event, json.loads(event.raw_data)) for event in events]


class TestExperimentEvents:
    def test_first_events_describe_current_state(self, reader, trainer):
        trainer.set_phase("training")
        trainer.ask(2)
        episode = {"clip": trainer.add_clip("latest"), "predicted_rewards": [1.0], "step": 2}
        trainer.store.experiments.set_latest_episode(trainer.id, episode)
        [(_, summary)] = new_events(EventStream(owners("hopper")), reader, owners("hopper"))
        assert summary["phase"] == "training"
        assert summary["progress"]["waiting"] == 2
        assert summary["latest_episode"]["clip"]["num_frames"] == 30

    def test_summary_is_sent_when_it_changed(self, reader, trainer, program):
        stream = EventStream(owners("hopper"))
        new_events(stream, reader, owners("hopper"))
        assert new_events(stream, reader, owners("hopper")) == []
        trainer.store.metrics.append(trainer.id, 1, {"true_return": 0.5})
        assert len(new_events(stream, reader, owners("hopper"))) == 1
        [comparison_id] = trainer.ask()
        assert len(new_events(stream, reader, owners("hopper"))) == 1
        post(program, label(comparison_id))
        assert len(new_events(stream, reader, owners("hopper"))) == 1
        trainer.set_phase("training")
        assert len(new_events(stream, reader, owners("hopper"))) == 1

    def test_bound_subscriber_receives_only_own_experiment(self, reader, trainer, store, media):
        Trainer(store, media, "other").set_phase("training")
        bound = Subscriber(None, "cleo", is_owner=False, only="hopper")
        events = new_events(EventStream(bound), reader, bound, labelers(None))
        assert [content["name"] for _, content in events] == ["hopper"]
        everything = new_events(EventStream(labelers(None)), reader, bound, labelers(None))
        assert {content["name"] for _, content in everything} == {"hopper", "other"}


class TestListEvents:
    def test_only_changed_experiments_are_sent(self, reader, trainer, store, media, clock):
        other = Trainer(store, media, "other")
        stream = EventStream(owners(None))
        new_events(stream, reader, owners(None))
        other.set_phase("training")
        [(_, content)] = new_events(stream, reader, owners(None))
        assert content["name"] == "other"
        clock.advance(20)
        assert len(new_events(stream, reader, owners(None))) == 2


class TestLabelerEvents:
    def test_labelers_receive_no_returns_or_rewards(self, reader, trainer):
        trainer.store.metrics.append(trainer.id, 1, {"true_return": 0.5})
        episode = {
            "clip": trainer.add_clip("latest"),
            "predicted_rewards": [1.0],
            "true_return": 3.0,
        }
        trainer.store.experiments.set_latest_episode(trainer.id, episode | {"step": 2})
        ann, olga = labelers("hopper"), owners("hopper")
        [(_, summary)] = new_events(EventStream(ann), reader, ann, olga)
        assert summary["sparkline"] == []
        assert summary["latest_episode"]["predicted_rewards"] is None
        assert summary["latest_episode"]["true_return"] is None
        [(_, summary)] = new_events(EventStream(olga), reader, ann, olga)
        assert summary["sparkline"] == [0.5]

    @pytest.mark.parametrize("name", ["hopper", None])
    def test_mine_counts_only_own_answers(self, reader, trainer, guest, other_guest, name):
        one, two, three = trainer.ask(3)
        post(guest, label(one), label(two))
        post(other_guest, label(three))
        listeners = [labelers(name, "ann"), labelers(name, "bob"), owners(name)]
        counted = [
            dict(new_events(EventStream(each), reader, *listeners))["experiment"]["progress"][
                "mine"
            ]
            for each in listeners
        ]
        assert counted == [2, 1, 0]


class TestStreams:
    def test_streams_per_labeler_are_limited(self, app, guest, other_guest, trainer):
        app.state.services.streams["ann"] = 20
        app.state.services.poller.close()
        assert_problem(guest.get("/api/v1/events"), 429)
        assert other_guest.get("/api/v1/events").status_code == 200

    def test_concurrent_requests_do_not_exceed_the_limit(self, app, trainer):
        """All requests arrive before the first stream has begun."""
        services = app.state.services
        identity = Identity(1, "ann", "labeler")

        async def open_one(is_over):
            with contextlib.suppress(TooMany):
                async with contextlib.asynccontextmanager(new_subscriber)(
                    services, identity, "hopper"
                ):
                    await is_over.wait()
                    return True
            return False

        async def open_many():
            is_over = asyncio.Event()
            opening = [asyncio.create_task(open_one(is_over)) for _ in range(58)]
            await asyncio.sleep(0.2)
            is_over.set()
            return sum(await asyncio.gather(*opening))

        assert asyncio.run(open_many()) == 20
        assert asyncio.run(open_many()) == 20

    def test_stream_ends_after_revocation(self, app, guest, store, clock, trainer):
        token = guest.headers["Authorization"].split()[1]
        work = app.state.services
        request = Request({"type": "http", "state": {"credential": token}})

        async def consume():
            num_events = 0
            stream = listen(request, work, labelers("hopper"))
            async for _ in stream:
                num_events += 1
                if num_events == 2:
                    clock.advance(CREDENTIAL_CHECK_S)
                    trainer.set_phase("training")
                if num_events == 3:
                    store.access.revoke_credentials("ann")
                    clock.advance(CREDENTIAL_CHECK_S)
            return num_events

        num_events = asyncio.run(asyncio.wait_for(consume(), 30))
        assert num_events >= 3

    @pytest.mark.parametrize(
        ("subscriber", "lose"),
        [
            (owners("hopper"), lambda store: store.experiments.delete("hopper")),
            (labelers("hopper"), lambda store: store.experiments.rename("hopper", "walker")),
            (owners(None), lambda store: store.experiments.rename("hopper", "walker")),
            (
                labelers(None),
                lambda store: store.experiments.set_archived("hopper", is_archived=True),
            ),
            (
                labelers("hopper"),
                lambda store: store.experiments.set_archived("hopper", is_archived=True),
            ),
        ],
    )
    def test_stream_ends_when_its_experiment_is_lost(self, app, store, trainer, subscriber, lose):
        request = Request({"type": "http", "state": {"credential": TOKEN}})

        async def consume():
            async for event in listen(request, app.state.services, subscriber):
                if event.event == "experiment":
                    lose(store)

        asyncio.run(asyncio.wait_for(consume(), 10))

    def test_missing_store_keeps_credential_valid(self, app, guest, database):
        token = guest.headers["Authorization"].split()[1]
        database.unlink()
        assert asyncio.run(app.state.services.authenticator.is_valid(token))
        assert asyncio.run(app.state.services.authenticator.is_valid(TOKEN))


class TestPoller:
    def test_one_poll_serves_all_subscribers(self):
        async def listen():
            asked_for = []

            def look(names):
                asked_for.append(names)
                return Snapshot()

            poller = Poller(look, every_s=0.01)

            async def consume(name, count):
                num_events = 0
                async with contextlib.aclosing(poller.snapshots(owners(name))) as snapshots:
                    async for _ in snapshots:
                        num_events += 1
                        if num_events == count:
                            return

            await asyncio.gather(*[consume(name, 10) for name in ("a", "b", None) * 20])
            num_looks = len(asked_for)
            await asyncio.sleep(0.05)
            return asked_for, len(asked_for) - num_looks

        asked_for, after_the_last_left = asyncio.run(listen())
        assert len(asked_for) < 20
        assert frozenset(map(owners, ("a", "b", None))) in asked_for
        assert after_the_last_left <= 1

    def test_poll_that_fails_does_not_end_streams(self):
        async def listen():
            polls = iter([StoreUnavailable("locked"), ZeroDivisionError(), None])

            def look(names):
                if (fault := next(polls, None)) is not None:
                    raise fault
                return Snapshot(mine={("hopper", "owner"): 1})

            async with contextlib.aclosing(
                Poller(look, every_s=0.001).snapshots(owners(None))
            ) as snapshots:
                return await anext(snapshots)

        assert asyncio.run(listen()).mine

    def test_subscriber_who_joins_during_a_poll_waits_for_the_next(self):
        async def listen():
            is_reading, may_end = threading.Event(), threading.Event()

            def look(names):
                is_reading.set()
                may_end.wait(10)
                return Snapshot(mine={(each.labeler, each.labeler): 1 for each in names})

            poller = Poller(look, every_s=3600.0)

            async def first_snapshot(subscriber):
                async with contextlib.aclosing(poller.snapshots(subscriber)) as snapshots:
                    return await anext(snapshots)

            early = asyncio.create_task(first_snapshot(labelers("hopper")))
            await asyncio.to_thread(is_reading.wait, 10)
            late = asyncio.create_task(first_snapshot(Subscriber("hopper", "late", False)))
            await asyncio.sleep(0.01)
            may_end.set()
            await asyncio.wait_for(early, 10)
            return (await asyncio.wait_for(late, 10)).mine

        assert ("late", "late") in asyncio.run(listen())

    def test_change_before_the_service_ends_is_sent(self):
        async def listen():
            seen, heard = [], asyncio.Event()
            mine = {("hopper", "owner"): 1}
            poller = Poller(lambda names: Snapshot(mine=dict(mine)), every_s=3600.0)

            async def consume():
                async for snapshot in poller.snapshots(owners(None)):
                    seen.extend(snapshot.mine.values())
                    heard.set()

            listener = asyncio.create_task(consume())
            await heard.wait()
            mine["hopper", "owner"] = 2
            await poller.finish()
            poller.close()
            await asyncio.wait_for(listener, 10)
            return seen

        assert asyncio.run(listen())[-1] == 2

    def test_close_ends_every_stream(self):
        async def listen():
            poller = Poller(lambda names: Snapshot(), every_s=3600.0)
            first_heard = asyncio.Event()

            async def consume():
                async for _ in poller.snapshots(owners(None)):
                    first_heard.set()

            listener = asyncio.create_task(consume())
            await first_heard.wait()
            poller.close()
            await asyncio.wait_for(listener, 10)
            async for _ in poller.snapshots(owners(None)):
                pytest.fail("it is closed")

        asyncio.run(listen())


def test_events_of_missing_experiment_are_not_found(program):
    assert_problem(program.get("/api/v1/events?experiment=walker"), 404)
