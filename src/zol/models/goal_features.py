r"""Features that come from values of goals: HILP (Park et al. 2024) and ICVF (Ghosh et al. 2023).

Both value reaching a goal g, a later state of the episode or a state of another one, at −1 per step.

**HILP**: the value is a distance, V_i(s, g) = −‖φ_i(s) − φ_i(g)‖ for two networks φ_1 (the features) and φ_2,

    Σ_{i=1,2} mean |τ − 1[A < 0]| (r + γ m V̄_i(s', g) − V_i(s, g))²,
    r = 1[s = g] − 1,  m = 1[s ≠ g],  A = r + γ m min_i V̄_i(s', g) − mean_i V̄_i(s, g)

**ICVF**: the value of reaching g while acting as somebody would who wants another goal, the intention w,

    V_p(s, g, w) = ⟨ ((x(s) ∘ T_p(φ(w))) A_p) B_p ∘ T_p(φ(w)),  φ(g) ⟩            members p = 1 … P
    mean_{p, i} |τ − 1[A < 0]| (r_g + γ_i m_g V̄_p(s', g, w) − V_p(s, g, w))²
    r_g = 1[s' = g] − 1,  m_g = 1[s' ≠ g],  A = r_w + γ_i m_w min_p V̄_p(s', w, w) − mean_p V_p(s, w, w)

with φ the features, x an encoder of the state, T a network and A, B matrices that only this loss has, and
γ_i = γ (1 − terminated_i). A goal is its intention with probability ``same_goals``. The td_jepa repository
takes m_w in place of m_g, which stops the bootstrap at the wrong goal, and shares x with F.
"""

from copy import deepcopy

import torch
from torch import Tensor, nn

from zol.common import parallel
from zol.data import Batch, BatchSpec
from zol.models.feature_base import FeatureLoss, FeatureTerms
from zol.models.layers import Norm, first_layer, initialise, linear
from zol.models.learner import NetworkLearner, View

NEAREST = 1e-6  # of a squared distance, under its root


class HILP(FeatureLoss):
    """Distances between features are numbers of steps."""

    def __init__(self, learner: NetworkLearner, generator: torch.Generator) -> None:
        super().__init__(learner, generator)
        model, c = learner.model, self.config
        self.second = deepcopy(model.backward_map)
        initialise(self.second, generator)
        learner.add_helper("second_features", self.second)
        learner.add_optimiser("second_optimiser", [self.second], c.backward_learning_rate)
        self.networks = (model.backward_map, self.second)
        self.slow = tuple(
            learner.add_target(name, network, c.feature_target_rate)
            for name, network in zip(("target_features", "target_second"), self.networks, strict=True)
        )

    @property
    def batches(self) -> BatchSpec:
        """Transitions with a later state of the same episode, which is the goal."""
        return BatchSpec(future=self.config.future_discount)

    def __call__(self, batch: Batch, here: View, there: View, generator: torch.Generator) -> FeatureTerms:
        """The expectile loss of V_i(s, g) = −‖φ_i(s) − φ_i(g)‖ for both networks."""
        c, later = self.config, self.later(batch)
        random, rows = self.random_goals(batch, generator)
        goal = torch.where(random.unsqueeze(-1), parallel.gather(batch.next_obs)[rows], later)
        reached = (batch.obs == goal).all(-1)
        s, after, g = (self.seen(view) for view in (here, there, self.learner.view(goal)))
        with torch.no_grad():
            even = c.expectile == 0.5  # both signs of an advantage weigh the same: nobody asks for V̄(s, g)
            states = [after] if even else [after, s]
            slow = torch.stack([self.slow_values(n, states, g, random, rows) for n in self.slow])  # [2, S, N]
            reached = reached.to(slow.dtype)
            target = reached - 1 + c.feature_discount * (1 - reached) * slow[:, 0]  # [2, N]
            weight = slow.new_tensor(c.expectile)
            if not even:
                advantage = target.amin(0) - slow[:, 1].mean(0)
                weight = (c.expectile - (advantage < 0).to(slow.dtype)).abs()
            next_phi = self.phi(there)
        value = torch.stack(
            [_value(self.learner.run(n, s), self.learner.run(n, g)) for n in self.networks]
        )  # [2, N]
        loss = 2 * parallel.mean(weight * (target - value).square())  # a mean over rows, a sum over networks
        return FeatureTerms(next_phi, loss, {"distance": -parallel.mean(value.detach())})

    def slow_values(
        self, network: nn.Module, states: list[Tensor], goal: Tensor, random: Tensor, rows: Tensor
    ) -> Tensor:
        """V̄(s', g) by a slow network, and V̄ of further states, ``[S, N]``; the first states are all s'.

        A random goal is the s' of another row, whose features are there already: only later states remain.
        """
        found = [self.learner.run(network, state) for state in states]
        at_goal = parallel.gather(found[0])[rows]
        later = (~random).nonzero().squeeze(-1)
        at_goal[later] = self.learner.run(network, goal[later])
        return torch.stack([_value(phi, at_goal) for phi in found])


