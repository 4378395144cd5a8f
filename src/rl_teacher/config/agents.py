"""Settings of every agent; the command line has a section for each.

A setting has the same name, meaning and bounds in all sections. What several agents share is
inherited; an agent repeats a field to give it another default. Constants of an algorithm that no
experiment has varied are class variables.
"""

from typing import Annotated, ClassVar

from pydantic import Field
from pydantic.dataclasses import dataclass

from rl_teacher.config.fields import STRICT, Count, Fraction, Natural, Positive
from rl_teacher.nn.encoders import AgentEncoder

Coefficient = Annotated[float, Field(ge=0, le=100)]
Hidden = Annotated[tuple[Count, ...], Field(min_length=1)]


@dataclass(frozen=True, config=STRICT)
class OnPolicySettings:
    """Settings that all on-policy agents share."""

    num_envs: Count = 32
    """number of parallel environments"""
    rollout_steps: Count = 64
    """steps per environment in one rollout"""
    gamma: Fraction = 0.99
    """discount factor"""
    hidden: Hidden = (64, 64)
    """hidden layer sizes of the policy and of the value function; a CNN has none"""
    observation_clip: ClassVar[float] = 10.0
    """largest absolute value of a normalised observation"""


@dataclass(frozen=True, config=STRICT)
class ActorCriticSettings(OnPolicySettings):
    """Settings of agents that follow the gradient of one loss."""

    final_learning_rate: Coefficient | None = None
    """learning rate at the last step, to which it changes linearly; by default that of the first
    step"""
    entropy_coef: Coefficient = 0.0
    """entropy coefficient of the loss"""
    max_grad_norm: ClassVar[float] = 0.5
    """maximum norm of the gradient"""


@dataclass(frozen=True, config=STRICT)
class PPOConfig(ActorCriticSettings):
    """Settings of PPO (Schulman et al. 2017)."""

    image_encoder: AgentEncoder = "bands"
    """image encoder: an MLP on responses of fixed random filters (bands), a small CNN on
    standardised pixels, or the CNN of Mnih et al. 2015 (paper)"""
    minibatch_size: Count = 64
    """samples per gradient step"""
    num_epochs: Count = 10
    """passes over each rollout"""
    learning_rate: Positive = 3e-4
    """learning rate of Adam at the first step"""
    gae_lambda: Fraction = 0.98
    """lambda of generalised advantage estimation (GAE)"""
    clip_range: Positive = 0.2
    """clip range of the probability ratio"""


@dataclass(frozen=True, config=STRICT)
class TRPOConfig(OnPolicySettings):
    """Settings of TRPO (Schulman et al. 2015)."""

    target_kl: Positive = 0.01
    """largest mean KL divergence of an update, in nats"""
    cg_steps: ClassVar[int] = 15
    """maximum number of conjugate gradient steps"""
    cg_damping: ClassVar[float] = 0.1
    """damping added to the diagonal of the Fisher matrix"""
    line_search_steps: ClassVar[int] = 10
    """maximum number of line search steps"""
    line_search_shrinkage: ClassVar[float] = 0.8
    """factor between the step sizes of the line search"""
    minibatch_size: ClassVar[int] = 128
    """samples per gradient step of the value function"""
    num_epochs: ClassVar[int] = 10
    """passes of the value function over each rollout"""
    learning_rate: Positive = 1e-3
    """learning rate of the value function's Adam"""
    gae_lambda: Fraction = 0.98
    """lambda of generalised advantage estimation (GAE)"""


@dataclass(frozen=True, config=STRICT)
class RMSPropSettings(ActorCriticSettings):
    """Settings of A2C and GA3C, after OpenAI Baselines."""

    rollout_steps: Count = 5
    learning_rate: Positive = 7e-4
    """learning rate of RMSProp at the first step"""
    rms_alpha: ClassVar[float] = 0.99
    """decay rate of RMSProp's mean square"""
    rms_epsilon: ClassVar[float] = 1e-5
    """epsilon of RMSProp"""


@dataclass(frozen=True, config=STRICT)
class A2CConfig(RMSPropSettings):
    """Settings of A2C (Mnih et al. 2016, synchronous)."""

    num_envs: Count = 16
    image_encoder: AgentEncoder = "bands"
    """image encoder: an MLP on responses of fixed random filters (bands), a small CNN on
    standardised pixels, or the CNN of Mnih et al. 2015 (paper)"""
    gae_lambda: Fraction = 1.0
    """lambda of generalised advantage estimation (GAE); 1 is plain A2C"""


@dataclass(frozen=True, config=STRICT)
class GA3CConfig(RMSPropSettings):
    """Settings of GA3C (Babaeizadeh et al. 2017), with V-trace (Espeholt et al. 2018)."""

    num_envs: Count = 64
    image_encoder: ClassVar[AgentEncoder] = "bands"
    batch_envs: ClassVar[int] = 16
    """minimum number of environments whose rollouts form one gradient step"""
    rho_bar: ClassVar[float] = 1.0
    """clipping threshold of V-trace's importance weights (rho bar)"""
    c_bar: ClassVar[float] = 1.0
    """clipping threshold of V-trace's trace coefficients (c bar)"""


@dataclass(frozen=True, config=STRICT)
class SACConfig:
    """Settings of SAC (Haarnoja et al. 2018) with PEBBLE's additions (Lee et al. 2021)."""

    num_envs: Count = 8
    """number of parallel environments"""
    rollout_steps: Count = 8
    """steps per environment between two updates"""
    learning_starts: Natural = 1000
    """environment steps with random actions before the first update"""
    buffer_steps: Count = 300_000
    """capacity of the replay buffer, in environment steps"""
    minibatch_size: Count = 128
    """samples per gradient step"""
    updates_per_step: Positive = 1.0
    """gradient steps per environment step"""
    learning_rate: Positive = 3e-4
    """learning rate of Adam, for actor, critics and temperature"""
    gamma: Fraction = 0.99
    """discount factor"""
    tau: ClassVar[float] = 0.005
    """coefficient of the target networks' soft update (tau)"""
    initial_temperature: Positive = 1.0
    """initial entropy temperature; it adapts to a target entropy of -1 nat per action dimension"""
    hidden: Hidden = (128, 128)
    """hidden layer sizes of the actor and of both critics"""
    observation_clip: ClassVar[float] = 10.0
    """largest absolute value of a normalised observation"""
    no_relabel: bool = False
    """do not relabel the replay buffer after each fit of the reward predictor"""
    no_explore: bool = False
    """act at random before the first labels, without PEBBLE's unsupervised exploration"""
    compared_states: ClassVar[int] = 512
    """states of the replay buffer in which nearest neighbours are searched for the exploration
    reward"""


@dataclass(frozen=True, config=STRICT)
class OtherAgentConfig:
    """Settings of an agent from another library, or of a custom agent."""

    num_envs: Count = 8
    """number of parallel environments"""
    arguments: tuple[str, ...] = ()
    """NAME=VALUE pairs for the agent's constructor; Python literals or words"""


AgentConfig = PPOConfig | TRPOConfig | A2CConfig | GA3CConfig | SACConfig | OtherAgentConfig
