"""The command `rl-teacher play`."""

import contextlib
from collections.abc import Iterator, Sequence

from rich.console import Console

from rl_teacher.clips.renderer import check_renderable
from rl_teacher.common import runtime
from rl_teacher.common.errors import BadConfig
from rl_teacher.common.paths import user_path
from rl_teacher.play.actors import Actor, load_actor
from rl_teacher.play.options import PlayOptions, validate
from rl_teacher.runs.folder import home


def play(options: PlayOptions) -> int:
    """Show an agent on the page or write a video, and return the exit code.

    Raises:
        RlTeacherError: the agent cannot be played.
    """
    validate(options)
    runtime.prepare(home() / "cache" / "xla")
    with open_actors(options) as actors:
        console = Console()
        for actor in actors:
            console.out(actor.description, highlight=False)
            for note in actor.notes:
                console.out(f"note: {note}", highlight=False)
        if options.video is not None:
            from rl_teacher.play.film import write_film  # noqa: PLC0415 - heavy

            write_film(actors, options, user_path(options.video), console)
            return 0
        return play_on_page(actors, options)


def play_on_page(actors: Sequence[Actor], options: PlayOptions) -> int:
    """Serve the page until a signal arrives."""
    from rl_teacher.play.player import Player  # noqa: PLC0415 - heavy
    from rl_teacher.web.serve import serve  # noqa: PLC0415

    player = Player(actors, options)
    with contextlib.closing(player):
        return serve(options, player=player)


@contextlib.contextmanager
def open_actors(options: PlayOptions) -> Iterator[Sequence[Actor]]:
    """Load one actor, or two of the same environment.

    Raises:
        BadInput: the environments differ or cannot be rendered.
    """
    with contextlib.ExitStack() as stack:
        first = load_actor(options.name, options.step, options.predictor_path)
        stack.callback(first.venv.close)
        check_renderable(first.env_info.id)
        if options.compare is None:
            yield [first]
            return
        other = load_actor(options.compare, options.compare_step, options.predictor_path)
        stack.callback(other.venv.close)
        if other.env_info.id != first.env_info.id:
            raise BadConfig(
                f"--compare {other.name} is of {other.env_info.id}, and {first.name} of "
                f"{first.env_info.id}. Two agents of one environment are needed."
            )
        yield [first, other]
