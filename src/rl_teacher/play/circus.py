"""The command `rl-teacher circus`: four taught tricks beside agents trained on the true reward.

It writes into one folder:

    circus.html      page with clips of all agents, which needs no server
    circus.json      how well each agent does the trick
    TASK.gif, .mp4   videos, with --video
"""

import base64
import hashlib
import json
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from rl_teacher.clips.offscreen import OffscreenRenderer
from rl_teacher.clips.renderer import SegmentRenderer
from rl_teacher.clips.segment import Segment
from rl_teacher.common.errors import BadInput
from rl_teacher.common.files import check_writable, write_atomically, write_errors
from rl_teacher.common.paths import user_path
from rl_teacher.config.experiment import RunOptions, TeachConfig
from rl_teacher.play.actors import Actor
from rl_teacher.play.commands import open_actors
from rl_teacher.play.episodes import record_episode
from rl_teacher.play.film import write_film
from rl_teacher.play.options import EPISODES, CircusOptions, PlayOptions
from rl_teacher.teach import teach
from rl_teacher.teachers.tasks import TASKS, TaskTeacher
from rl_teacher.web.schemas.shared import Clip
from rl_teacher.web.settings import BUILT_PAGE

PAGE = BUILT_PAGE / "circus.html"
DATA = '<script id="circus" type="application/json">null</script>'
"""Place of the data in the built page."""


@dataclass(frozen=True)
class Act:
    """One trick.

    Attributes:
        title: title on the page.
        task: name of the task teacher.
        env_id: environment of both agents.
        sentence: description of the trick.
        clip_length: seconds of the clips that are compared.
    """

    title: str
    task: str
    env_id: str
    sentence: str
    clip_length: float = TeachConfig.clip_length

    @property
    def teacher(self) -> TaskTeacher:
        """The task teacher."""
        return TASKS[self.task]

    def configs(self, options: CircusOptions) -> tuple[TeachConfig, TeachConfig]:
        """Return the settings of the taught agent, and of the agent with the true reward."""
        shared: dict[str, Any] = {
            "agent": "sac",
            "num_timesteps": options.steps,
            "seed": options.seed,
        }
        taught = TeachConfig(
            self.env_id,
            "synth",
            name=f"circus-{self.task}",
            teacher=self.task,
            n_labels=options.labels,
            clip_length=self.clip_length,
            schedule_fraction=1.0,
            **shared,
        )
        name = f"circus-{self.teacher.env_ids[0].removesuffix('-v1').lower()}"
        return taught, TeachConfig(self.env_id, "rl", name=name, **shared)


ACTS = (
    Act("Ballerina", "ballerina", "ShortWalker-v1", "Walker balances on one leg."),
    Act("Opposite", "opposite", "Reacher-v1", "Reacher keeps away from its target."),
    Act("Backflip", "backflip", "ShortHopper-v1", "Hopper turns over backwards.", clip_length=2.5),
    Act("Tap dance", "tapdance", "ShortCheetah-v1", "Cheetah dances on its hind leg."),
)


def circus(options: CircusOptions) -> int:
    """Train the agents that are missing, write page, measures and videos, and return the exit code.

    Raises:
        RlTeacherError: an option is out of range, or something cannot be trained or written.
    """
    options = replace(options, out=user_path(options.out))
    check(options)
    console = Console()
    if not train(options, console):
        return 0
    acts = [perform(act, options, console) for act in ACTS]
    settings: dict[str, Any] = {
        "steps": options.steps,
        "labels": options.labels,
        "seed": options.seed,
        "episodes": EPISODES,
    }
    report = settings | {"acts": [measured for measured, _ in acts]}
    page = settings | {"acts": [measured | {"clips": clips} for measured, clips in acts]}
    page_path = (options.out / "circus.html").resolve()
    with write_errors(f"The circus cannot be written into {options.out}", "Give another --out."):
        for path, content in (
            (options.out / "circus.json", json.dumps(report, indent=2) + "\n"),
            (page_path, fill_page(PAGE.read_text(), page)),
        ):
            write_atomically(path, content.encode(), is_synced=False)
    console.print(results_table(report["acts"]))
    console.out(f"page: {page_path}", highlight=False)
    return 0


