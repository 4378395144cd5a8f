import importlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rl_teacher import cli, settings_commands
from rl_teacher.agents.registry import AGENTS, check_agent
from rl_teacher.cli import main
from rl_teacher.clips.answer import Answer
from rl_teacher.common.errors import BadInput
from rl_teacher.config import predecessors
from rl_teacher.config.agents import PPOConfig
from rl_teacher.config.experiment import AGENT_SECTIONS, PredictorConfig, RunOptions, TeachConfig
from rl_teacher.config.fields import fields_of, help_of
from rl_teacher.envs import registry
from rl_teacher.runs.folder import Experiment, home, open_store
from rl_teacher.settings_commands import parse_teach
from rl_teacher.store.database import default_url
from rl_teacher.store.store import Store
from tests.store.comparisons import ask_and_show

pytestmark = pytest.mark.usefixtures("_shapes_unchecked")

TINY = ["--ppo.num-envs", "8", "--ppo.rollout-steps", "32", "-t", "1024"]
TINY_FIT = [*TINY, "-i", "40"]


def run(*arguments, **environment):
    return subprocess.run(
        [sys.executable, "-m", "rl_teacher.cli", *arguments],
        capture_output=True,
        text=True,
        env=os.environ | environment,
        check=False,
        timeout=300,
    )


def test_help_names_every_command(capsys):
    assert main(["--help"]) == 0
    printed = capsys.readouterr().out
    for command in ("teach", "envs", "runs", "report"):
        assert f" {command} " in printed


def test_no_command_shows_three_commands_to_try(capsys):
    assert main([]) == 0
    assert capsys.readouterr().out.count("\n  rl-teacher ") == 3


@pytest.mark.parametrize(
    ("words", "source", "name", "port"),
    [
        (["teach"], "human", "mine", 8765),
        (["teach", "--port", "9000"], "human", "mine", 9000),
        (["demo"], "synth", "demo", 8765),
    ],
)
def test_command_without_settings_teaches_a_hopper_and_says_how(
    words, source, name, port, monkeypatch, capsys
):
    run = []
    monkeypatch.setattr(settings_commands, "run_experiment", lambda *given: run.append(given))
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    assert main(words) == 0
    [(config, options, _)] = run
    assert (config.env_id, config.predictor, config.name) == ("ShortHopper-v1", source, name)
    assert options.port == port
    assert f"rl-teacher teach -p {source} -e ShortHopper-v1" in capsys.readouterr().out


def test_teach_without_settings_and_terminal_is_refused(monkeypatch, capsys):
    monkeypatch.setattr(sys.stdin, "isatty", lambda: False)
    assert main(["teach"]) == 2
    assert "--env-id is missing" in capsys.readouterr().err


def test_help_imports_no_heavy_library():
    code = (
        "import sys; from rl_teacher.cli import main; main(['--help']); print(sorted(sys.modules))"
    )
    printed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    for heavy in ("jax", "numpy", "mujoco", "gymnasium", "pydantic", "sqlalchemy"):
        assert f"'{heavy}'" not in printed


