"""Labels that arrive while the database is full."""

from sqlalchemy import event

from tests.web.conftest import assert_problem, label, lease


class LimitOfPages:
    """Limit of the size of a database: at first no page can be added to it."""

    def __init__(self, store):
        self.num_pages = 1
        event.listen(store.database.engine, "begin", self._apply)

    def _apply(self, connection):
        connection.exec_driver_sql(f"PRAGMA max_page_count={self.num_pages}")


def test_label_is_not_acknowledged_while_the_database_is_full(guest, trainer, store):
    ids = trainer.ask(20)
    labels = [label(each, details={"why": "x" * 1_000}) for each in ids]
    lease(store, "ann", *ids)
    acknowledged = set()
    assert accepts(guest, labels[0], acknowledged)
    limit = LimitOfPages(store)
    refused = [each for each in labels[1:] if not accepts(guest, each, acknowledged)]
    assert refused
    limit.num_pages = 1_000_000
    assert {str(each.request_id) for each in store.labels.export(trainer.id)} == acknowledged
    assert all(accepts(guest, each, acknowledged) for each in labels)
    assert {str(each.request_id) for each in store.labels.export(trainer.id)} == acknowledged
    assert len(acknowledged) == 20


def accepts(client, given, acknowledged):
    """Post a label; return whether it was acknowledged, and add it then."""
    response = client.post("/api/v1/labels", json={"labels": [given]})
    if response.status_code == 200:
        assert response.json()["accepted"] == [given["request_id"]]
        acknowledged.add(given["request_id"])
        return True
    assert "Free some space" in assert_problem(response, 503)
    assert int(response.headers["Retry-After"]) > 0
    return False
