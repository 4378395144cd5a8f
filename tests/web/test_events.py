"""Server-sent events: what a listener is told, and that the store is looked at once for all."""

import asyncio
import contextlib
import json
from collections import Counter

import pytest

from rl_teacher.errors import StoreUnavailable
from rl_teacher.store.store import Store
from rl_teacher.web.events import News
from rl_teacher.web.overview import Overview
from rl_teacher.web.poller import Poller, Sight, Watch
from tests.web.conftest import Trainer, assert_problem, label, post


@pytest.fixture
def watch(store, clock):
    return Watch(store, Overview(store, clock), "owner")


def told(news, watch, *names):
    """The kinds and contents of the events after one look."""
    events = news.of(watch.look(frozenset(names)))
    return [(event.event, json.loads(event.raw_data)) for event in events]


def kinds(events):
    return [kind for kind, _ in events]


class TestNewsOfOne:
    def test_begin_with_the_present_state(self, watch, trainer):
        trainer.say("training")
        trainer.ask(2)
        for step in (1, 2):
            trainer.store.append_metrics(trainer.id, step, {"true_return": 0.5})
        episode = {"clip": trainer.hang("latest"), "predicted_rewards": [1.0], "step": 2}
        trainer.store.set_latest_episode(trainer.id, episode)
        events = dict(told(News("hopper"), watch, "hopper"))
        assert list(events) == ["experiment", "progress", "episode", "metrics"]
        assert events["experiment"]["phase"] == "training"
        assert events["progress"]["waiting"] == 2
        assert events["episode"]["clip"]["num_frames"] == 30
        assert events["metrics"]["step"] == 2

    def test_say_nothing_when_nothing_changed(self, watch, trainer):
        news = News("hopper")
        told(news, watch, "hopper")
        assert told(news, watch, "hopper") == []

    def test_say_only_what_changed(self, watch, trainer, program):
        news = News("hopper")
        told(news, watch, "hopper")
        trainer.store.append_metrics(trainer.id, 1, {})
        assert kinds(told(news, watch, "hopper")) == ["metrics"]
        [comparison_id] = trainer.ask()
        assert kinds(told(news, watch, "hopper")) == ["experiment", "progress"]
        post(program, label(comparison_id))
        assert kinds(told(news, watch, "hopper")) == ["experiment", "progress"]
        trainer.say("training")
        assert kinds(told(news, watch, "hopper")) == ["experiment", "progress"]

    def test_tell_each_row_of_figures_once_also_to_the_slow(self, watch, trainer):
        news = News("hopper")
        told(news, watch, "hopper")
        for step in range(5):
            trainer.store.append_metrics(trainer.id, step, {})
            watch.look(frozenset({"hopper"}))
        events = told(news, watch, "hopper")
        assert [row["step"] for kind, row in events if kind == "metrics"] == [0, 1, 2, 3, 4]

    def test_are_not_of_others(self, watch, trainer, store, media):
        Trainer(store, media, "other").say("training")
        events = told(News("hopper"), watch, "hopper", "other", None)
        assert {content.get("name", "hopper") for _, content in events} == {"hopper"}

    def test_tell_that_a_trainer_fell_silent(self, watch, trainer, clock):
        trainer.say("training")
        news = News("hopper")
        told(news, watch, "hopper")
        clock.advance(20)
        assert dict(told(news, watch, "hopper"))["experiment"]["phase"] == "lost"

    def test_go_on_when_an_experiment_is_started_over(self, watch, trainer, store, media):
        news = News("hopper")
        told(news, watch, "hopper")
        store.delete_experiment("hopper")
        assert told(news, watch, "hopper") == []
        anew = Trainer(store, media)
        anew.say("random")
        store.append_metrics(anew.id, 1, {})
        assert kinds(told(news, watch, "hopper")) == ["experiment", "progress", "metrics"]


