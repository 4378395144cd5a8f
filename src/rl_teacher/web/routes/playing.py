"""What `rl-teacher play` shows: episodes that it makes while they are watched.

Other services have nothing to play, and say so.
"""

from typing import Annotated

from fastapi import APIRouter, Path, Request, Response

from rl_teacher.web.access import Access, open_to
from rl_teacher.web.problems import NOT_FOUND, NOT_SHOWN, Refusal
from rl_teacher.web.range_requests import answer_in_ranges
from rl_teacher.web.routes.media import BYTES, MEDIA_TYPES, forever, is_known_already
from rl_teacher.web.schemas.play import EpisodePlayer, PlayedEpisode, PlaySession
from rl_teacher.web.services import Services, Work

PATIENCE_S = 10.0
"""How long a request waits for an episode that is being made."""

NOTHING_PLAYS = "Nothing is played here. `rl-teacher play NAME` plays an experiment's agent."

router = APIRouter(prefix="/api/v1/play", tags=["play"])


@router.get("")
@open_to(Access.OWNER)
def show_bill(work: Work) -> PlaySession:
    """Who plays."""
    return player_of(work).session()


@router.get("/episodes/{number}")
@open_to(Access.OWNER)
def show_episode(number: Annotated[int, Path(ge=0, le=10_000)], work: Work) -> PlayedEpisode:
    """One episode; it is waited for while it is being made."""
    player = player_of(work)
    if number >= player.session().num_episodes:
        raise Refusal(
            NOT_FOUND,
            f"There is no episode {number}: {player.session().num_episodes} are played, from 0. "
            "`rl-teacher play --episodes` says how many.",
        )
    episode = player.episode(number, PATIENCE_S)
    if episode is None:
        raise Refusal(NOT_SHOWN, f"Episode {number} is still being played. Ask again.")
    return episode


@router.get("/clips/{content_hash}", responses=BYTES)
@open_to(Access.OWNER)
def send_played_clip(content_hash: str, request: Request, work: Work) -> Response:
    """A clip's bytes: poses, or a video, of which a part may be asked for."""
    picture = player_of(work).clip(content_hash)
    if picture is None:
        raise Refusal(NOT_FOUND, f"There is no clip {content_hash[:80]!r} of what is played.")
    if is_known_already(request, content_hash):
        return Response(status_code=304, headers=forever(content_hash))
    headers = forever(content_hash) | {"Content-Type": MEDIA_TYPES[picture.kind]}
    return answer_in_ranges(request, picture.content, headers)


@router.get("/scenes/{scene_hash}")
@open_to(Access.OWNER)
def send_played_scene(scene_hash: str, work: Work) -> Response:
    """What poses move: the bodies' shapes and colours, as JSON."""
    scene = player_of(work).scene(scene_hash)
    if scene is None:
        raise Refusal(NOT_FOUND, f"There is no scene {scene_hash[:80]!r} of what is played.")
    return Response(scene, headers=forever(scene_hash), media_type="application/json")


def player_of(work: Services) -> EpisodePlayer:
    """Where what is played is made.

    Raises:
        Refusal: nothing is.
    """
    if work.player is None:
        raise Refusal(NOT_FOUND, NOTHING_PLAYS)
    return work.player
