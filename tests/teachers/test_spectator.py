"""The spectator's readings beside the console's memory, which ALE's batched emulators do not show.

Addresses of Pong and Breakout are those of the Atari Annotated RAM Interface (Anand et al. 2019).
Enduro's speed, 22, was found by experiment: it is the byte that rises while FIRE is held, and falls
while DOWN is; as does the distance between two readings of the odometer on the screen.
"""

import itertools

import numpy as np
import pytest
from ale_py import ALEInterface, LoggerMode, roms

from rl_teacher.clips.answer import Answer
from rl_teacher.clips.segment import Segment
from rl_teacher.common.errors import BadInput
from rl_teacher.envs.atari.emulators import FRAME_SKIP
from rl_teacher.envs.atari.names import resolve_game
from rl_teacher.envs.atari.rules import blank
from rl_teacher.envs.preprocessing import AreaResize, round_to_bytes
from rl_teacher.nn.image_layout import ImageLayout
from rl_teacher.teachers import spectator
from rl_teacher.teachers.registry import teacher_named
from rl_teacher.teachers.spectator import (
    BREAKOUT_BALL,
    BREAKOUT_PADDLE,
    ENDURO_BODY,
    ENDURO_CAR,
    PONG_BALL,
    PONG_PADDLE,
)
from rl_teacher.teachers.tasks import TASKS
from rl_teacher.teachers.teacher import TeacherContext

CONTEXT = TeacherContext(0.0, 1.0, np.random.default_rng(0))
CLIP_STEPS = 22

NOOP, FIRE, RIGHT, LEFT = range(4)
PONG_BALL_X, PONG_BALL_Y, PONG_PADDLE_Y = 49, 54, 51
BREAKOUT_BALL_X, BREAKOUT_BALL_Y, BREAKOUT_PADDLE_X = 99, 101, 72
ENDURO_SPEED = 22


def follow_in_pong(memory):
    height = memory[PONG_BALL_Y] - memory[PONG_PADDLE_Y] - 8
    return NOOP if abs(height) < 4 else RIGHT if height < 0 else LEFT  # RIGHT is up


def follow_in_breakout(memory):
    if memory[BREAKOUT_BALL_Y] == 0:
        return FIRE
    distance = memory[BREAKOUT_BALL_X] - memory[BREAKOUT_PADDLE_X] - 4
    return NOOP if abs(distance) < 4 else RIGHT if distance > 0 else LEFT


GAMES = {
    "Pong": (6, follow_in_pong),
    "Breakout": (4, follow_in_breakout),
    "Enduro": (9, lambda _: FIRE),
}
"""Number of actions, and a policy that plays better than at random."""


def play(name, policy, num_steps=400, size=42, seed=0):
    """Play one game from its memory; return the steps as a segment, and [T, 128] the memory."""
    game = resolve_game(name)
    assert game is not None
    ALEInterface.setLoggerMode(LoggerMode.Error)
    ale = ALEInterface()
    ale.setInt("random_seed", seed)
    ale.setFloat("repeat_action_probability", 0.0)
    ale.loadROM(str(roms.get_rom_path(game.rom)))
    actions, images, rewards, memories = ale.getMinimalActionSet(), [], [], []
    resize = AreaResize.of(ImageLayout((1, *ale.getScreenDims()), channel_axis=0), size)
    for _ in range(num_steps):
        action = actions[policy(ale.getRAM().astype(int))]
        frames = []
        rewards.append(0)
        for _ in range(FRAME_SKIP):
            rewards[-1] += ale.act(action)
            frames.append(ale.getScreenGrayscale())
        images.append(round_to_bytes(resize(np.maximum(*frames[-2:])[None])))
        memories.append(ale.getRAM().astype(int))
    observations, zeros = np.stack(images), np.zeros((num_steps, 2))
    blank(observations, game.name)
    segment = Segment(game.id, observations, zeros, np.array(rewards, np.float32), zeros)
    return segment, np.stack(memories)


def randomly(num_actions, longest=12):
    """Return a policy of random actions, each taken for up to some steps."""
    rng = np.random.default_rng(0)
    queue = []

    def policy(_):
        if not queue:
            queue.extend([int(rng.integers(num_actions))] * int(rng.integers(1, longest + 1)))
        return queue.pop()

    return policy