class TestNewsOfAll:
    def test_are_one_summary_each(self, watch, trainer, store, media):
        Trainer(store, media, "other")
        events = told(News(None), watch, None)
        assert kinds(events) == ["experiment", "experiment"]
        assert {content["name"] for _, content in events} == {"hopper", "other"}

    def test_say_only_which_changed(self, watch, trainer, store, media, clock):
        other = Trainer(store, media, "other")
        news = News(None)
        told(news, watch, None)
        other.say("training")
        [(_, content)] = told(news, watch, None)
        assert content["name"] == "other"
        clock.advance(20)
        assert len(told(news, watch, None)) == 2

    def test_read_nothing_twice_that_did_not_change(self, watch, trainer, store, monkeypatch):
        watch.look(frozenset({None}))
        read = Counter()
        latest_metrics = Store.latest_metrics

        def count(store, experiment_id):
            read[experiment_id] += 1
            return latest_metrics(store, experiment_id)

        monkeypatch.setattr(Store, "latest_metrics", count)
        watch.look(frozenset({None}))
        assert not read


class TestProblems:
    def test_are_told_once_and_then_it_goes_on(self):
        news = News(None)
        trouble = Sight(problem='{"status": 503}')
        assert [event.event for event in news.of(trouble)] == ["problem"]
        assert list(news.of(trouble)) == []
        assert list(news.of(Sight())) == []
        assert [event.event for event in news.of(trouble)] == ["problem"]

    def test_of_the_store_end_no_stream(self, watch):
        async def listen():
            looks = iter([StoreUnavailable("locked"), ZeroDivisionError(), None])

            def look(names):
                fault = next(looks, None)
                if fault is not None:
                    raise fault
                return Sight()

            poller = Poller(look, every_s=0.001)
            statuses = []
            async for sight in poller.sights(None):
                statuses.append(json.loads(sight.problem)["status"] if sight.problem else None)
                if statuses[-1] is None:
                    return statuses
            return statuses

        assert asyncio.run(listen()) == [503, 500, None]


class TestPoller:
    def test_looks_once_for_everybody(self):
        async def listen():
            asked_for = []

            def look(names):
                asked_for.append(names)
                return Sight()

            poller = Poller(look, every_s=0.01)

            async def hear(name, count):
                num_heard = 0
                async with contextlib.aclosing(poller.sights(name)) as sights:
                    async for _ in sights:
                        num_heard += 1
                        if num_heard == count:
                            return

            await asyncio.gather(*[hear(name, 10) for name in ("a", "b", None) * 20])
            num_looks = len(asked_for)
            await asyncio.sleep(0.05)
            return asked_for, len(asked_for) - num_looks

        asked_for, after_the_last_left = asyncio.run(listen())
        assert len(asked_for) < 20
        assert frozenset({"a", "b", None}) in asked_for
        assert after_the_last_left <= 1

    def test_looks_at_nothing_while_nobody_listens(self):
        async def wait():
            Poller(lambda names: pytest.fail("nobody asked"), every_s=0.001)
            await asyncio.sleep(0.02)

        asyncio.run(wait())

    def test_looks_at_once_for_whoever_comes(self):
        async def listen():
            poller = Poller(lambda names: Sight(), every_s=3600.0)
            for _ in range(3):
                async with contextlib.aclosing(poller.sights(None)) as sights:
                    await asyncio.wait_for(anext(sights), 10)

        asyncio.run(listen())

    def test_ends_every_stream_when_it_is_closed(self):
        async def listen():
            poller = Poller(lambda names: Sight(), every_s=3600.0)
            first_heard = asyncio.Event()

            async def hear():
                async for _ in poller.sights(None):
                    first_heard.set()

            listener = asyncio.create_task(hear())
            await first_heard.wait()
            poller.close()
            await asyncio.wait_for(listener, 10)
            async for _ in poller.sights(None):
                pytest.fail("it is closed")

        asyncio.run(listen())


def test_an_experiment_that_is_not_there_cannot_be_listened_to(program):
    assert_problem(program.get("/api/v1/events?experiment=walker"), 404)