def check(options: CircusOptions) -> None:
    """Check everything that could fail after hours of training.

    Raises:
        BadConfig: a number is out of range.
        BadInput: the page is not built, or videos cannot be rendered here.
        RunFolderUnusable: the folder cannot be written.
    """
    if not PAGE.is_file():
        raise BadInput(
            f"The page is not built: there is no {PAGE}. Run `make page`; an installed rl-teacher "
            "contains it."
        )
    check_writable(options.out, "--out")
    if options.video:
        OffscreenRenderer().close()


def train(options: CircusOptions, console: Console) -> bool:
    """Train or continue all agents, one after another; return False if a run was stopped."""
    configs = [config for act in ACTS for config in act.configs(options)]
    for number, config in enumerate(configs, 1):
        console.print(f"agent {number} of {len(configs)}: {config.name}", highlight=False)
        if not teach(config, RunOptions(no_tensorboard=True)).is_finished:
            console.print("The run was stopped and saved. Repeat the command to continue it.")
            return False
    return True


def perform(
    act: Act, options: CircusOptions, console: Console
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Play both agents of an act; write its videos.

    Returns:
        The measures, and the clips of the first episodes.
    """
    taught, peer = act.configs(options)
    played = PlayOptions(taught.name, compare=peer.name, episodes=1, seed=options.seed)
    with ExitStack() as stack:
        actors = stack.enter_context(open_actors(played))
        renderer = stack.enter_context(closing(SegmentRenderer(actors[0].env_info)))
        both = [record(actor, options.seed) for actor in actors]
        for ending in ("mp4", "gif") if options.video else ():
            write_film(actors, played, options.out / f"{act.task}.{ending}", console)
        clips = [encode_clip(renderer, segments[0]) for segments in both]
        sides = [
            describe(actor, [act.teacher.measure(segment) for segment in segments])
            for actor, segments in zip(actors, both, strict=True)
        ]
    measured = {
        **{name: asdict(act)[name] for name in ("title", "task", "env_id", "sentence")},
        "measure": act.teacher.measure_name,
        "is_share": act.teacher.is_share,
        "taught": sides[0],
        "true_reward": sides[1],
    }
    return measured, clips


def record(actor: Actor, seed: int) -> list[Segment]:
    """Record episodes of the most likely actions."""
    return [
        record_episode(actor, seed + number, explore=False).segment for number in range(EPISODES)
    ]


def describe(actor: Actor, measures: Sequence[float]) -> dict[str, Any]:
    """Return the measures of an agent in each episode, and their mean, as JSON values."""
    return {
        "experiment": actor.name,
        "agent": actor.kind,
        "step": actor.step,
        "mean": round(float(np.mean(measures)), 4),
        "per_episode": [round(each, 4) for each in measures],
    }


def encode_clip(renderer: SegmentRenderer, segment: Segment) -> dict[str, Any]:
    """Render an episode as a clip whose URLs contain its content."""
    clip, scene = renderer.render(segment, None), renderer.scene
    assert scene is not None  # noqa: S101 - all acts are MuJoCo tasks
    return Clip(
        hash=hashlib.sha256(clip.content).hexdigest(),
        kind=clip.kind,
        url=data_url(clip.content),
        scene_url=data_url(scene[1]),
        num_frames=clip.num_frames,
        fps=clip.fps,
    ).model_dump(mode="json")


def data_url(content: bytes) -> str:
    """Return a URL that contains the content."""
    return f"data:application/octet-stream;base64,{base64.b64encode(content).decode()}"


def fill_page(page: str, data: dict[str, Any]) -> str:
    """Insert the data into the built page.

    Raises:
        BadInput: the page is of another version.
    """
    if page.count(DATA) != 1:
        raise BadInput(f"{PAGE} has no place for the data. Run `make page` again.")
    # `</script>` in a text would end the element.
    return page.replace(DATA, DATA.replace("null", json.dumps(data).replace("<", "\\u003c")))


def results_table(acts: Sequence[dict[str, Any]]) -> Table:
    """Build the table of the measures."""
    table = Table("act", "measure", "taught", "true reward")
    for act in acts:
        form = "{:.0%}" if act["is_share"] else "{:.1f}"
        shown = [form.format(act[side]["mean"]) for side in ("taught", "true_reward")]
        table.add_row(act["title"], act["measure"], *shown)
    return table
