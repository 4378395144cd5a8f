import subprocess
import sys
from dataclasses import replace

import pytest

from rl_teacher.cli import main
from rl_teacher.common.errors import BadInput
from rl_teacher.config.experiment import TeachConfig
from rl_teacher.runs.folder import Experiment, open_store
from rl_teacher.runs.management import delete_experiment
from rl_teacher.runs.status import Phase
from rl_teacher.sweep import RunFailed, execute, read_sweep, sweep, table_rows
from tests.runs.statuses import report
from tests.test_teach import wait_for_checkpoint

SMALL = "-p rl -e ShortReacher-v1 -t 512 --ppo.num-envs 4 --ppo.rollout-steps 32"
FLAGS = f"{SMALL} --no-tensorboard"


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("RL_TEACHER_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def write(tmp_path):
    def write(text, name="gae.toml"):
        (tmp_path / name).write_text(text)
        return tmp_path / name

    return write


def runs_of(path):
    return {
        run: TeachConfig("ShortReacher-v1", "rl", name=run.name) for run in read_sweep(path).runs()
    }


def test_runs_are_all_combinations_of_each_seed(write):
    path = write(
        'flags = "-p rl -t 9"\nseeds = [3, 1]\n[grid]\n"-e" = ["A/B-v1", "C-v1"]\n"-l" = [5]'
    )
    runs = list(read_sweep(path).runs())
    assert [(run.name, run.settings, run.seed) for run in runs] == [
        ("gae_e=AB-v1_l=5_seed=3", "e=A/B-v1, l=5", 3),
        ("gae_e=C-v1_l=5_seed=3", "e=C-v1, l=5", 3),
        ("gae_e=AB-v1_l=5_seed=1", "e=A/B-v1, l=5", 1),
        ("gae_e=C-v1_l=5_seed=1", "e=C-v1, l=5", 1),
    ]
    own = ("-s", "3", "-n", "gae_e=AB-v1_l=5_seed=3")
    assert runs[0].flags == ("-p", "rl", "-t", "9", "-e", "A/B-v1", "-l", "5", *own)


def test_value_of_several_words_is_a_list(write):
    values = '"--reward.hidden" = [[64], [128, 64]]\n"-l" = [5]'
    path = write(f'flags = "-p synth"\nseeds = [3]\n[grid]\n{values}')
    runs = list(read_sweep(path).runs())
    assert [run.settings for run in runs] == ["reward.hidden=64, l=5", "reward.hidden=128 64, l=5"]
    assert runs[1].name == "gae_reward.hidden=128_64_l=5_seed=3"
    assert runs[1].flags[2:7] == ("--reward.hidden", "128", "64", "-l", "5")


def test_runs_with_many_settings_have_different_valid_names(write):
    words = ", ".join(f'"module:{"x" * 90}{end}"' for end in "ab")
    path = write(f'flags = "-p rl"\nseeds = [3, 1]\n[grid]\n"-e" = [{words}]')
    names = [run.name for run in read_sweep(path).runs()]
    assert len(set(names)) == 4
    assert [name.partition("_seed=")[2] for name in names] == ["3", "3", "1", "1"]


@pytest.mark.parametrize(
    "text",
    [
        "flags = ",
        "seeds = [1]",
        'flags = "-p rl"',
        'flags = "-p rl"\nseeds = []',
        'flags = "-p rl"\nseeds = [true]',
        'flags = "-p rl"\nseeds = [1]\nsteps = 3',
        'flags = "-p rl"\nseeds = [1]\n[grid]\nl = [3]',
        'flags = "-p rl"\nseeds = [1]\n[grid]\n"-l" = 3',
        'flags = "-p rl --teacher \'a"\nseeds = [1]',
        'flags = "-p rl --seed=3"\nseeds = [1]',
        'flags = "-p rl"\nseeds = [1]\n[grid]\n"-n" = ["a"]',
    ],
)
def test_bad_file_is_refused(write, text):
    with pytest.raises(BadInput, match=r"gae\.toml"):
        read_sweep(write(text))


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("-p rl -e ShortReacher-v1 --ppo.gamma 2", "gamma"),
        ("-p rl -e NoSuchThing-v1", "NoSuchThing-v1"),
        ("-p human -l 5 -e ShortReacher-v1", "Omit -p human"),
        ("-p rl -e ShortReacher-v1 --force-new", "With --force-new, a sweep"),
    ],
)
def test_every_run_is_checked_before_the_first(write, home, capsys, flags, message):
    path = write(f'flags = "{flags}"\nseeds = [1]')
    assert main(["sweep", str(path)]) == 2
    assert message in capsys.readouterr().err
    assert not home.exists()


