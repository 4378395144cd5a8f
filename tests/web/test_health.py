"""Health checks."""

import sqlite3


def test_database_that_cannot_be_written_is_not_ready(program, database):
    other = sqlite3.connect(database)
    other.execute("BEGIN IMMEDIATE")
    assert program.get("/readyz").status_code == 503
    other.execute("ROLLBACK")
    other.close()
    assert program.get("/readyz").status_code == 200
