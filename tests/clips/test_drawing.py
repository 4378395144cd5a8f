import pytest

from rl_teacher.clips.drawing import frame_steps


@pytest.mark.parametrize(
    ("num_steps", "fps", "steps", "shown_fps"),
    [
        (4, 20.0, [0, 1, 2, 3], 20.0),
        (4, 30.0, [0, 1, 2, 3], 30.0),
        (5, 40.0, [0, 2, 4], 20.0),
        (6, 50.0, [0, 2, 4], 25.0),
        (7, 67.0, [0, 3, 6], 67 / 3),
        (1, 125.0, [0], 25.0),
    ],
)
def test_at_most_thirty_frames_pass_in_a_second(num_steps, fps, steps, shown_fps):
    indices, frames_fps = frame_steps(num_steps, fps)
    assert indices.tolist() == steps
    assert frames_fps == pytest.approx(shown_fps)
