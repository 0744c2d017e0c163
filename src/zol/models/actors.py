r"""How actors are trained: what they do in training, and the loss that moves them.

A learner asks its strategy for actions and for the actor's step; which one it has follows from the network.
With Q(s, a) = F(s, a, z)ᵀz of each ensemble member, agg the mean over members (less their disagreement, with
``actor_pessimism``), α = ``bc`` and κ = ``climb``,

    plain    a = clip(π_z(s) + clip(σ ε, ± c), ±1),   ε ~ N(0, I), the gradient passing through the clipping
             L = − mean agg Q(s, a)                                             without behaviour cloning, or
             L = − κ mean agg Q(s, a) / mean |Q(s, a)|  +  α mean (a − a_data)²   with it (Fujimoto & Gu 2021)

    flow     a = π_z(s, ε),  ε ~ N(0, I): one step from noise to an action (Park et al. 2025)
             L = − κ mean agg Q(s, a) / mean |Q(s, a)|  +  α mean (a − β(s, ε))²
               + mean (v(s, x_t, t) − (a_data − x_0))²,
             x_t = (1 − t) x_0 + t a_data,   x_0 ~ N(0, I),   t ~ U[0, 1]

where v is a vector field that learns the data's behaviour, and β(s, ε) is where K Euler steps along it carry
the same noise. The divisor mean |Q| is a constant, means are over rows and columns, and β gets no gradient.
Both networks read observations, never an encoding. At test time a flow acts at ε = 0, or is sampled.
"""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from zol.common import parallel
from zol.common.errors import CheckpointError, DataError
from zol.models.architecture import NetworkConfig
from zol.models.flow import follow
from zol.models.losses import pessimistic
from zol.models.optimisation import frozen

if TYPE_CHECKING:
    from zol.models.learner import NetworkLearner, View

OPTIMISERS = ("actor_optimiser", "flow_optimiser")  # which a strategy steps itself


def actor_of(learner: "NetworkLearner") -> "PlainActor":
    """The strategy that trains the actor of a learner's network."""
    return FlowActor(learner) if learner.model.config.noisy_actor else PlainActor(learner)


def require_trainable(network: NetworkConfig) -> None:
    """Refuse an actor that no strategy can train, saying why."""
    if not network.noisy_actor:
        return
    if network.vector_field is None:
        raise CheckpointError(
            f"the actor of this {network.source} model is a flow with a noise input, and the checkpoint "
            "lacks the vector field that it was distilled from: choose one that has it, or with a plain actor"
        )
    if network.actor_reads_left:
        raise CheckpointError(
            f"the flow of this {network.source} model reads encoded observations, but its vector field was "
            "trained on the observations themselves: choose a checkpoint whose actor reads observations"
        )


class PlainActor:
    """One action for a state and a latent, with noise around it while it is trained."""

    def __init__(self, learner: "NetworkLearner") -> None:
        self.learner, self.model, self.config = learner, learner.model, learner.config
        self.optimiser = learner.add_optimiser(
            "actor_optimiser", [self.model.actor], self.config.actor_learning_rate
        )

    def action(self, seen: Tensor, z: Tensor, generator: torch.Generator) -> Tensor:
        """a ~ π_z(s) as in training, where the actor sees ``seen``."""
        return self.learner.explore(self.learner.run(self.model.actor, seen, z), generator)

    def update(
        self, view: "View", z: Tensor, generator: torch.Generator, data: Tensor | None
    ) -> dict[str, Tensor]:
        """One step of the actor; ``data`` ``[N, A]`` are the actions that the data took."""
        action = self.action(self.learner.actor_input(view), z, generator)
        terms: dict[str, Tensor] = {}
        if self.config.bc > 0:
            cloning = parallel.mean((action - self.required(data)).square())
            loss = self.climb(view, z, action) + self.config.bc * cloning
            terms = {"cloning": cloning.detach()}
        else:
            loss = -parallel.mean(pessimistic(self.values(view, z, action), self.config.actor_pessimism))
        loss.backward()
        self.optimiser.step_and_clear()
        return {"actor": loss.detach()} | terms

    def climb(self, view: "View", z: Tensor, action: Tensor) -> Tensor:
        """− κ mean agg Q / mean |Q|, which is 0 without looking at F where κ is 0."""
        if self.config.climb == 0:
            return action.new_zeros(())
        Q = self.values(view, z, action)
        return -self.config.climb * parallel.mean(pessimistic(Q, self.config.actor_pessimism)) / _size(Q)

    def values(self, view: "View", z: Tensor, action: Tensor) -> Tensor:
        """Q(s, a) of every member, ``[P, N]``, with gradients for the action only."""
        with torch.no_grad():
            seen = self.learner.forward_input(view)
        with frozen(self.model.forward_map):  # none for F's weights
            return (self.learner.F(self.model.forward_map, seen, z, action) * z).sum(-1)

    def required(self, data: Tensor | None) -> Tensor:
        """The data's actions, which behaviour cloning cannot do without."""
        if data is None:
            raise DataError(
                f"behaviour cloning (bc={self.config.bc}) needs the actions of the batch, and "
                f"{type(self.learner).__name__} gives none to update_actor: pass batch.action"
            )
        return data


class FlowActor(PlainActor):
    """One step from noise to an action, held to the data by a flow that learns their actions."""

    def __init__(self, learner: "NetworkLearner") -> None:
        super().__init__(learner)
        self.field = self.model.vector_field
        self.field_optimiser = learner.add_optimiser(
            "flow_optimiser", [self.field], self.config.flow_learning_rate
        )

    def noise(self, z: Tensor, generator: torch.Generator) -> Tensor:
        """ε for every row, ``[N, A]``."""
        return self.learner.normal(z.new_empty(len(z), self.model.action_dim), generator)

    def action(self, seen: Tensor, z: Tensor, generator: torch.Generator) -> Tensor:
        """π_z(s, ε) with fresh noise."""
        return self.learner.run(self.model.actor, seen, z, self.noise(z, generator))

    def update(
        self, view: "View", z: Tensor, generator: torch.Generator, data: Tensor | None
    ) -> dict[str, Tensor]:
        """One step of the actor and of the vector field."""
        c, learner, data = self.config, self.learner, self.required(data)
        seen = learner.actor_input(view)
        start, t = self.noise(z, generator), learner.uniform(z, generator)
        velocity = learner.run(self.field, seen, (1 - t) * start + t * data, t)
        matching = parallel.mean((velocity - (data - start)).square())

        noise = self.noise(z, generator)
        action = learner.run(self.model.actor, seen, z, noise)
        with torch.no_grad():
            behaviour = follow(lambda x, t: learner.run(self.field, seen, x, t), noise, c.flow_steps)
        cloning = parallel.mean((action - behaviour).square())
        loss = self.climb(view, z, action) + c.bc * cloning + matching
        loss.backward()
        self.optimiser.step_and_clear()
        self.field_optimiser.step_and_clear()
        return {"actor": loss.detach(), "cloning": cloning.detach(), "flow": matching.detach()}


def _size(Q: Tensor) -> Tensor:
    """mean |Q| over members and rows, a constant; without it α would depend on the scale of rewards."""
    return parallel.mean(Q.detach().abs()).clamp_min(1e-12)
