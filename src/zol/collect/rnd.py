"""Random network distillation: an agent that is paid for what it has not seen yet.

A predictor g learns the output of a fixed random network f; its error is large where data are rare:

    e(s') = mean_k (g_k(s') − f_k(s'))²,      reward r = e(s') / running std of e

The rewards feed a deterministic actor with two critics (TD3). They are computed when a transition is
sampled, because novelty fades:

    Q target   r + γ · min_i Q̄_i(s', clip(π(s') + ε)),     actor   max_π Q_1(s, π(s)) every other update

where nothing follows a terminal s' (its target is r alone). With n-step targets, which tell an action sooner
of novelty further on, r is Σ_{k<n} γ^k r_k along the data and γ becomes γⁿ; near the end of an episode n is
what is left of it.

Differences from ExORL's agent: TD3 instead of DDPG (the actor moves every other update, which also costs
less), networks 256 wide and batches of 256, for CPUs; one-step targets unless ``n_step`` is 3; novelty of
the state reached instead of the state left; the agent sees normalised observations too.
"""

import copy
from collections.abc import Mapping

import torch
from pydantic import Field
from torch import Tensor, nn

from zol.common.config import Config
from zol.data import Batch
from zol.models.layers import Normaliser, initialise, layer_norm, linear
from zol.models.optimisation import Adam, frozen, move_towards, named_state, restore_state


class RNDConfig(Config):
    """Settings of the agent that seeks novelty."""

    hidden: int = Field(default=256, ge=1)
    """width of every network"""
    features: int = Field(default=64, ge=1)
    """outputs of the random network"""
    batch_size: int = Field(default=256, ge=1)
    """transitions per update"""
    steps_per_update: int = Field(default=20, ge=1)
    """environment steps between updates"""
    learning_rate: float = Field(default=3e-4, gt=0)
    """learning rate of actor and critics"""
    novelty_learning_rate: float = Field(default=1e-4, gt=0)
    """learning rate of the predictor; slower, so that novelty does not fade before it is visited"""
    discount: float = Field(default=0.99, ge=0, lt=1)
    """discount of the novelty return"""
    n_step: int = Field(default=1, ge=1)
    """n: steps of novelty before the bootstrap"""
    target_rate: float = Field(default=0.01, gt=0, le=1)
    """how fast target critics follow"""
    noise: float = Field(default=0.2, ge=0)
    """standard deviation of exploration noise"""
    correlation: float = Field(default=0.0, ge=0, lt=1)
    """correlation of that noise between steps: slow bodies shake white noise off, and need 0.98 or so"""
    noise_clip: float = Field(default=0.3, ge=0)
    """bound of the noise inside updates"""
    random_steps: int = Field(default=10_000, ge=0)
    """environment steps with uniform actions at the beginning"""


