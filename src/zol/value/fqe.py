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
from collections.abc import Callable

import torch
from pydantic import Field
from rich.progress import Progress
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
    tasks = len(pairs.rewards)
    net = Networks(pairs.here.shape[-1], tasks, len(z), settings, generator).to(pairs.here.dtype)

    def draw() -> Batch:
        rows = pairs.draw(settings.batch, generator)
        return pairs.here[rows], pairs.after(rows), pairs.rewards[:, rows].mT, pairs.discount[rows]

    what = f"fqe, latents: {pairs.problems}"
    fit(net, draw, pairs.rewards, pairs.gamma, settings, problem.progress, what)
    inputs = (pairs.here, pairs.after(), pairs.starts())
    values = last_layer_values(net, inputs, pairs.rewards, pairs.discount, pairs.gamma, settings.horizons)
    values = values.reshape(pairs.problems, pairs.members, *values.shape[1:])
    return values * pairs.scale.unsqueeze(-1)


Batch = tuple[Tensor, Tensor, Tensor, Tensor]
"""(s, a) ``[n, X]``, (s', π_z(s')) ``[…, n, X]``, rewards ``[n, T]`` and γ' ``[n]`` of some transitions"""


def fit(
    net: Networks,
    draw: Callable[[], Batch],
    rewards: Tensor,
    gamma: float,
    settings: FQESettings,
    progress: Progress | None,
    what: str,
) -> None:
    """TD with a slow copy for targets, for values in units of reward per step; none without hidden layers."""
    with torch.no_grad():  # values begin with the one of the mean reward
        net.last.bias.add_(rewards.mean(-1))
    if not settings.layers:
        return
    slow = copy.deepcopy(net).requires_grad_(False)
    optimiser = torch.optim.Adam(net.parameters(), lr=settings.learning_rate)
    for _ in schedule([optimiser], settings, progress, what):
        here, following, reward, discount = draw()
        with torch.no_grad():
            target = (1.0 - gamma) * reward + discount.unsqueeze(-1) * slow(following)  # […, n, T]
        with torch.enable_grad():
            loss = (net(here) - target).square().mean(1).sum()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        with torch.no_grad():
            for old, new in zip(slow.parameters(), net.parameters(), strict=True):
                old.lerp_(new, settings.target_rate)


@torch.no_grad()
def last_layer_values(
    net: Networks,
    inputs: tuple[Tensor, Tensor, Tensor],
    rewards: Tensor,
    discount: Tensor,
    gamma: float,
    horizons: float,
) -> Tensor:
    """(1 − γ) Q of the start states ``[…, T, S]`` after the last layer's iteration in closed form.

    ``inputs`` are (s, a), (s', π_z(s')) and (s0, π_z(s0)) of the networks.
    """
    here, following, start = (net.features(x) for x in inputs)
    equations = FlowEquations.of(here, following, start, discount, gamma, folds=1)
    own = net(inputs[0]).double()  # […, N, T]
    first = equations.phi.mT @ own / own.shape[-2]  # the trained values in the orthonormal basis
    rounds = round(horizons / (1.0 - gamma))
    found = equations.iterate((1.0 - gamma) * rewards.mT, first, rounds)
    return (equations.start @ found).mT.to(rewards.dtype)


ESTIMATOR = Estimator(
    by_fqe,
    formula="(1−γ) Q(s0, π_z(s0)), Q fitted to the data",
    interval="start states and ensemble members",
    cost="two small networks per latent, trained for 200 steps",
    needs_transitions=True,
    settings=FQESettings(),
)