def test_sweep_trains_each_run_once_and_compares_them(write, capsys):
    path = write(f'flags = "{FLAGS}"\nseeds = [0, 1]\n[grid]\n"--ppo.gamma" = [0.9]')
    assert main(["sweep", str(path), "--parallel", "2"]) == 0
    first = capsys.readouterr().out
    assert "2 runs, 2 of them to do" in first
    names = [f"gae_ppo.gamma=0.9_seed={seed}" for seed in (0, 1)]
    assert [Experiment.find(name).summary().phase for name in names] == [Phase.FINISHED] * 2
    returns = [Experiment.find(name).metrics()[-1]["true_return"] for name in names]
    low, high = sorted(returns)
    assert f"{(low + high) / 2:.1f} ({low:.1f} to {high:.1f})" in first

    assert main(["sweep", str(path)]) == 0
    assert "2 runs, 0 of them to do" in capsys.readouterr().out


def test_failed_run_is_reported_and_tried_again(write, home):
    # A file in place of the experiment's folder.
    (home / "experiments").mkdir(parents=True)
    (home / "experiments" / "gae_seed=0").write_text("")
    lines = []
    runs = runs_of(write(f'flags = "{FLAGS}"\nseeds = [0]'))
    with pytest.raises(RunFailed, match="1 of 1 run failed: gae_seed=0"):
        sweep(runs, 1, lines.append, execute)
    assert "gae_seed=0 failed" in lines[-1]


@pytest.fixture
def run(write):
    [run] = read_sweep(write(f'flags = "{FLAGS}"\nseeds = [0]')).runs()
    return run


def test_run_whose_process_is_killed_names_the_signal(run):
    with pytest.raises(RunFailed, match="killed by signal 9"):
        execute(run, subprocess.Popen.kill)


@pytest.mark.slow
def test_terminated_sweep_saves_and_ends_its_runs(write):
    flags = "-p rl -e ShortReacher-v1 -t 1e9 --checkpoint-seconds 0.1 --no-tensorboard"
    path = write(f'flags = "{flags}"\nseeds = [0]')
    command = [sys.executable, "-m", "rl_teacher", "sweep", str(path)]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
        wait_for_checkpoint("gae_seed=0")
        process.terminate()
        _, printed = process.communicate(timeout=60)
    assert process.returncode == 130, printed
    assert Experiment.find("gae_seed=0").summary().phase is Phase.STOPPED


def test_table_has_interquartile_means_over_seeds():
    def result(settings, seed, final_return):
        return {
            "settings": settings,
            "seed": seed,
            "final_return": final_return,
            "area": None,
            "labels": 1000,
        }

    results = [result("l=5", seed, 10.0 * seed) for seed in range(4)]
    rows = table_rows([*results, result("l=6", 0, 7.0)])
    # A resample of four has three or four times the lowest value with a probability of 5 %.
    assert rows == [
        ("l=5", "4", "15.0 (0.0 to 30.0)", "-", "1,000"),
        ("l=6", "1", "7.0", "-", "1,000"),
    ]


def test_runs_of_deleted_experiments_or_changed_settings_are_executed_again(write):
    executed = []

    def pretend(run):
        executed.append(run.seed)
        Experiment.open(run.name, runs[run].saved()).close()
        report(run.name, "finished")

    runs = runs_of(write('flags = "-p rl"\nseeds = [0, 1]'))
    for num_executed in (2, 2):
        assert len(sweep(runs, 1, print, pretend)) == 2
        assert len(executed) == num_executed
    with open_store() as store:
        delete_experiment(store, "gae_seed=1")
    sweep(runs, 1, print, pretend)
    assert executed == [0, 1, 1]
    report("gae_seed=0", "stopped")
    sweep(runs, 1, print, pretend)
    assert executed == [0, 1, 1, 0]
    changed = {run: replace(config, seed=9) for run, config in runs.items()}
    sweep(changed, 1, print, lambda run: executed.append(run.seed))
    assert executed == [0, 1, 1, 0, 0, 1]