class RNDAgent:
    """Actor, critics and novelty networks, with an update and a state that resumes exactly."""

    def __init__(self, obs_dim: int, action_dim: int, config: RNDConfig, generator: torch.Generator) -> None:
        c = self.config = config
        self.actor = _mlp(obs_dim, c.hidden, action_dim)
        self.critic = _mlp(obs_dim + action_dim, c.hidden, 1, members=2)
        self.predictor = _novelty_net(obs_dim, c)
        self.random_net = _novelty_net(obs_dim, c)
        for net in (self.actor, self.critic, self.predictor, self.random_net):
            initialise(net, generator)
        self.target_critic = copy.deepcopy(self.critic).requires_grad_(False)
        self.random_net.requires_grad_(False)
        self.normaliser, self.error_scale = Normaliser(obs_dim), Normaliser(1)
        self.actor_optimiser = Adam(self.actor.parameters(), c.learning_rate)
        self.critic_optimiser = Adam(self.critic.parameters(), c.learning_rate)
        self.predictor_optimiser = Adam(self.predictor.parameters(), c.novelty_learning_rate)
        self.begin()

    def begin(self) -> None:
        """Forget the noise of past episodes."""
        self._noise = torch.zeros(())

    @torch.no_grad()
    def act(self, obs: Tensor, generator: torch.Generator, noise: Tensor | None = None) -> Tensor:
        """Actions for exploring, ``[n, A]``: the actor's with (perhaps correlated) noise.

        ε_t = ρ ε_{t−1} + √(1 − ρ²) ξ_t keeps its variance, whatever ρ. ``noise`` ``[n, 1]`` are standard
        deviations instead of the one of the settings.
        """
        action = self._policy(self._normalise(obs))
        rho = self.config.correlation
        fresh = torch.randn(action.shape, generator=generator)
        self._noise = rho * self._noise + (1 - rho**2) ** 0.5 * fresh
        return (action + (self.config.noise if noise is None else noise) * self._noise).clamp(-1, 1)

    def update(self, batch: Batch, generator: torch.Generator) -> Tensor:
        """Move every network by one step on N transitions, with the n steps from each on if n is above 1.

        Gives the mean novelty, before scaling. Predictor and scale see the first state of a path alone.
        """
        with torch.no_grad():
            self.normaliser.update(batch.next_obs)
            s, s2 = self._normalise(batch.obs), self._normalise(batch.next_obs)
            later, last, length = self._ahead(batch, s2)
        error = self._error(s2)
        error.mean().backward()
        self.predictor_optimiser.step_and_clear()
        reward = self._rewards(torch.cat([error.detach().unsqueeze(1), later], dim=1), length)
        gamma = self._discounts(length) * ~batch.terminated
        self._update_critic(s, batch.action, last, reward, gamma, generator)
        if self.normaliser.num_batches_tracked % 2 == 0:
            self._update_actor(s)
            self._move_target()
        return error.detach().mean()

    def _move_target(self) -> None:
        move_towards(self.target_critic, self.critic, self.config.target_rate)

    def _error(self, s: Tensor) -> Tensor:
        """e(s), ``[...]``."""
        return (self.predictor(s) - self.random_net(s)).square().mean(-1)

    def _ahead(self, batch: Batch, s2: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Errors in the states after s' ``[N, n − 1]``, the state that a path ends in, and its length."""
        if batch.path_obs is None or batch.path_length is None:
            return s2.new_zeros(len(s2), 0), s2, torch.ones(len(s2), dtype=torch.int64)
        path = self._normalise(batch.path_obs)
        last = path[torch.arange(len(path)), batch.path_length - 1]
        return self._error(path[:, 1:]), last, batch.path_length

    def _rewards(self, errors: Tensor, length: Tensor) -> Tensor:
        """Σ_{k<m} γ^k r_k, ``[N]``, of errors ``[N, n]`` of which the first m = ``length`` count."""
        self.error_scale.update(errors[:, :1])
        rewards = errors * torch.rsqrt(self.error_scale.running_var + 1e-12)
        steps = torch.arange(rewards.shape[1])
        return (rewards * self._discounts(steps) * (steps < length.unsqueeze(1))).sum(1)

    def _discounts(self, steps: Tensor) -> Tensor:
        """γ to the power of these numbers of steps."""
        powers = torch.tensor([self.config.discount**k for k in range(self.config.n_step + 1)])
        return powers[steps]

    def _update_critic(
        self,
        s: Tensor,
        action: Tensor,
        s2: Tensor,
        reward: Tensor,
        gamma: Tensor,
        generator: torch.Generator,
    ) -> None:
        """One step of the critics; ``gamma`` ``[N]`` is that of what follows s2, 0 where nothing does."""
        with torch.no_grad():
            noise = self.config.noise * torch.randn(action.shape, generator=generator)
            clip = self.config.noise_clip
            next_action = (self._policy(s2) + noise.clamp(-clip, clip)).clamp(-1, 1)
            next_value = self.target_critic(torch.cat([s2, next_action], -1)).amin(0).squeeze(-1)
            target = reward + gamma * next_value  # [N]
        values = self.critic(torch.cat([s, action], -1)).squeeze(-1)  # [2, N]
        (values - target).square().mean(-1).sum().backward()
        self.critic_optimiser.step_and_clear()

    def _update_actor(self, s: Tensor) -> None:
        with frozen(self.critic):
            value = self.critic(torch.cat([s, self._policy(s)], -1))[0]
        (-value.mean()).backward()
        self.actor_optimiser.step_and_clear()

    def _policy(self, s: Tensor) -> Tensor:
        return torch.tanh(self.actor(s))

    def _normalise(self, obs: Tensor) -> Tensor:
        # Bounded, or one far outlier would look novel forever.
        normalised: Tensor = self.normaliser(obs).clamp(-5, 5)
        return normalised

    def state_dict(self) -> dict[str, Tensor]:
        """Everything an exact resume needs, as flat named tensors."""
        return named_state(self._parts())

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """The inverse of :meth:`state_dict`."""
        restore_state(self._parts(), state)

    def _parts(self) -> dict[str, nn.Module | Adam]:
        return {
            "actor": self.actor,
            "critic": self.critic,
            "target_critic": self.target_critic,
            "predictor": self.predictor,
            "random_net": self.random_net,
            "normaliser": self.normaliser,
            "error_scale": self.error_scale,
            "actor_optimiser": self.actor_optimiser,
            "critic_optimiser": self.critic_optimiser,
            "predictor_optimiser": self.predictor_optimiser,
        }


def _mlp(n_in: int, hidden: int, n_out: int, members: int = 1) -> nn.Sequential:
    return nn.Sequential(
        linear(n_in, hidden, members),
        layer_norm(hidden, members),
        nn.Tanh(),
        linear(hidden, hidden, members),
        nn.ReLU(),
        linear(hidden, n_out, members),
    )


def _novelty_net(obs_dim: int, c: RNDConfig) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(obs_dim, c.hidden),
        nn.ReLU(),
        nn.Linear(c.hidden, c.hidden),
        nn.ReLU(),
        nn.Linear(c.hidden, c.features),
    )