@pytest.mark.parametrize(
    "command", ["label x", "export x", "reward x true", "labelers add zoe --experiment x"]
)
def test_experiment_with_only_a_predictor_is_refused_with_the_reason(command, capsys):
    Experiment.open("x", {"env_id": "ShortHopper-v1", "fit": {"seed": 0}}).close()
    assert main(command.split()) == 2
    assert "'x' of `rl-teacher fit` has neither comparisons nor" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (["teach", "--nlabels", "5"], "--n-labels"),
        (["teach", "--envid", "ShortHopper-v1", "-p", "rl", "-n", "x"], "--env-id"),
        (["teach", "--ppo.lr", "1"], "--ppo.learning-rate"),
        (["fit", "x", "--reward.hiden", "5"], "--reward.hidden"),
        (["report", "x", "--plt", "y.png"], "--plot"),
        (["labelers", "add", "Ann", "--day", "5"], "--days"),
    ],
)
def test_misspelt_option_suggests_similar_ones(arguments, meant, capsys):
    assert main(arguments) == 2
    printed = capsys.readouterr().err
    assert "Did you mean" in printed
    assert f" {meant}" in printed


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        ("teach -p rl -e ShortHopper-v1 -n x -b 0.1", "Use --ga3c.entropy-coef"),
        ("teach -p rl -e Pong-v0 -n x --starting_beta 0.1", "Use --ga3c.entropy-coef"),
        ("teach --reward_model=rl -e ShortHopper-v1 -n x", "Use -p."),
        ("teach -p synth -e MovingDot-v0 -n x --million_timesteps 0.15", "Use -t, in steps"),
        ("teach -p synth -e Pong-v4 --log_dir runs", "Use -n."),
        ("teach -p synth -e Pong-v4 -n x --render_episodes", "Use --serve, and press w"),
        ("teach -p synth -e Pong-v4 -n x --max_segs 500", "the latest rollouts are kept"),
        ("teach -p synth -e Pong-v4 -n x --n_initial_prefs 500", "Use -L."),
        ("collect -p synth -e Pong-v4 -n x --n_initial_prefs 500", "Use -l."),
        ("fit -n x --load_prefs_dir initial", "the labels are the first argument"),
        ("-p rl -e ShortHopper-v1 -n x", "Use: rl-teacher teach -p rl -e ShortHopper-v1 -n x"),
        ("gather_initial_prefs PongNoFrameskip-v4", "is a command here: rl-teacher collect"),
        ("teach -p rl -e ShortHopper-v1 -n x -a parallel_trpo", "Use -a trpo."),
        ("teach -p rl -e ShortHopper-v1 -n x -a pposgd_mpi", "Use -a ppo."),
        ("teach -p rl -e Pong-v0 -n x -a ppo_atari", "Use -a ppo."),
    ],
)
def test_spelling_of_earlier_system_is_answered_with_new_one(arguments, answer, capsys):
    assert main(arguments.split()) == 2
    assert answer in capsys.readouterr().err


def test_new_names_of_earlier_options_exist(capsys):
    assert main(["teach", "--help-all"]) == 0
    known = set(re.findall(r"--[\w.-]*\w", capsys.readouterr().out))
    named = [flag for new in predecessors.OPTIONS.values() for flag in re.findall(r"--\S+\b", new)]
    assert named
    assert {*named} <= known
    assert not {*predecessors.OPTIONS} & known
    assert {*predecessors.AGENTS.values()} <= {*AGENTS}


@pytest.mark.parametrize(
    "arguments",
    [
        # The READMEs of rl-teacher and of rl-teacher-atari, with `rl-teacher teach` as command.
        "-p rl -e ShortHopper-v1 -n base-rl",
        "-p synth -l 1400 -e ShortHopper-v1 -n syn-1400",
        "-p human --pretrain_labels 175 -e Reacher-v1 -n human-175",
        "-e Pong-v0 -n rl-test -p rl",
        "-e Breakout-v0 -n synth-test -p synth -l 300",
        "-e MontezumaRevenge-v0 -n human-test -p human -L 50",
        "-e Pong-v0 -n rl-test -p rl -f 0",
    ],
)
def test_command_of_earlier_readme_is_accepted(arguments, monkeypatch):
    configs = []
    monkeypatch.setattr(
        settings_commands, "run_experiment", lambda config, *_: configs.append(config) or 0
    )
    assert main(["teach", *arguments.split()]) == 0
    check_agent(configs[0])