def correlation(seen, memory, shown):
    assert shown.mean() > 0.1
    return np.corrcoef(seen[shown], memory[shown])[0, 1]


@pytest.mark.parametrize("size", [42, 84])
def test_positions_in_pong_are_those_in_memory(size):
    segment, memory = play("Pong", randomly(6), size=size)
    ball_y, ball_x = spectator._centres(segment, PONG_BALL)
    paddle_y, _ = spectator._centres(segment, PONG_PADDLE)
    shown = np.isfinite(ball_y)
    assert correlation(ball_y, memory[:, PONG_BALL_Y], shown) > 0.999
    assert correlation(ball_x, memory[:, PONG_BALL_X], shown) > 0.999
    # Near the walls, a part of the paddle is outside the court.
    heights = memory[:, PONG_PADDLE_Y]
    assert correlation(paddle_y, heights, (heights > 60) & (heights < 180)) > 0.97


@pytest.mark.parametrize("size", [42, 84])
def test_positions_in_breakout_are_those_in_memory(size):
    segment, memory = play("Breakout", follow_in_breakout, size=size)
    _, ball_x = spectator._centres(segment, BREAKOUT_BALL)
    _, paddle_x = spectator._centres(segment, BREAKOUT_PADDLE)
    shown = np.isfinite(ball_x)
    assert correlation(ball_x, memory[:, BREAKOUT_BALL_X], shown) > 0.999
    assert correlation(paddle_x, memory[:, BREAKOUT_PADDLE_X], shown) > 0.98


@pytest.mark.parametrize("size", [42, 84])
def test_height_of_car_in_enduro_is_its_speed_in_memory(size):
    segment, memory = play("Enduro", randomly(9), 660, size=size)
    rows, _ = spectator._centres(segment, ENDURO_CAR, ENDURO_BODY)
    by_clip = (array.reshape(-1, CLIP_STEPS).mean(1) for array in (rows, memory[:, ENDURO_SPEED]))
    assert np.corrcoef(*by_clip)[0, 1] < -0.9


def cut(segment):
    """Return the clips that a segment consists of."""
    columns = (segment.observations, segment.actions, segment.rewards, segment.scene_states)
    num = len(segment) // CLIP_STEPS
    parts = zip(*(np.split(each[: num * CLIP_STEPS], num) for each in columns), strict=True)
    return [Segment(segment.env_id, *part) for part in parts]


@pytest.mark.parametrize("name", GAMES)
def test_spectator_prefers_good_play_to_random_play(name):
    teacher, (num_actions, follow) = teacher_named("spectator"), GAMES[name]
    good, poor = (cut(play(name, policy)[0])[1:] for policy in (follow, randomly(num_actions)))
    answers = [teacher(left, right, CONTEXT) for left in good for right in poor]
    assert np.mean([answer == Answer.LEFT for answer in answers]) > 0.7


@pytest.mark.parametrize("name", GAMES)
def test_spectator_decides_where_score_ties(name):
    clips = cut(play(name, randomly(GAMES[name][0], longest=1), 440)[0])
    decided = {
        teacher: np.mean(
            [
                teacher_named(teacher)(left, right, CONTEXT) != Answer.EQUAL
                for left, right in itertools.combinations(clips, 2)
            ]
        )
        for teacher in ("oracle", "spectator")
    }
    assert decided["spectator"] > max(decided["oracle"] + 0.2, 0.6)


def test_clip_without_car_scores_its_cars():
    dark = Segment(
        "EnduroNoFrameskip-v4",
        np.zeros((3, 4, 42, 42), np.uint8),
        np.zeros(3, np.int64),
        np.array([0, 1, 0], np.float32),
        np.zeros((3, 2)),
    )
    assert spectator.cars_and_speed(dark) == 1.0


@pytest.mark.parametrize("env_id", ["ALE/Pong-v5", "my_games:PongNoFrameskip-v4"])
def test_every_kind_of_game_is_judged(env_id):
    clip, _ = play("Pong", follow_in_pong, CLIP_STEPS)
    other = Segment(env_id, clip.observations, clip.actions, clip.rewards, clip.scene_states)
    assert teacher_named("spectator")(other, other, CONTEXT) is Answer.EQUAL


def test_other_game_is_refused():
    with pytest.raises(BadInput, match="SeaquestNoFrameskip-v4"):
        TASKS["spectator"].check_environment("SeaquestNoFrameskip-v4")
