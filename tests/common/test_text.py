from rl_teacher.common.text import counted


def test_noun_is_singular_for_one_only():
    assert [counted(n, "label") for n in (0, 1, 2_000)] == ["0 labels", "1 label", "2,000 labels"]