def test_module_of_training_loop_answers_with_command():
    command = [sys.executable, "-m", "rl_teacher.teach", "-p", "rl", "-n", "my run"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2
    assert done.stderr == "error: Use this command: rl-teacher teach -p rl -n 'my run'\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["envs", "hopper"],
        *([each, "--help"] for each in cli.COMMANDS if each[0] != "-"),
    ],
    ids=" ".join,
)
def test_closed_output_ends_command_without_traceback(arguments, monkeypatch):
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as broken, monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", broken)
        try:
            exit_code = main(arguments)
        except SystemExit as exit_:  # rich ends the process by itself
            exit_code = exit_.code
    assert exit_code == 1


@pytest.mark.parametrize("arguments", ["--help", "runs", "export one --format jsonl"])
def test_output_to_a_full_disk_exits_with_code_2_and_message(arguments, monkeypatch, capsys):
    with open_store() as store:
        experiment_id = store.experiments.ensure("one", "E", {})
        store.labels.add(ask_and_show(store, experiment_id, "a")[0], Answer.LEFT, "Ada")
    with Path("/dev/full").open("w") as full, monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", full)
        assert main(arguments.split()) == 2
    assert "The output cannot be written: No space left" in capsys.readouterr().err


def test_repeated_interrupt_prints_one_line(monkeypatch, capsys, caplog):
    def close(_, connection):
        connection.close()
        raise KeyboardInterrupt

    def interrupt():
        with open_store() as store, monkeypatch.context() as patched:
            patched.setattr("sqlalchemy.engine.default.DefaultDialect.do_close", close)
            store.experiments.all()
            store.close()

    before = signal.getsignal(signal.SIGINT)
    monkeypatch.setattr(sys, "argv", ["rl-teacher", "runs"])
    monkeypatch.setitem(cli.COMMANDS, "runs", interrupt)
    try:
        assert main() == 130
        # While Python exits, the next one ends the process.
        assert signal.getsignal(signal.SIGINT) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGINT, before)
    assert capsys.readouterr().err == "interrupted\n"
    assert caplog.records == []


@pytest.mark.parametrize(
    ("command", "function"),
    [
        ("serve", "rl_teacher.web.serve.serve"),
        ("play mine", "rl_teacher.play.commands.play"),
        ("teach -p rl -e ShortHopper-v1 -n mine", "rl_teacher.teach.teach"),
    ],
)
def test_command_that_starts_slowly_says_first_what_it_loads(
    command, function, monkeypatch, capsys
):
    def start(*_, **__):
        raise BadInput(capsys.readouterr().out)

    module, name = function.rsplit(".", 1)
    monkeypatch.setattr(importlib.import_module(module), name, start)
    assert main(command.split()) == 2
    assert capsys.readouterr().err.startswith("error: Loading ")


