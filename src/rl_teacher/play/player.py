"""The player: records and renders the episodes that the page shows, one ahead of the viewer."""

import hashlib
import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress

import numpy as np
from jaxtyping import Float32

from rl_teacher.clips.renderer import SegmentRenderer
from rl_teacher.clips.segment import frame_steps
from rl_teacher.common.errors import BadInput, RlTeacherError
from rl_teacher.play.actors import Actor
from rl_teacher.play.episodes import RecordedEpisode, per_frame, record_episode
from rl_teacher.play.options import PlayOptions
from rl_teacher.web.schemas.play import (
    ClipContent,
    PlayedAgent,
    PlayedEpisode,
    PlayedSide,
    PlaySession,
)
from rl_teacher.web.schemas.shared import Clip, Number

CLIPS_PATH = "/api/v1/play/clips/"
SCENES_PATH = "/api/v1/play/scenes/"
DECIMALS = 4


class Player:
    """A player that records episodes in order on its own thread and keeps them in memory."""

    def __init__(self, actors: Sequence[Actor], options: PlayOptions) -> None:
        """Start recording the first episode.

        Args:
            actors: one actor, or two of the same environment.
            options: number of episodes, first seed, exploration.
        """
        self._actors = actors
        self._options = options
        self._renderer = SegmentRenderer(actors[0].env_info)
        self._clips: dict[str, ClipContent] = {}
        self._episodes: list[Future[PlayedEpisode]] = []
        self._lock = threading.Lock()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="play")
        self._start_episodes(0)

    def session(self) -> PlaySession:
        """Describe the actors and the episodes."""
        return PlaySession(
            players=[
                PlayedAgent.model_validate(
                    vars(actor) | {"env_id": actor.env_info.id, "agent": actor.kind}
                )
                for actor in self._actors
            ],
            num_episodes=self._options.episodes,
            seed=self._options.seed,
            is_exploring=self._options.explore,
        )

    def episode(self, number: int, timeout_s: float) -> PlayedEpisode | None:
        """Return an episode and start the next; None if it is not ready within the timeout.

        Raises:
            RlTeacherError: the episode could not be recorded or rendered.
        """
        self._start_episodes(number + 1)
        with suppress(TimeoutError):
            return self._episodes[number].result(timeout_s)
        return None

    def clip(self, content_hash: str) -> ClipContent | None:
        """Return the clip with this hash; None if there is none."""
        return self._clips.get(content_hash)

    def scene(self, scene_hash: str) -> bytes | None:
        """Return the scene with this hash; None if there is none."""
        scene = self._renderer.scene
        return scene[1] if scene is not None and scene_hash == scene[0] else None

    def close(self) -> None:
        """Release threads, processes and environments."""
        self._thread.shutdown(cancel_futures=True)
        self._renderer.close()
        for actor in self._actors:
            actor.venv.close()

    def _start_episodes(self, number: int) -> None:
        # Episodes are recorded in order: exploring agents draw from one generator, so only then
        # does a seed give the same episodes whichever is requested first.
        with self._lock:
            for each in range(len(self._episodes), min(number + 1, self._options.episodes)):
                self._episodes.append(self._thread.submit(self._play, each))

    def _play(self, number: int) -> PlayedEpisode:
        seed = self._options.seed + number
        try:
            episodes = [
                record_episode(actor, seed, explore=self._options.explore) for actor in self._actors
            ]
            sides = [self._render(*each) for each in zip(self._actors, episodes, strict=True)]
        except RlTeacherError:
            raise
        except Exception as error:
            raise BadInput(
                f"Episode {number} of {self._actors[0].env_info.id} cannot be played: "
                f"{type(error).__name__}: {error}. Run `rl-teacher check` on the environment."
            ) from error
        return PlayedEpisode(number=number, seed=seed, sides=sides)

    def _render(self, actor: Actor, episode: RecordedEpisode) -> PlayedSide:
        segment = episode.segment
        record = self._renderer.replay_record(actor.venv, segment)
        clip = self._renderer.render(segment, record, actor.frames)
        content_hash = hashlib.sha256(clip.content).hexdigest()
        self._clips[content_hash] = ClipContent(clip.kind, clip.content)
        scene = self._renderer.scene
        steps, _ = frame_steps(len(segment), actor.env_info.fps)
        return PlayedSide(
            clip=Clip(
                hash=content_hash,
                kind=clip.kind,
                url=f"{CLIPS_PATH}{content_hash}",
                scene_url=None if scene is None else f"{SCENES_PATH}{scene[0]}",
                num_frames=clip.num_frames,
                fps=clip.fps,
            ),
            num_steps=len(segment),
            end=episode.end,
            predicted_rewards=_curve(episode.predicted_rewards, steps),
            true_rewards=_curve(episode.true_rewards, steps),
            predicted_return=_total(episode.predicted_rewards),
            # Also in an episode without rewards, which counts in the mean over episodes.
            true_return=segment.true_return,
        )


def _curve(rewards: Float32[np.ndarray, " time"] | None, steps: np.ndarray) -> list[Number] | None:
    if rewards is None:
        return None
    return np.round(per_frame(rewards, steps), DECIMALS).tolist()


def _total(rewards: Float32[np.ndarray, " time"] | None) -> Number:
    return None if rewards is None else float(rewards.sum(dtype=np.float64))
