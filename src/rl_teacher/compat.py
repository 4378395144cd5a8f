"""Classes of earlier systems by their old names and arguments."""

import warnings
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, SupportsFloat

import gymnasium as gym

from rl_teacher.common.errors import BadConfig
from rl_teacher.common.paths import user_path
from rl_teacher.config.experiment import PredictorConfig
from rl_teacher.datasets import Dataset, load
from rl_teacher.wrappers.single import PreferenceWrapper

PREFS_FILE = "prefs.zip"
PREDICTOR_FOLDER = "reward_predictor_checkpoints"

WITHOUT_EFFECT = {
    "mp_context": "spawn",
    "n_initial_training_steps": 50,
    "reward_predictor_ckpt_interval": 10,
    "reward_predictor_refresh_interval": 10,
    "validation_interval": 10,
    "reward_database_refresh_interval": 1,
    "max_pref_interface_segs": 25,
    "zoom_ratio": 4,
    "channels": 3,
    "env_wrapper_log_level": None,
    "reward_predictor_log_level": None,
    "pref_interface_log_level": None,
}
"""Arguments of drlhp that are accepted without effect, with their defaults."""


class HumanPreferencesEnvWrapper(PreferenceWrapper):
    """The environment wrapper of drlhp, as a `PreferenceWrapper` with drlhp's arguments.

    The interface is Gymnasium's: `reset` returns observation and info, `step` five values. The true
    reward is returned until the first fit. docs/coming-from.md lists the differences.
    """

    def __init__(  # noqa: PLR0913 - as in drlhp
        self,
        env: gym.Env,
        reward_predictor_network: Callable[..., Any] | None = None,
        train_reward: bool = True,
        collect_prefs: bool = True,
        segment_length: int = 40,
        prefs_dir: str | Path | None = None,
        log_dir: str | Path = "drlhp_logs",
        max_prefs_in_db: int = 10_000,
        obs_transform_func: Callable[[Any], Any] | None = None,
        n_initial_prefs: int = 40,
        pretrained_reward_predictor_dir: str | Path | None = None,
        synthetic_prefs: bool = True,
        synthetic_preferences: bool | None = None,
        **others: Any,
    ) -> None:
        """Wrap an environment.

        Args:
            env: see `PreferenceWrapper`.
            reward_predictor_network: must be None, since networks are not TensorFlow functions.
            train_reward: whether the predictor is fitted.
            collect_prefs: whether a teacher is asked.
            segment_length: steps of a segment.
            prefs_dir: `log_dir` of an earlier wrapper, or a label data set.
            log_dir: folder that `save_prefs` and `save_reward_predictor` write to.
            max_prefs_in_db: number of newest labels that the predictor is fitted to.
            obs_transform_func: function of an observation, whose result the predictor receives.
            n_initial_prefs: labels before the first fit.
            pretrained_reward_predictor_dir: folder of a saved predictor.
            synthetic_prefs: whether the synthetic teacher answers; otherwise people do.
            synthetic_preferences: the same, as drlhp's README spells it.
            others: arguments of `WITHOUT_EFFECT`; a value other than the default warns.

        Raises:
            TypeError: drlhp had no such argument.
            BadConfig: a network was given, there is neither a predictor nor anything to fit, or
                there are no preferences to fit it to.
        """
        given = {name: value for name, value in locals().items() if name not in ("self", "env")}
        del given["others"], given["__class__"]
        gym.utils.RecordConstructorArgs.__init__(self, _disable_deepcopy=True, **given, **others)
        check_others(others)
        if reward_predictor_network is not None:
            raise BadConfig(
                "reward_predictor_network was given, and a TensorFlow function cannot be used. "
                "Leave it out, or use PreferenceWrapper with "
                "reward=PredictorConfig(hidden=..., image_encoder=...)."
            )
        self._log_dir = user_path(log_dir)
        self._collects_prefs = collect_prefs
        self.last_true_reward: float | None = None
        learns = train_reward or collect_prefs
        settings: dict[str, Any] = {"observation_transform": obs_transform_func}
        if pretrained_reward_predictor_dir is not None:
            folder = user_path(pretrained_reward_predictor_dir)
            settings["predictor_path"] = folder
        elif not learns:
            raise BadConfig(
                "collect_prefs=False and train_reward=False need a predictor, and none was given. "
                "Give its folder as pretrained_reward_predictor_dir."
            )
        elif train_reward:
            settings["reward"] = PredictorConfig(label_buffer=max_prefs_in_db)
        if learns:
            settings["segment_length"] = segment_length
        self._read_prefs: Dataset | None = None
        if prefs_dir is not None:
            self._read_prefs = settings["labels"] = load(labels_in(user_path(prefs_dir)))
        if collect_prefs:
            if synthetic_preferences is not None:
                synthetic_prefs = synthetic_preferences
            settings["teacher"] = "oracle" if synthetic_prefs else "human"
            num_read = 0 if self._read_prefs is None else len(self._read_prefs.training)
            if num_read < n_initial_prefs:
                settings["pretrain_labels"] = n_initial_prefs - num_read
            settings["collect_only"] = not train_reward
        elif learns and prefs_dir is None:
            raise BadConfig(
                "collect_prefs=False and train_reward=True fit a predictor to saved "
                "preferences, and none were given. Give their folder as prefs_dir."
            )
        super().__init__(env, **settings)

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """Step the environment; see `PreferenceWrapper.step`."""
        observation, reward, terminated, truncated, info = super().step(action)
        self.last_true_reward = info["true_reward"]
        if not self.using_reward_from_predictor:
            reward = info["true_reward"]
        return observation, reward, terminated, truncated, info

    @property
    def using_reward_from_predictor(self) -> bool:
        """True if the next step returns the predicted reward."""
        return self.using_predicted_reward

    @property
    def pref_db_size(self) -> SimpleNamespace:
        """Number of labels, as its attribute `value`."""
        return SimpleNamespace(value=self.session.num_labels)

    def save_prefs(self) -> None:
        """Save all labels below `log_dir`, which a later wrapper reads as `prefs_dir`.

        Those that were read from `prefs_dir` are among them.

        Raises:
            BadInput: there are no labels, or they cannot be merged with those of `prefs_dir`.
        """
        file = self._log_dir / PREFS_FILE
        read, learning = self._read_prefs, self.session.learning
        if read is None or learning is None:
            self.save_labels(file)
        elif learning.learner.read_answers():
            Dataset.merged([read, learning.labels()]).save(file)
        else:
            read.save(file)

    def save_reward_predictor(self) -> None:
        """Save the predictor in the folder `reward_predictor_checkpoints` of `log_dir`."""
        self.save_predictor(self._log_dir / PREDICTOR_FOLDER)

    def close(self) -> None:
        """Save labels and predictor below `log_dir`, and close the environment."""
        learning = self.session.learning
        try:
            if not self.session.is_closed and learning is not None:
                # Preferences that were only read are on disk.
                if self._collects_prefs and self.session.num_labels:
                    self.save_prefs()
                if learning.has_predictor:
                    self.save_reward_predictor()
        finally:
            super().close()


def check_others(others: dict[str, Any]) -> None:
    """Warn about arguments that have no effect.

    Raises:
        TypeError: drlhp had no such argument.
    """
    for name, value in others.items():
        if name not in WITHOUT_EFFECT:
            raise TypeError(f"HumanPreferencesEnvWrapper has no argument {name!r}")
        if value != WITHOUT_EFFECT[name]:
            warnings.warn(f"{name}={value!r} has no effect in rl-teacher.", stacklevel=3)


def labels_in(folder: Path) -> Path:
    """Return the label data set in the `log_dir` of an earlier wrapper, or the given path.

    Raises:
        BadConfig: the folder has the pickled preferences of drlhp.
    """
    if (folder / "train.pkl.gz").exists():
        raise BadConfig(
            f"{folder} has train.pkl.gz of drlhp, a pickle that could run any code when it is "
            "loaded. Collect the preferences again, or write them as a label data set "
            "(docs/datasets.md)."
        )
    saved = folder / PREFS_FILE
    return saved if saved.is_file() else folder