def test_command_without_standard_output_prints_no_error():
    command = f"{shlex.quote(sys.executable)} -m rl_teacher --help >&-"
    done = subprocess.run(
        ["sh", "-c", command], stderr=subprocess.PIPE, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(("flag", "least", "most"), [("--help", 20, 26), ("--help-all", 100, 150)])
def test_help_shows_settings_that_matter_and_help_all_shows_all(flag, least, most, capsys):
    assert main(["teach", flag]) == 0
    flags = re.findall(r"^│ +(--[\w.-]*\w)", capsys.readouterr().out, re.MULTILINE)
    assert least <= len(flags) <= most


def test_help_of_all_settings_has_their_texts(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "300")
    assert main(["teach", "--help-all"]) == 0
    printed = " ".join(capsys.readouterr().out.replace("│", " ").split())
    for config in (TeachConfig, RunOptions, PredictorConfig, PPOConfig):
        for name in {*fields_of(config)} - {*AGENT_SECTIONS, "reward", "collect_only"}:
            assert help_of(config, name) in printed


def test_module_exits_with_the_code_of_the_command():
    command = [sys.executable, "-m", "rl_teacher", "taech"]
    assert subprocess.run(command, capture_output=True, check=False, timeout=60).returncode == 2


def test_flags_with_underscores_are_accepted(capsys):
    arguments = ["-p", "synth", "--n_labels", "12", "--env_id", "ShortReacher-v1"]
    arguments += ["--pretrain_labels", "8", "--num_timesteps", "1e3"]
    assert main(["teach", *TINY_FIT, *arguments, "-n", "syn"]) == 0
    config = Experiment.find("syn").config
    assert config["n_labels"] == 12
    assert (config["pretrain_labels"], config["num_timesteps"]) == (8, 1000)
    assert "plot.png" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-e", "ShortHoper-v1", "-p", "rl", "-n", "x"], "ShortHopper-v1"),
        (["-e", "ShortHopper-v1", "-p", "rl", "-n", "x", "-a", "pppo"], "ppo"),
        (["-e", "ShortHopper-v1", "-p", "synth", "-n", "x", "--teacher", "orcale"], "oracle"),
        (["-e", "ShortHopper-v1", "-p", "rl", "-n", "a/b"], "a/b"),
        (["-e", "ShortHopper-v1", "-p", "rl", "-n", "x" * 300], "100"),
        (["-e", "ShortReacher-v1", "-p", "synth", "-n", "x", "-c", "3"], "--clip-length 3"),
        (["-e", "MovingDot-v0", "-p", "synth", "-n", "x", "-c", "17"], "--clip-length 17"),
        (["-e", "ShortHopper-v1", "-p", "synth", "-n", "x", "-l", "-3"], "--n-labels -3"),
        (["-e", "ALE/Pnog-v5", "-p", "rl", "-n", "x"], "Pong"),
    ],
)
def test_bad_input_exits_with_code_2_and_message(arguments, message, capsys):
    assert main(["teach", *arguments]) == 2
    printed = capsys.readouterr().err
    assert message in printed
    assert "Traceback" not in printed


def test_videos_of_environment_without_images_are_refused_before_anything_is_created(
    write_module, capsys
):
    write_module(
        "blind",
        "import gymnasium, numpy as np\n"
        "class Blind(gymnasium.Env):\n"
        "    observation_space = gymnasium.spaces.Box(-1, 1, (1,))\n"
        "    action_space = gymnasium.spaces.Discrete(2)\n"
        "    def reset(self, *, seed=None, options=None):\n"
        "        super().reset(seed=seed)\n"
        "        return np.zeros(1, np.float32), {}\n"
        "    def step(self, action):\n"
        "        return np.zeros(1, np.float32), 0.0, False, True, {}\n",
    )
    arguments = ["teach", "-e", "blind:Blind", "-p", "rl", "-n", "x", *TINY]
    assert main([*arguments, "--videos"]) == 2
    assert "render" in capsys.readouterr().err
    assert not (home() / "experiments").exists()


@pytest.mark.parametrize(
    ("command", "named"),
    [
        ("check ShortHopper-v1 -p humn", "humn"),
        ("teach -e ShortHopper-v1 -p rl -n x -t=inf", "inf"),
        ("teach -e ShortHopper-v1 -p rl -n x -t 1.5", "1.5"),
        ("teach -e ShortHopper-v1 -p synth -n x -l five", "five"),
        ("teach -e ShortHopper-v1 -n x -p snyth", "synth"),
        ("teach -e ShortHopper-v1 -n x -p synth --schedule anealed", "annealed"),
        ("teach -e ShortHopper-v1 -n x -p human --overlap half", "half"),
        ("teach -e ShortHopper-v1 -p rl", "--name"),
        ("teach -p rl -n x", "--env-id"),
    ],
)
def test_value_that_cannot_be_parsed_is_refused_with_exit_code_2(command, named, capsys):
    assert main(command.split()) == 2
    assert named in capsys.readouterr().err


@pytest.mark.parametrize("flag", ["--hide-episode-ends", "--hide_episode_ends"])
def test_flag_that_a_preset_has_switched_on_may_be_given(flag):
    config, _, defaults = parse_teach(["-p", "synth", "-e", "MovingDot-v0", "-n", "x", flag])
    assert config.hide_episode_ends
    assert defaults.hide_episode_ends


