r"""The value of a latent by fitted Q evaluation: an action value learned for this very policy, without F.

    Q ← argmin_Q E_β[ (Q(s, a) − r − γ'Q_before(s', π_z(s')))² ],        J = (1 − γ) E_0[Q(s0, π_z(s0))]

Small networks, one set for every latent and one output for every task, follow a slow copy of themselves. They
learn which functions matter; what is left after some hundred steps is mostly that values travel through the
discount slowly. So the last layer is then iterated in closed form on the features that were learned, as often
as the discount asks for (zol.value.linear). With no hidden layers and one-hot states and actions nothing else
is learned, and the result is exact.

It shares nothing with F but the policy, so that it can disagree with the model.
"""

import copy

import torch
from pydantic import Field
from torch import Tensor

from zol.value.base import Estimator, ValueEstimate, ValueProblem, over_members_and_starts
from zol.value.linear import FlowEquations
from zol.value.networks import Networks, NetworkSettings, schedule
from zol.value.pairs import Pairs
from zol.value.steps import Steps, latent_chunks


class FQESettings(NetworkSettings):
    """Of the networks, and of the iteration at their end."""

    target_rate: float = Field(default=0.02, gt=0, le=1)
    """share by which the slow copy follows in every step"""
    horizons: float = Field(default=5.0, gt=0)
    """iterations of the last layer, in units of 1/(1 − γ)"""


def by_fqe(problem: ValueProblem, z: Tensor, settings: FQESettings | None = None) -> ValueEstimate:
    """Fitted Q evaluation of latents ``[K, d]``."""
    settings = settings or FQESettings()
    seed = int(torch.randint(2**62, (), generator=problem.random()))
    samples = 0 if problem.transitions is None else len(problem.transitions.obs)
    parts = [_evaluate(problem, part, settings, seed) for part in latent_chunks(samples, settings.hidden, z)]
    return over_members_and_starts(torch.cat(parts))  # [K, P, T, S]


def _evaluate(problem: ValueProblem, z: Tensor, settings: FQESettings, seed: int) -> Tensor:
    """(1 − γ) Q of the start states ``[K, P, T, S]``."""
    generator = torch.Generator().manual_seed(seed)
    pairs = Pairs.of(Steps.of(problem, z), settings)
    tasks, unit = len(pairs.rewards), 1.0 - pairs.gamma
    net = Networks(pairs.here.shape[-1], tasks, len(z), settings, generator).to(pairs.here.dtype)
    with torch.no_grad():  # values begin with the one of the mean reward, in units of reward per step
        net.last.bias.add_(pairs.rewards.mean(-1))
    if settings.layers:
        with torch.enable_grad():
            _train(net, pairs, settings, generator, problem)
    with torch.no_grad():
        values = _iterate_last_layer(net, pairs, round(settings.horizons / unit))
    return values * pairs.scale.unsqueeze(-1)


def _train(
    net: Networks,
    pairs: Pairs,
    settings: FQESettings,
    generator: torch.Generator,
    problem: ValueProblem,
) -> None:
    """TD with a slow copy for targets."""
    slow = copy.deepcopy(net).requires_grad_(False)
    optimiser = torch.optim.Adam(net.parameters(), lr=settings.learning_rate)
    unit = 1.0 - pairs.gamma
    for _ in schedule([optimiser], settings, problem.progress, f"fqe, latents: {pairs.problems}"):
        rows = pairs.draw(settings.batch, generator)
        reward, discount = pairs.rewards[:, rows].mT, pairs.discount[rows].unsqueeze(-1)
        with torch.no_grad():
            target = unit * reward + discount * slow(pairs.after(rows))  # [K·P, n, T]
        loss = (net(pairs.here[rows]) - target).square().mean(1).sum()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        with torch.no_grad():
            for old, new in zip(slow.parameters(), net.parameters(), strict=True):
                old.lerp_(new, settings.target_rate)


def _iterate_last_layer(net: Networks, pairs: Pairs, rounds: int) -> Tensor:
    """(1 − γ) Q of the start states ``[K, P, T, S]`` after the closed-form iteration."""
    here, following, start = (net.features(x) for x in (pairs.here, pairs.after(), pairs.starts()))
    equations = FlowEquations.of(here, following, start, pairs.discount, pairs.gamma, folds=1)
    own = net(pairs.here).double()  # [K·P, N, T]
    first = equations.phi.mT @ own / own.shape[-2]  # the trained values in the orthonormal basis
    target = (1.0 - pairs.gamma) * pairs.rewards.mT  # [N, T]
    values = (equations.start @ equations.iterate(target, first, rounds)).mT  # [K·P, T, S]
    return values.reshape(pairs.problems, pairs.members, *values.shape[1:]).to(pairs.here.dtype)


ESTIMATOR = Estimator(
    by_fqe,
    formula="(1−γ) Q(s0, π_z(s0)), Q fitted to the data",
    interval="start states and ensemble members",
    cost="two small networks per latent, trained for 200 steps",
    needs_transitions=True,
    settings=FQESettings(),
)
