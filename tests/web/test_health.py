"""Health checks and metrics."""

import sqlite3

from prometheus_client.parser import text_string_to_metric_families


def test_database_that_cannot_be_written_is_not_ready(program, database):
    other = sqlite3.connect(database)
    other.execute("BEGIN IMMEDIATE")
    assert program.get("/readyz").status_code == 503
    other.execute("ROLLBACK")
    other.close()
    assert program.get("/readyz").status_code == 200


def test_metrics_describe_experiments(program, trainer, clock):
    trainer.ask(3)
    trainer.set_phase("waiting", num_missing=2, waiting_since=clock.now.isoformat())
    clock.advance(5)
    families = text_string_to_metric_families(program.get("/metrics").text)
    samples = [sample for family in families for sample in family.samples]
    assert {sample.labels["experiment"] for sample in samples} == {"hopper"}
    prefix = "rl_teacher_experiment_"
    assert {sample.name.removeprefix(prefix): sample.value for sample in samples} == {
        "running": 1,
        "steps": 10,
        "answered_comparisons": 0,
        "open_comparisons": 3,
        "missing_labels": 2,
        "waiting_seconds": 5,
    }