def test_flags_that_a_preset_has_switched_on_can_be_switched_off():
    flags = ["--no-hide-episode-ends", "--reward.no-batch-norm", "--reward.no-ignore-actions"]
    arguments = ["-p", "synth", "-e", "MovingDot-v0", "-n", "x", "--preset", "paper-atari"]
    config, _, _ = parse_teach([*arguments, *flags])
    assert not config.hide_episode_ends
    assert not config.reward.batch_norm
    assert not config.reward.ignore_actions


def test_changed_config_of_existing_experiment_lists_differences(capsys):
    arguments = ["teach", "-p", "rl", "-e", "ShortReacher-v1", "-n", "same", *TINY]
    assert main(arguments) == 0
    assert main([*arguments, "-s", "7"]) == 2
    assert "seed: was 1, now 7" in capsys.readouterr().err


def test_experiment_without_newer_setting_continues_with_its_default():
    arguments = ["teach", "-p", "rl", "-e", "ShortReacher-v1", "-n", "older", *TINY]
    assert main(arguments) == 0
    path = Experiment.find("older").folder / "config.json"
    config = json.loads(path.read_text())
    del config["clip_reward"], config["ppo"]["entropy_coef"]
    path.write_text(json.dumps(config))
    assert main(arguments) == 0
    assert Experiment.find("older").config["ppo"]["entropy_coef"] == 0.0


def test_force_new_without_terminal_names_the_command_that_deletes(capsys, monkeypatch):
    arguments = ["teach", "-p", "rl", "-e", "ShortReacher-v1", "-n", "again", *TINY]
    assert main(arguments) == 0
    with Path(os.devnull).open() as no_terminal:
        monkeypatch.setattr("sys.stdin", no_terminal)
        assert main([*arguments, "-s", "7", "--force-new"]) == 2
    assert "rl-teacher delete again --yes" in capsys.readouterr().err
    assert main(["delete", "again", "--yes"]) == 0
    assert main([*arguments, "-s", "7", "--force-new"]) == 0
    assert Experiment.find("again").config["seed"] == 7


