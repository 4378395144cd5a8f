"""Database contents as if a hundred labelers had answered for months."""

from sqlalchemy import Connection, text

ENV_ID = "ShortHopper-v1"
LABELS_EACH = 5

FILL = (
    """INSERT INTO clips (content_hash, env_id, num_steps, created_at, kind, media_key, scene_hash,
        num_frames, fps)
    WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 1999)
    SELECT printf('%064d', i), 'ShortHopper-v1', 30, '2026-11-01 00:00:00.000000', 'poses',
        printf('clips/%064d.poses', i), printf('%064d', 0), 15, 12.5 FROM n""",
    """INSERT INTO labelers (id, name, role, created_at)
    WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100)
    SELECT i, 'labeler ' || i, 'labeler', '2026-11-01 00:00:00.000000' FROM n""",
    """INSERT INTO comparisons (id, experiment_id, left_hash, right_hash, asked_at_step, created_at,
        wanted, num_labels, is_open, number)
    WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < :last)
    SELECT i + 1, 1, printf('%064d', i % 1000), printf('%064d', 1000 + i / 1000), i / 100,
        '2026-11-01 00:00:00.000000', CASE WHEN i < :answered THEN 5 ELSE 1 END,
        CASE WHEN i < :answered THEN 5 ELSE 0 END, i >= :answered, i + 1 FROM n""",
    """INSERT INTO labels (id, comparison_id, answer, labeler_id, request_id, created_at)
    WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 5 * :answered - 1)
    SELECT i + 1, i / 5 + 1, CASE i % 3 WHEN 0 THEN 'left' ELSE 'right' END, i % 100 + 1,
        printf('%032x', i + 1), '2026-11-02 00:00:00.000000' FROM n""",
    """INSERT INTO tallies (experiment_id, labeler_id, num_labels, num_given, first_label_id,
        last_label_id, last_label_at)
    SELECT 1, labeler_id, count(*), count(*), min(id), max(id), max(created_at) FROM labels
    GROUP BY labeler_id""",
    """UPDATE experiments SET num_asked = :last + 1, num_answered = :answered,
        num_open = :last + 1 - :answered""",
)
"""Statements that insert five labels per answered comparison, by a hundred labelers in turn."""


def fill(connection: Connection, num_answered: int, num_open: int) -> None:
    """Insert comparisons, as if they had been asked and answered one by one."""
    numbers = {"answered": num_answered, "last": num_answered + num_open - 1}
    for statement in FILL:
        named = {name: value for name, value in numbers.items() if f":{name}" in statement}
        connection.execute(text(statement), named)
