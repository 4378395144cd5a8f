"""Episodes played by `rl-teacher play`.

Other services respond that nothing is played.
"""

from typing import Annotated

from fastapi import APIRouter, Path, Response

from rl_teacher.common.errors import NotFound
from rl_teacher.web.access import OwnerRoute
from rl_teacher.web.clip_export import ExportedClip, download, export
from rl_teacher.web.problems import NotShown
from rl_teacher.web.routes.media import CLIP_RESPONSES, EXPORTED, MEDIA_TYPES, Format, immutable
from rl_teacher.web.schemas.play import EpisodePlayer, PlayedEpisode, PlaySession
from rl_teacher.web.services import Services, ServicesDep

TIMEOUT_S = 10.0
"""Seconds that a request waits for an episode."""

NO_PLAYER_MESSAGE = "This service plays no episodes. Run `rl-teacher play NAME` to play an agent."

EpisodeNumber = Annotated[int, Path(ge=0, le=10_000)]

router = APIRouter(prefix="/api/v1/play", tags=["play"], route_class=OwnerRoute)


@router.get("")
def show_session(services: ServicesDep) -> PlaySession:
    """Return the agents that play."""
    return player_of(services).session()


@router.get("/episodes/{number}")
def show_episode(number: EpisodeNumber, services: ServicesDep) -> PlayedEpisode:
    """Return one episode, waiting for it while it is played."""
    player = player_of(services)
    if number >= player.session().num_episodes:
        raise NotFound(
            f"There is no episode {number}: {player.session().num_episodes} are played, numbered "
            "from 0. Set their number with `rl-teacher play --episodes`."
        )
    episode = player.episode(number, TIMEOUT_S)
    if episode is None:
        raise NotShown(f"Episode {number} is not ready yet. Request it again.")
    return episode


@router.get("/episodes/{number}/download", response_class=Response, responses=EXPORTED)
def download_episode(
    number: EpisodeNumber, services: ServicesDep, form: Format = "mp4"
) -> Response:
    """Return one episode of all agents as a file to save: an MP4 video or a GIF."""
    player = player_of(services)
    files: list[ExportedClip] = []
    for shown in (side.clip for side in show_episode(number, services).sides):
        clip, scene_hash = player.clip(shown.hash), (shown.scene_url or "").split("/")[-1]
        if clip is None:
            raise NotShown(f"Episode {number} is not ready yet. Request it again.")
        files.append(ExportedClip(clip.content, shown.fps, shown.speed, player.scene(scene_hash)))
    return download(export(files, form), f"episode-{number + 1}", form)


@router.get("/clips/{content_hash}", response_class=Response, responses=CLIP_RESPONSES)
def send_played_clip(content_hash: str, services: ServicesDep) -> Response:
    """Send the content of a clip: poses, or a video."""
    clip = player_of(services).clip(content_hash)
    if clip is None:
        raise NotFound(f"The played episodes have no clip {content_hash[:80]!r}.")
    return immutable(clip.content, MEDIA_TYPES[clip.kind])


@router.get("/scenes/{scene_hash}")
def send_played_scene(scene_hash: str, services: ServicesDep) -> Response:
    """Send the scene that clips of poses animate, as JSON."""
    scene = player_of(services).scene(scene_hash)
    if scene is None:
        raise NotFound(f"The played episodes have no scene {scene_hash[:80]!r}.")
    return immutable(scene, "application/json")


def player_of(services: Services) -> EpisodePlayer:
    """Return the player of episodes.

    Raises:
        NotFound: The service plays no episodes.
    """
    if services.player is None:
        raise NotFound(NO_PLAYER_MESSAGE)
    return services.player