@pytest.mark.usefixtures("draws_pictures")
def test_runs_and_report_show_existing_experiments(capsys, tmp_path):
    assert main(["runs"]) == 0
    assert "No experiments" in capsys.readouterr().out
    for name in ("one", "two"):
        assert main(["teach", "-p", "rl", "-e", "ShortReacher-v1", "-n", name, *TINY]) == 0
    assert main(["runs"]) == 0
    assert main(["report", "one", "two", "--plot", str(tmp_path / "both.png")]) == 0
    printed = capsys.readouterr().out
    assert "finished" in printed
    assert (tmp_path / "both.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.usefixtures("draws_pictures")
def test_plot_is_written_to_the_users_folder_or_refused(capsys, tmp_path, monkeypatch):
    with Experiment.open("one", {"env_id": "ShortReacher-v1"}) as experiment:
        experiment.metrics_file.append({"step": 1})
    monkeypatch.setenv("HOME", str(tmp_path))
    assert main(["report", "one", "--plot", "~/one.png"]) == 0
    assert (tmp_path / "one.png").exists()
    assert main(["report", "one", "--plot", str(tmp_path / "none" / "one.png")]) == 2
    assert main(["report", "one", "--plot", str(tmp_path)]) == 2
    assert capsys.readouterr().err.count("The plot cannot be written to") == 2
    assert main(["report", "one", "--plot", str(tmp_path / "curves.pdf")]) == 2
    assert not (tmp_path / "curves.pdf").exists()


def test_folder_for_exported_labels_is_refused(capsys):
    with open_store() as store:
        store.experiments.ensure("one", "ShortReacher-v1", {})
    assert main(["export", "one", "--format", "jsonl", "--out", "."]) == 2
    assert "--out . was given, but that is a folder" in capsys.readouterr().err


def test_runs_lists_clips_where_an_experiment_sorts_them(capsys):
    for name, metrics in (("plain", {}), ("sorting", {"clips_sorted": 5_200})):
        with Experiment.open(name, {"env_id": "ShortReacher-v1"}) as experiment:
            experiment.metrics_file.append({"step": 512, "labels_answered": 1_040, **metrics})
    assert main(["runs"]) == 0
    table = capsys.readouterr().out.splitlines()
    assert any("clips" in line for line in table[:3])
    assert any("sorting" in line and "5,200" in line for line in table)


def test_runs_lists_long_names_and_their_numbers_whole_in_a_narrow_terminal(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    name = f"{'x' * 80}_seed=12"
    with Experiment.open(name, {"env_id": "ShortReacher-v1"}) as experiment:
        experiment.metrics_file.append({"step": 1_234_512, "labels_answered": 1_040})
    assert main(["runs"]) == 0
    printed = capsys.readouterr().out
    assert "1,234,512" in printed
    column = "".join(line[:16].strip() for line in printed.splitlines())
    assert column.endswith(name)


def test_runs_shows_why_a_run_failed(capsys):
    message = f"Failed: {'the reason ' * 20}"
    with open_store() as store:
        experiment_id = store.experiments.ensure("broken", "ShortReacher-v1", {})
        store.experiments.set_status(experiment_id, {"phase": "failed", "message": message})
    with pytest.raises(RuntimeError), Experiment.open("broken", {"env_id": "ShortReacher-v1"}):
        raise RuntimeError
    assert main(["runs"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["broken:", *message.split()] in lines


def test_runs_writes_one_line_for_each_experiment_into_a_pipe(capsys, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    name = f"{'x' * 80}_seed=12"
    with Experiment.open(name, {"env_id": "ShortReacher-v1"}) as experiment:
        experiment.metrics_file.append({"step": 1_234_512})
    assert main(["runs"]) == 0
    [line] = [line for line in capsys.readouterr().out.splitlines() if "xx" in line]
    assert line.split()[:2] == [name, "ShortReacher-v1"]
    assert "1,234,512" in line


@pytest.mark.usefixtures("draws_pictures")
def test_brackets_in_names_of_environments_and_plots_are_not_markup(capsys):
    """An imported data set may have any name of its environment."""
    with Experiment.open("one[red]", {"env_id": "theirs[/b]"}) as experiment:
        experiment.metrics_file.append({"step": 1})
    assert main(["runs"]) == 0
    assert "theirs[/b]" in capsys.readouterr().out
    assert main(["report", "one[red]"]) == 0
    assert f"plot: {experiment.plot_path}" in capsys.readouterr().out


@pytest.mark.usefixtures("draws_pictures")
def test_report_and_runs_agree_on_the_number_of_labels(capsys, monkeypatch):
    arguments = ["teach", "-p", "synth", "-l", "10", "-L", "8", "-e", "ShortReacher-v1"]
    assert main([*arguments, "-n", "one two", *TINY_FIT]) == 0
    with Store.open(default_url(home())) as store:  # a label that no trainer has read
        experiment = store.experiments.get("one two")
        [comparison] = store.comparisons.add(experiment.id, [("a", "b")], "Reacher-v1", 15, 0)
        store.labels.add(comparison, Answer.LEFT, "owner")
    capsys.readouterr()
    monkeypatch.setenv("COLUMNS", "120")
    assert main(["runs"]) == 0
    assert re.search(r"one two .* 11 ", capsys.readouterr().out)
    assert main(["report", "one two"]) == 0
    assert re.search(r"labels answered\W+11\W", capsys.readouterr().out)


def test_name_with_spaces_is_quoted_in_next_commands(capsys):
    arguments = ["collect", "-p", "synth", "-l", "4", "-e", "ShortReacher-v1", "-c", "1"]
    assert main([*arguments, "-n", "my labels", "--ppo.num-envs", "8"]) == 0
    printed = capsys.readouterr().out
    assert "rl-teacher fit 'my labels' -n NEW, or rl-teacher export 'my labels'" in printed
    # It takes no step of training.
    assert "steps" not in printed
    with open_store() as store:
        status = store.experiments.get("my labels").status
    assert status is not None
    assert status["num_steps"] == 0


@pytest.mark.parametrize(
    "command", [["envs"], ["check"], ["teach", "-p", "rl", "-n", "x", "-e"]], ids=" ".join
)
def test_environment_without_similar_names_is_refused_briefly(command, capsys):
    assert main([*command, "qqqqqq"]) == 2
    assert capsys.readouterr().err == (
        "error: There is no environment called 'qqqqqq'. `rl-teacher envs` lists all of them; ids "
        "of other packages are written module:id.\n"
    )


def test_envs_lists_atari_games_below_table(capsys, monkeypatch):
    monkeypatch.setattr(registry, "list_env_infos", lambda: [registry.get_env_info("Hopper-v1")])
    assert main(["envs"]) == 0
    table, _, games = capsys.readouterr().out.partition("And 104 Atari games")
    assert "Hopper-v1" in table
    assert "Pong" not in table
    assert "MontezumaRevenge" in games
    assert main(["envs", "pong"]) == 0
    printed = capsys.readouterr().out
    assert "PongNoFrameskip-v4" in printed
    assert "ALE/Pong-v5" in printed
    assert "Breakout" not in printed


@pytest.mark.slow
def test_teach_prints_no_library_warnings(tmp_path):
    done = run(
        "teach", "-p", "synth", "-l", "8", "-e", "ShortHopper-v1", "-n", "quiet", *TINY_FIT,
        HOME=str(tmp_path), RL_TEACHER_HOME=str(tmp_path / "home"),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "arning" not in done.stdout


def test_failing_teacher_is_named_and_run_is_marked_failed(write_module, capsys):
    write_module(
        "own",
        "calls = 0\n"
        "def teacher(left, right):\n"
        "    global calls\n"
        "    calls += 1\n"
        "    if calls > 10: raise RuntimeError('I am tired')\n"
        "    return left.true_return - right.true_return\n",
    )
    arguments = ["teach", "-p", "synth", "-l", "40", "-L", "8", "-e", "ShortReacher-v1"]
    arguments += ["-n", "tired", "--teacher", "own:teacher", *TINY_FIT]
    assert main(arguments) == 2
    printed = capsys.readouterr().err
    assert "own:teacher raised RuntimeError: I am tired" in printed
    assert "Traceback" not in printed
    assert main(arguments) == 2
    assert Experiment.find("tired").summary().phase == "failed"


def test_custom_environment_is_taught_by_module_and_id(write_module):
    write_module("own", documented_environment())
    arguments = ["teach", "-p", "synth", "-l", "12", "-L", "8", "-e", "own:Point-v0"]
    assert main([*arguments, "-n", "point", "-c", "0.5", *TINY_FIT]) == 0
    assert Experiment.find("point").config["env_id"] == "own:Point-v0"


def documented_environment():
    """Return the source of the environment in docs/own-code.md."""
    page = (Path(__file__).parents[1] / "docs" / "own-code.md").read_text()
    return next(each for each in re.findall(r"```python\n(.*?)```", page, re.S) if "Point" in each)


def test_read_only_home_exits_with_code_2_and_its_path(tmp_path, monkeypatch, capsys, as_nobody):
    arguments = ["teach", "-p", "rl", "-e", "ShortReacher-v1", "-n", "x", *TINY]
    assert main(arguments) == 0
    home = Path(tmp_path / "locked")
    home.mkdir(mode=0o500)
    monkeypatch.setenv("RL_TEACHER_HOME", str(home))
    as_nobody()
    assert main(arguments) == 2
    assert "locked" in capsys.readouterr().err
