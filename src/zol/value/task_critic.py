r"""The value of latents by a critic of the task: one action value Q(s, a, z) for all candidates at once.

F predicts where every policy goes and is asked about a reward afterwards. A critic that knows the reward has
one number to learn instead of d, and learns it for the K latents in question:

    L = E_{β, k}[ (Q(s, a, z_k) − (1 − γ) r − γ' Q̄(s', π_{z_k}(s'), z_k))² ],        k uniform in 1 … K

P members of other first weights share the batches; Q̄ is a slow copy. As in fitted Q evaluation, which trains
networks for each latent alone (zol.value.fqe), the networks find the features, and for every latent the last
layer is then iterated in closed form. What it says of a latent is pessimistic where members disagree,

    J(z) = mean_P J_P(z) − κ std_P J_P(z),        J_P(z) = E_0[Q_P(s0, π_z(s0), z)]

With no hidden layers and one-hot states and actions members agree, and J is exact. Because candidates share a
network, an estimate depends somewhat on its company: candidates are comparable among themselves.
"""

from dataclasses import replace

import torch
from pydantic import Field
from torch import Tensor

from zol.common.progress import Ticker
from zol.value.base import Estimator, ValueEstimate, ValueProblem, over_members_and_starts
from zol.value.fqe import Batch, FQESettings, fit, last_layer_values
from zol.value.networks import Networks
from zol.value.pairs import Inputs, own_scale
from zol.value.steps import Steps, latent_chunks

ACTOR_WIDTH = 512  # numbers that an actor holds for every row, about


class TaskCriticSettings(FQESettings):
    """Of the shared networks."""

    members: int = Field(default=3, ge=2)
    """networks of other first weights, whose disagreement is the doubt"""
    steps: int = Field(default=400, ge=1)
    """gradient steps, for all latents together"""
    pessimism: float = Field(default=1.0, ge=0)
    """κ, in standard deviations between members"""


def by_task_critic(
    problem: ValueProblem, z: Tensor, settings: TaskCriticSettings | None = None
) -> ValueEstimate:
    """What latents ``[K, d]`` earn by one critic of all of them."""
    settings = settings or TaskCriticSettings()
    steps = _all_steps(problem, z)
    inputs, scale = Inputs(steps, settings), own_scale(steps.rewards)
    rewards = steps.rewards / scale.unsqueeze(-1)
    generator = torch.Generator().manual_seed(int(torch.randint(2**62, (), generator=problem.random())))

    def given(obs: Tensor, action: Tensor, latent: Tensor) -> Tensor:
        """Q's inputs (s, a, z), ``[n, X + d]``."""
        return torch.cat([inputs(obs, action), latent.expand(len(action), -1).to(action)], dim=-1)

    def draw() -> Batch:
        rows = torch.randint(len(steps.obs), (min(settings.batch, len(steps.obs)),), generator=generator)
        which = torch.randint(len(z), rows.shape, generator=generator)
        here = given(steps.obs[rows], steps.action[rows], z[which])
        following = given(steps.next_obs[rows], steps.next_action[which, rows], z[which])
        return here, following, rewards[:, rows].mT, steps.discount[rows]

    width = given(steps.obs[:1], steps.action[:1], z[0]).shape[-1]
    net = Networks(width, len(rewards), 1, settings, generator).to(steps.obs.dtype)
    fit(net, draw, rewards, steps.gamma, settings, problem.progress, f"task critic of {len(z)} latents")
    bar, found = Ticker(problem.progress, "task critic, last layers", len(z)), []
    for k, latent in enumerate(z):
        of_latent = (
            given(steps.obs, steps.action, latent),
            given(steps.next_obs, steps.next_action[k], latent),
            given(steps.starts, steps.start_action[k], latent),
        )
        found.append(
            last_layer_values(net, of_latent, rewards, steps.discount, steps.gamma, settings.horizons)
        )
        bar.advance()
    bar.finish()
    estimate = over_members_and_starts(torch.stack(found) * scale.unsqueeze(-1))  # [K, P, T, S]
    return replace(estimate, mean=estimate.mean - settings.pessimism * estimate.diagnostics["doubt"])


def _all_steps(problem: ValueProblem, z: Tensor) -> Steps:
    """The transitions under all latents; actors see no more of them at once than fit into memory."""
    samples = 0 if problem.transitions is None else len(problem.transitions.obs)
    parts = [Steps.of(problem, part) for part in latent_chunks(samples, ACTOR_WIDTH, z)]
    return replace(
        parts[0],
        next_action=torch.cat([part.next_action for part in parts]),
        start_action=torch.cat([part.start_action for part in parts]),
    )


ESTIMATOR = Estimator(
    by_task_critic,
    formula="Q(s0, π_z(s0), z), one critic of the task for all latents, lowered by its doubt",
    interval="start states and ensemble members",
    cost="three small networks for all latents, trained for 400 steps, and K systems of their last layers",
    needs_transitions=True,
    settings=TaskCriticSettings(),
    shared=True,
)
