import json
import re
import sqlite3

import pytest
from prometheus_client import CONTENT_TYPE_LATEST

from rl_teacher.web import service_log
from tests.web.conftest import Trainer

LINE = re.compile(r'(\w+)(?:\{(\w+="(?:[^"\\]|\\.)*",?)+\})? (-?[\d.e+]+)')


def scrape(program):
    """Return the samples of the metrics by name and labels."""
    response = program.get("/metrics")
    assert response.status_code == 200
    assert response.headers["Content-Type"] == CONTENT_TYPE_LATEST
    lines = response.text.removesuffix("\n").split("\n")
    samples = [line for line in lines if not line.startswith("#")]
    for line in samples:
        assert LINE.fullmatch(line), line
        name = re.match(r"\w+", line)
        assert name is not None
        assert f"# TYPE {name[0]} " in response.text
    return dict(line.rsplit(" ", 1) for line in samples)


class TestMetrics:
    def test_metrics_describe_experiments(self, program, trainer, clock):
        trainer.ask(3)
        trainer.set_phase("waiting", num_missing=2, waiting_since=clock.now.isoformat())
        clock.advance(5)
        samples = scrape(program)
        expected = {
            "running": "1.0",
            "steps": "10.0",
            "comparisons": "3.0",
            "answered_comparisons": "0.0",
            "open_comparisons": "3.0",
            "missing_labels": "2.0",
            "waiting_seconds": "5.0",
            "heartbeat_age_seconds": "5.0",
        }
        assert {
            name: samples[f'rl_teacher_experiment_{name}{{experiment="hopper"}}']
            for name in expected
        } == expected

    @pytest.mark.usefixtures("trainer")
    def test_requests_are_counted_by_status(self, program):
        for path in ("/api/v1/experiments", "/api/v1/experiments", "/api/v1/experiments/nosuch"):
            program.get(path)
        samples = scrape(program)
        assert samples['rl_teacher_requests_total{status="200"}'] == "2.0"
        assert samples['rl_teacher_requests_total{status="404"}'] == "1.0"
        assert float(samples["rl_teacher_request_seconds_total"]) > 0


class TestReadiness:
    def test_database_that_cannot_be_written_is_not_ready(self, program, database):
        other = sqlite3.connect(database)
        other.execute("BEGIN IMMEDIATE")
        assert program.get("/readyz").status_code == 503
        other.execute("ROLLBACK")
        other.close()
        assert program.get("/readyz").status_code == 200


class TestJsonLog:
    @pytest.fixture
    def log(self, tmp_path):
        """Return a function that reads the entries of the log."""
        with service_log.request_log(tmp_path, "json"):
            path = tmp_path / "logs" / "service.log"
            yield lambda: [json.loads(line) for line in path.read_text().splitlines()]

    @pytest.mark.usefixtures("trainer")
    def test_request_is_logged_with_its_ids(self, log, guest):
        response = guest.get("/api/v1/experiments/hopper?after=secret")
        [entry] = [each for each in log() if each.get("path")]
        assert entry["request_id"] == response.headers["X-Request-Id"]
        assert entry["experiment"] == "hopper"
        assert entry["labeler"] == guest.get("/api/v1/me").json()["name"]
        assert (entry["method"], entry["status"]) == ("GET", 200)
        assert "secret" not in json.dumps(log())

    def test_exception_is_logged_with_its_request(self, log, program, store, monkeypatch):
        monkeypatch.setattr(store.experiments, "all", lambda: 1 / 0)
        Trainer(store, None)
        response = program.get("/api/v1/experiments")
        assert response.status_code == 500
        error = next(each for each in log() if each["level"] == "ERROR")
        assert "ZeroDivisionError" in error["exception"]
        assert error["request_id"] == response.headers["X-Request-Id"]
