r"""What learners of a :class:`~zol.models.network.Network` share.

Everything in the family trains F by temporal differences towards slow targets and an actor that climbs Fᵀz,
for latents drawn from the sphere, from B of random states or from a prior over rewards:

    z ~ uniform on the sphere, or Π(B(s'_k)) for a random row k, with probability ``goal_share``;
        with probability ``prior_share`` Π(E[B r]) of a random reward r instead (zol.models.prior_latents)
    actor:   maximise  mean_i agg_P F(s_i, a_i, z_i)ᵀ z_i,  in the ways of zol.models.actors
    targets: θ̄ ← (1 − τ) θ̄ + τ θ

A learner adds its losses, extra targets and optimisers. A left encoder, where a network has one, belongs to
F: its weights are in F's optimiser, targets see observations through a slow copy, and the actor sees its
output without passing gradients back.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from functools import cache, partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from zol.common import parallel
from zol.common.config import ConfigError
from zol.common.errors import DataError
from zol.data import Batch, BatchSpec
from zol.models import actors
from zol.models.architecture import NetworkConfig
from zol.models.layers import unit
from zol.models.network import Network
from zol.models.optimisation import Adam, move_towards, named_state, restore_state
from zol.models.parts import greedy_values
from zol.models.prior_latents import reward_latents

View = Callable[[tuple[str, ...]], Tensor]
"""What parts of the network see of one batch of observations: fields read → ``[N, width]``."""


class NetworkLearner(ABC):
    """The base of learners: F and its target, the actor, latents, noise, and a state that resumes exactly.

    ``autocast`` is the type that networks compute in (``torch.bfloat16`` on GPUs that are fast at it), while
    weights and losses keep theirs: a Gram loss is a difference of large sums. ``compiled`` fuses each
    network by ``torch.compile``. docs/benchmarks.md says when they pay.
    """

    shown: ClassVar[Mapping[str, str]] = {"loss": "loss"}
    start: str = ""
    """hash of the weights that training began with, if they were those of a checkpoint"""

    def __init__(
        self, model: Network, config: Any, *, autocast: torch.dtype | None = None, compiled: bool = False
    ) -> None:
        self.accept(model.config)
        self.model, self.config, self.autocast = model.requires_grad_(False), config, autocast
        self.n_step: int = config.n_step
        self.progress = 0.0
        self._targets: dict[str, tuple[nn.Module, nn.Module, float]] = {}
        self._helpers: dict[str, nn.Module] = {}
        self._optimisers: dict[str, Adam] = {}
        self._compiled = compiled
        self.target_forward = self.add_target("target_forward", model.forward_map)
        trained = [model.forward_map]
        if model.config.left is not None:
            self.target_left = self.add_target("target_left", model.left)
            trained.append(model.left)  # type: ignore[arg-type]
        self.forward_optimiser = self.add_optimiser("forward_optimiser", trained, config.learning_rate)
        if model.config.actor is not None:
            self.actor = actors.actor_of(self)
            self.actor_optimiser = self.actor.optimiser
        self.averaged = self._averaged_parts()
        for part in self.averaged:
            rate = config.averaging or config.actor_averaging
            self.add_target(f"averaged_{part}", model.get_submodule(part), rate)

    @staticmethod
    @abstractmethod
    def architecture(config: Any) -> NetworkConfig:
        """The network that these settings describe."""

    @classmethod
    def accept(cls, network: NetworkConfig) -> None:
        """Refuse a network that this learner cannot train, saying why."""
        actors.require_trainable(network)

    def _averaged_parts(self) -> tuple[str, ...]:
        """The parts of the network of which an average is tested and saved."""
        c, network = self.config, self.model.config
        if not c.averaging:
            return ("actor",) if c.actor_averaging and network.actor is not None else ()
        if network.successor_features:
            raise ConfigError(
                f"averaging={c.averaging} would ship averaged features with the covariance of the trained "
                f"ones: a {network.source} model averages its actor alone, actor_averaging={c.averaging}"
            )
        return tuple(
            name for name, part in self.model.named_children() if any(True for _ in part.parameters())
        )

    @property
    def checked(self) -> Network:
        """The network, a whole model at any time; with ``averaging`` one of averaged weights."""
        if not self.averaged:
            return self.model
        averaged = deepcopy(self.model)
        for part in self.averaged:
            averaged.get_submodule(part).load_state_dict(self._targets[f"averaged_{part}"][0].state_dict())
        return averaged

    @property
    def settings(self) -> dict[str, Any]:
        """The configuration, and the architecture where it is not the one of that configuration."""
        fields = type(self.config).model_fields
        own = {
            f"model.{name}": value
            for name, value in self.config.model_dump(mode="json").items()
            if name not in self.config.added or value != fields[name].default
        }
        if self.model.config != self.architecture(self.config):
            own["model.network"] = self.model.config.model_dump(mode="json")
        return own | {"model.start": self.start} if self.start else own

    @property
    def facts(self) -> dict[str, Any]:
        """The model's name and its settings."""
        settings = self.config.model_dump(mode="json")
        return {"model": self.architecture(self.config).source, "settings": settings}

    @property
    def batches(self) -> BatchSpec:
        """Single transitions or the stretches of n-step bootstraps, unless a learner wants more."""
        return BatchSpec(stretch=self.n_step, discount=self.config.discount)

    @abstractmethod
    def update(self, batch: Batch, generator: torch.Generator) -> Mapping[str, Tensor]:
        """One step of everything that is trained."""

    def add_target(self, name: str, network: nn.Module, rate: float | None = None) -> nn.Module:
        """A slow copy of a network, stored under this name; it follows at τ unless another rate is given."""
        target = deepcopy(network).requires_grad_(False)
        self._targets[name] = (target, network, self.config.target_rate if rate is None else rate)
        if self._compiled:
            target.compile()
        return target

    def add_optimiser(self, name: str, networks: Iterable[nn.Module], learning_rate: float) -> Adam:
        """An optimiser of some networks, stored under this name."""
        parameters: list[nn.Parameter] = []
        for network in networks:
            parameters += network.requires_grad_(True).parameters()
            if self._compiled:
                network.compile()
        self._optimisers[name] = Adam(parameters, learning_rate)
        return self._optimisers[name]

    def step_all_but_the_actor(self) -> None:
        """Apply the gradients of one loss to everything but the actor, in the same order in every process."""
        for name, optimiser in self._optimisers.items():
            if name not in actors.OPTIMISERS:
                optimiser.step_and_clear()

    def add_helper(self, name: str, network: nn.Module) -> nn.Module:
        """A part that only training needs, stored under this name: it is no part of the model."""
        self._helpers[name] = network.to(next(self.model.parameters()))
        return self._helpers[name]

    @property
    def optimisers(self) -> Mapping[str, Adam]:
        """All optimisers by name."""
        return self._optimisers

    def move_targets(self) -> None:
        """θ̄ ← (1 − τ) θ̄ + τ θ, for every target."""
        for target, network, rate in self._targets.values():
            move_towards(target, network, rate)

    def view(self, obs: Tensor) -> View:
        """What the network's parts see of observations; what several of them read is computed once."""
        return cache(partial(self.model.read, obs))

    def bootstrap(self, batch: Batch, like: Tensor) -> tuple[Tensor, Tensor | None]:
        """γⁿ (1 − terminated) ``[N]``, and how often the state on the way counts (None: once).

        With n steps of data before the bootstrap a target is c f(goal) + γⁿ F̄(s_{t+n}), c = (1 − γⁿ)/(1 − γ),
        where f is what F sums: see zol.data.sampling.
        """
        if batch.length is None:
            return self.config.discount * (~batch.terminated).to(like.dtype), None
        after = self.config.discount ** batch.length.to(like.dtype)
        return after * ~batch.terminated, (1 - after) / (1 - self.config.discount)

    def run(self, network: nn.Module, *inputs: Tensor) -> Tensor:
        """The network's output, computed in the type of ``autocast`` and returned in that of its inputs."""
        like = inputs[0]
        with torch.autocast(like.device.type, self.autocast, enabled=self.autocast is not None):
            out: Tensor = network(*inputs)
        return out.to(like.dtype)

    def F(self, network: nn.Module, seen: Tensor, z: Tensor, action: Tensor) -> Tensor:
        """F(s, a, z) by the forward map or its slow copy, ``[P, N, d]``."""
        return self.run(network, seen, self.model.forward_latent(z), action)

    def forward_input(self, view: View, *, target: bool = False) -> Tensor:
        """What F sees, or with ``target`` what its slow copy sees."""
        c = self.model.config
        if c.left is None:
            return view(c.forward.reads)
        return self.run(self.target_left if target else self.model.left, view(c.left.reads))

    def actor_input(self, view: View, *, target: bool = False) -> Tensor:
        """What the actor sees; no gradient goes back into a left encoder. ``target``: its slow copy."""
        c = self.model.config
        assert c.actor is not None
        if not c.actor_reads_left:
            return view(c.actor.reads)
        with torch.no_grad():
            return self.forward_input(view, target=target)

    def training_latents(
        self, embedded: Tensor, generator: torch.Generator, states: Tensor | None = None
    ) -> Tensor:
        """Uniform on the sphere, or the embedding of a random next state: what π_z is trained for.

        ``states`` ``[N, D]`` are those whose B ``[N, d]`` is ``embedded``. Latents of random rewards, a share
        of ``prior_share``, need them.
        """
        z = mixed_latents(embedded, self.config.goal_share, generator)
        if not self.config.prior_share:
            return z
        return self._with_prior(z, parallel.gather(embedded), states, generator)

    def _with_prior(
        self, z: Tensor, everyone: Tensor, states: Tensor | None, generator: torch.Generator
    ) -> Tensor:
        """Latents ``[N, d]``, a share of them replaced by those of random rewards on the global batch."""
        if states is None:
            raise DataError(
                f"prior_share={self.config.prior_share} draws rewards over the batch's states, and "
                f"{type(self).__name__} gives none: training_latents(B, generator, states)"
            )
        known = reward_latents(everyone, parallel.gather(self._goal_columns(states)), generator)
        share, which = self.uniform(z, generator), self.uniform(z, generator)
        if not len(known):
            return z
        rows = (len(known) * which).long().clamp_max(len(known) - 1).squeeze(-1)
        return torch.where(share < self.config.prior_share, known[rows], z)

    def _goal_columns(self, obs: Tensor) -> Tensor:
        """The columns of observations that B reads, as they are."""
        c = self.model.config
        part = c.backward or c.left
        if part is None or not part.reads:
            return obs
        columns = c.columns()
        return torch.cat([obs[..., columns[name]] for name in part.reads], dim=-1)

    def goal_latents(self, obs: Tensor) -> Tensor:
        """What ``training_latents`` takes of goal states ``[N, D]``, before projection."""
        return self.model.backward(obs)

    @torch.no_grad()
    def practice_latents(self, goals: Tensor, generator: torch.Generator) -> Tensor:
        """Latents ``[N, d]`` to act with, drawn as those of training; goals are these states ``[N, D]``."""
        return self.training_latents(self.goal_latents(goals), generator, goals)

    @staticmethod
    def normal(like: Tensor, generator: torch.Generator) -> Tensor:
        """Standard normal rows for ``like``: our share of those drawn for the batch of all processes."""
        n = parallel.size() * len(like)
        drawn = torch.randn(n, *like.shape[1:], generator=generator, device=generator.device)
        return parallel.share(drawn).to(like)

    @staticmethod
    def uniform(like: Tensor, generator: torch.Generator) -> Tensor:
        """A number in [0, 1) for every row of ``like``, ``[N, 1]``, in the same way."""
        n = parallel.size() * len(like)
        return parallel.share(torch.rand(n, 1, generator=generator, device=generator.device)).to(like)

    def explore(self, mean: Tensor, generator: torch.Generator) -> Tensor:
        """mean + clipped noise, kept inside (−1, 1) while the gradient passes through unchanged."""
        c = self.config
        noise = c.action_std * self.normal(mean, generator)
        action = mean + noise.clamp(-c.action_noise_clip, c.action_noise_clip)
        return action + (action.clamp(-1 + 1e-6, 1 - 1e-6) - action).detach()

    def policy_action(
        self, view: View, z: Tensor, generator: torch.Generator, *, target: bool = False
    ) -> Tensor:
        """a ~ π_z(s) with its training noise; for discrete actions the greedy one-hot choice.

        With ``target``, as in a Bellman target, the actor sees the state through the slow encoder, if any.
        """
        if self.model.config.discrete:
            return self.greedy_action(self.forward_input(view), z)
        return self.actor.action(self.actor_input(view, target=target), z, generator)

    def greedy_action(self, seen: Tensor, z: Tensor) -> Tensor:
        """The one-hot action that F prefers, where F sees ``seen``."""
        actions = self.model.action_dim
        best = greedy_values(partial(self.F, self.model.forward_map), seen, z, actions).argmax(-1)
        return functional.one_hot(best, actions).to(seen.dtype)

    def update_actor(
        self, view: View, z: Tensor, generator: torch.Generator, data: Tensor | None = None
    ) -> dict[str, Tensor]:
        """One step of the actor up Q(s, a) = F(s, a, z)ᵀz; nothing for discrete actions, which are greedy.

        ``data`` are the batch's own actions, which behaviour cloning and flows need (zol.models.actors).
        """
        return {} if self.model.config.discrete else self.actor.update(view, z, generator, data)

    def scale_learning_rates(self, scale: float) -> None:
        """Use this share of the configured learning rates from now on, and of n: its bias goes, too."""
        self.n_step = max(1, round(scale * self.config.n_step))
        for optimiser in self._optimisers.values():
            optimiser.scale_learning_rate(scale)

    @property
    def turning_points(self) -> tuple[float, ...]:
        """Shares of all steps at which training changes; none, unless a learner has some."""
        return ()

    def note_progress(self, share: float) -> None:
        """Which share of all steps has been taken, said before every step."""
        self.progress = share

    def state_dict(self) -> dict[str, Tensor]:
        """Targets and optimiser moments, as flat named tensors."""
        return named_state(self._parts())

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """The inverse of :meth:`state_dict`."""
        restore_state(self._parts(), state)

    def _parts(self) -> dict[str, nn.Module | Adam]:
        targets = {name: target for name, (target, _, _) in self._targets.items()}
        return targets | self._helpers | self._optimisers


def mixed_latents(embedded: Tensor, goal_share: float, generator: torch.Generator) -> Tensor:
    """Latents ``[N, d]``: uniform on the sphere, or of a random row of embedded goals ``[N, d]``."""
    n = parallel.size() * len(embedded)
    uniform = NetworkLearner.normal(embedded, generator)
    rows = parallel.share(torch.randperm(n, generator=generator, device=generator.device))
    goals = parallel.gather(embedded)[rows.to(embedded.device)]
    chosen = torch.rand(n, 1, generator=generator, device=generator.device)
    is_goal = parallel.share(chosen).to(embedded.device) < goal_share
    return unit(torch.where(is_goal, goals, uniform))
