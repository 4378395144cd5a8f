"""The settings of every agent; the command line has a section for each.

Fields of the same name mean the same in all of them, and have the same limits (see config.py).
"""

from dataclasses import dataclass

from rl_teacher.nn.encoders import NetworkSize


@dataclass(frozen=True)
class PPOConfig:
    """Settings of PPO (Schulman et al. 2017)."""

    num_envs: int = 32
    """environments stepped together"""
    rollout_steps: int = 64
    """steps of each environment between two updates"""
    minibatch_size: int = 256
    """samples in one gradient step"""
    num_epochs: int = 10
    """times each sample is used"""
    learning_rate: float = 3e-4
    """of Adam"""
    final_learning_rate: float = 3e-4
    """what the learning rate has become, linearly, at the last step"""
    gamma: float = 0.99
    """gamma: what a reward is worth one step later"""
    gae_lambda: float = 0.98
    """lambda of generalised advantage estimation"""
    clip_range: float = 0.2
    """how far the probability ratio may pay off"""
    entropy_coef: float = 0.0
    """reward for staying random"""
    max_grad_norm: float = 0.5
    """gradients longer than this are shortened"""
    hidden: tuple[int, ...] = (64, 64)
    """units of each layer, in the policy and in the value function"""
    image_encoder: NetworkSize = "small"
    """what sees pictures: a network for CPUs, or the larger one of Mnih et al. 2015"""
    observation_clip: float = 10.0
    """normalised observations are clipped to this"""


@dataclass(frozen=True)
class TRPOConfig:
    """Settings of TRPO (Schulman et al. 2015)."""

    num_envs: int = 32
    """environments stepped together"""
    rollout_steps: int = 64
    """steps of each environment between two updates"""
    target_kl: float = 0.01
    """how far, in nats, one update may take the policy on average"""
    cg_steps: int = 15
    """steps of conjugate gradient, at most"""
    cg_damping: float = 0.1
    """added to the diagonal of the Fisher matrix"""
    line_search_steps: int = 10
    """step lengths that are tried, at most"""
    line_search_shrinkage: float = 0.8
    """each of them over the one before"""
    minibatch_size: int = 128
    """samples in one gradient step of the value function"""
    num_epochs: int = 10
    """times the value function sees each sample"""
    learning_rate: float = 1e-3
    """of the value function's Adam"""
    gamma: float = 0.99
    """gamma: what a reward is worth one step later"""
    gae_lambda: float = 0.98
    """lambda of generalised advantage estimation"""
    hidden: tuple[int, ...] = (64, 64)
    """units of each layer, in the policy and in the value function"""
    observation_clip: float = 10.0
    """normalised observations are clipped to this"""


@dataclass(frozen=True)
class A2CConfig:
    """Settings of A2C (Mnih et al. 2016, in step), after OpenAI baselines."""

    num_envs: int = 16
    """environments stepped together"""
    rollout_steps: int = 5
    """steps of each environment between two updates"""
    learning_rate: float = 7e-4
    """of RMSProp"""
    final_learning_rate: float = 7e-4
    """what the learning rate has become, linearly, at the last step"""
    rms_alpha: float = 0.99
    """of RMSProp's mean square"""
    rms_epsilon: float = 1e-5
    """added to its root"""
    gamma: float = 0.99
    """gamma: what a reward is worth one step later"""
    gae_lambda: float = 1.0
    """lambda of generalised advantage estimation; 1 is A2C's own"""
    entropy_coef: float = 0.0
    """reward for staying random"""
    max_grad_norm: float = 0.5
    """gradients longer than this are shortened"""
    hidden: tuple[int, ...] = (64, 64)
    """units of each layer, in the policy and in the value function"""
    image_encoder: NetworkSize = "small"
    """what sees pictures: a network for CPUs, or the larger one of Mnih et al. 2015"""
    observation_clip: float = 10.0
    """normalised observations are clipped to this"""


@dataclass(frozen=True)
class GA3CConfig:
    """Settings of GA3C (Babaeizadeh et al. 2017), with V-trace (Espeholt et al. 2018)."""

    num_envs: int = 64
    """environments stepped together"""
    rollout_steps: int = 5
    """steps of each environment between two updates"""
    batch_envs: int = 16
    """environments, at least, whose steps of a rollout make one gradient step"""
    learning_rate: float = 7e-4
    """of RMSProp"""
    final_learning_rate: float = 7e-4
    """what the learning rate has become, linearly, at the last step"""
    rms_alpha: float = 0.99
    """of RMSProp's mean square"""
    rms_epsilon: float = 1e-5
    """added to its root"""
    gamma: float = 0.99
    """gamma: what a reward is worth one step later"""
    rho_bar: float = 1.0
    """importance weights of V-trace's errors are cut here"""
    c_bar: float = 1.0
    """and those of its traces here"""
    entropy_coef: float = 0.0
    """reward for staying random"""
    max_grad_norm: float = 0.5
    """gradients longer than this are shortened"""
    hidden: tuple[int, ...] = (64, 64)
    """units of each layer, in the policy and in the value function"""
    image_encoder: NetworkSize = "small"
    """what sees pictures: a network for CPUs, or the larger one of Mnih et al. 2015"""
    observation_clip: float = 10.0
    """normalised observations are clipped to this"""


@dataclass(frozen=True)
class SACConfig:
    """Settings of SAC (Haarnoja et al. 2018), as PEBBLE has it (Lee et al. 2021)."""

    num_envs: int = 8
    """environments stepped together"""
    rollout_steps: int = 8
    """steps of each environment between two updates"""
    learning_starts: int = 1000
    """environment steps at random before anything is learned"""
    buffer_steps: int = 300_000
    """latest environment steps that are remembered"""
    minibatch_size: int = 128
    """samples in one gradient step"""
    updates_per_step: float = 1.0
    """gradient steps for each environment step"""
    policy_delay: int = 1
    """gradient steps of the critics for each of the actor"""
    learning_rate: float = 3e-4
    """of Adam, for actor, critics and temperature"""
    gamma: float = 0.99
    """gamma: what a reward is worth one step later"""
    tau: float = 0.005
    """tau: share of the critics in their targets' every step"""
    initial_temperature: float = 1.0
    """worth of a nat of entropy at first; it adapts until there is -1 nat for each action"""
    hidden: tuple[int, ...] = (128, 128)
    """units of each layer, in the actor and in both critics"""
    observation_clip: float = 10.0
    """normalised observations are clipped to this"""
    no_relabel: bool = False
    """keep the rewards of their time; without it, all that is remembered gets its new ones after
    every fit of the predictor"""
    no_explore: bool = False
    """act at random before the first labels; without it, look for states far from all others"""
    compared_states: int = 512
    """remembered states, drawn at random, to which that distance is measured; 0: all"""


@dataclass(frozen=True)
class OtherAgentConfig:
    """Settings of another library's agent, or of your own."""

    num_envs: int = 8
    """environments stepped together"""
    arguments: tuple[str, ...] = ()
    """NAME=VALUE, for the constructor of the agent: Python literals or words"""


AgentConfig = PPOConfig | TRPOConfig | A2CConfig | GA3CConfig | SACConfig | OtherAgentConfig
OnPolicyConfig = PPOConfig | TRPOConfig | A2CConfig | GA3CConfig