def _value(phi: Tensor, goal: Tensor) -> Tensor:
    """−√max(‖φ(s) − φ(g)‖², 10⁻⁶), ``[N]``."""
    return -(phi - goal).square().sum(-1).clamp_min(NEAREST).sqrt()


class Intention(nn.Module):
    """What ICVF multiplies an encoded state with, for the features of an intention."""

    def __init__(self, dim: int, *, hidden: int, layers: int, members: int) -> None:
        super().__init__()
        parts: list[nn.Module] = [
            *first_layer(dim, hidden, members),
            linear(hidden, hidden, members),
            nn.ReLU(inplace=True),
        ]
        for _ in range(layers):
            parts += [linear(hidden, hidden, members), nn.ReLU(inplace=True)]
        self.T = nn.Sequential(*parts, linear(hidden, dim, members), Norm())
        self.A, self.B = (nn.Parameter(torch.empty(members, dim, dim)) for _ in range(2))

    def initialise(self, generator: torch.Generator) -> None:
        """Draw all weights anew; matrices are orthogonal, as everywhere."""
        initialise(self, generator)
        for member in (*self.A, *self.B):
            nn.init.orthogonal_(member, generator=generator)

    def forward(self, state: Tensor, intention: Tensor) -> Tensor:
        """``[N, d], [N, d] → [P, N, d]``."""
        gate: Tensor = self.T(intention)
        return ((state * gate) @ self.A @ self.B) * gate


class ICVF(FeatureLoss):
    """Values of goals, under intentions."""

    def __init__(self, learner: NetworkLearner, generator: torch.Generator) -> None:
        super().__init__(learner, generator)
        model, c = learner.model, self.config
        self.encoder = deepcopy(model.backward_map)
        self.intention = Intention(model.z_dim, hidden=c.hidden, layers=c.hidden_layers, members=c.members)
        initialise(self.encoder, generator)
        self.intention.initialise(generator)
        learner.add_helper("state_encoder", self.encoder)
        learner.add_helper("intention", self.intention)
        learner.add_optimiser("intention_optimiser", [self.encoder, self.intention], c.backward_learning_rate)
        self.networks = (self.encoder, self.intention, model.backward_map)
        self.slow = tuple(
            learner.add_target(f"target_{name}", network, c.feature_target_rate)
            for name, network in zip(("encoder", "intention", "features"), self.networks, strict=True)
        )

    @property
    def batches(self) -> BatchSpec:
        """Transitions with a later state of the same episode, which is the goal or the intention."""
        return BatchSpec(future=self.config.future_discount)

    def goals(self, batch: Batch, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Goals and intentions: later states of this row and of another one, some replaced at random."""
        n, device = parallel.size() * len(batch), generator.device
        later = self.later(batch)
        rows = parallel.share(torch.randperm(n, generator=generator, device=device)).to(batch.obs.device)
        goal = self.mixed_goals(batch, later, generator)
        intention = self.mixed_goals(batch, parallel.gather(later)[rows], generator)
        chance = parallel.share(torch.rand(n, 1, generator=generator, device=device)).to(batch.obs.device)
        return torch.where(chance < self.config.same_goals, intention, goal), intention

    def __call__(self, batch: Batch, here: View, there: View, generator: torch.Generator) -> FeatureTerms:
        """The expectile loss at the top of this file."""
        c = self.config
        goal, intention = self.goals(batch, generator)
        g, w = self.learner.view(goal), self.learner.view(intention)
        with torch.no_grad():
            arrived, meant = ((batch.next_obs == x).all(-1) for x in (goal, intention))
            after, wanted = self.values(there, g, w, self.slow)  # V̄(s', g, w) and V̄(s', w, w), [P, N]
            gamma = c.feature_discount * (~batch.terminated).to(after.dtype)
            target = _backup(arrived, gamma, after)
            next_phi = self.phi(there)
        value, own = self.values(here, g, w, self.networks)
        advantage = _backup(meant, gamma, wanted.amin(0)) - own.detach().mean(0)
        weight = (c.intention_expectile - (advantage < 0).to(after.dtype)).abs()
        loss = parallel.mean(weight * (target - value).square())
        return FeatureTerms(next_phi, loss, {"value": parallel.mean(value.detach())})

    def values(
        self, state: View, goal: View, intention: View, networks: tuple[nn.Module, ...]
    ) -> tuple[Tensor, Tensor]:
        """V(s, g, w) and V(s, w, w) of every member, ``[P, N]``."""
        encoder, intended, features = networks
        x, w = self.phi(state, encoder), self.phi(intention, features)
        left = self.learner.run(intended, x, w)
        return (left * self.phi(goal, features)).sum(-1), (left * w).sum(-1)


def _backup(reached: Tensor, gamma: Tensor, after: Tensor) -> Tensor:
    """−1 until the goal is reached, then nothing: 1[reached] − 1 + γ 1[not reached] V̄."""
    there = reached.to(after.dtype)
    return there - 1 + gamma * (1 - there) * after
