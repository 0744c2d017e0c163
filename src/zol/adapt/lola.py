r"""LoLA: lookahead latent adaptation in the environment (Sikchi et al. 2025, arXiv 2504.07896).

A Gaussian over latents is moved towards higher returns. Per update, k latents are drawn and each is run for
n steps from a start state; what follows is judged by the frozen model (zol.adapt.critic):

    ẑ_i ~ N(μ, σ²I),       the policy acts with Π(ẑ_i)
    R_i = Σ_{t<n} γ^t r_t + γ^n F(s_n, π(s_n), Π(ẑ_i))ᵀ v
    g   = 1/k Σ_i (R_i − mean_{j≠i} R_j) ∇_μ log N(ẑ_i; μ, σ²),       ∇_μ log N = (ẑ_i − μ)/σ²
    μ   ← Π( Adam(μ, g) )

The samples are constants of the gradient, and the density is that of the drawn ẑ_i, not of its projection:
with a sample that moves along with μ, ẑ_i − μ = σε would not depend on μ, and nothing would be learned.
"""

from collections.abc import Mapping, Sequence

import torch
from pydantic import Field
from rich.progress import Progress
from torch import Tensor

from zol.adapt.critic import FrozenCritic
from zol.adapt.environments import TaskEnvironments, online_result
from zol.adapt.problem import Method, Problem
from zol.adapt.result import Adapted
from zol.common.config import Config, ConfigError
from zol.common.progress import Ticker
from zol.common.threads import one_torch_thread
from zol.evidence import Evidence
from zol.fields import States
from zol.models.base import Model
from zol.models.losses import pessimistic
from zol.tasks import Task
from zol.worlds.base import World


class LoLAConfig(Config):
    """Settings of LoLA; the defaults are those in circulation (docs/adaptation.md)."""

    environment_steps: int = Field(default=20_000, gt=0)
    """budget per task; whole updates of samples · horizon steps are taken from it"""
    horizon: int = Field(default=100, gt=0)
    """n, steps of each lookahead"""
    samples: int = Field(default=10, ge=2)
    """k, latents drawn per update"""
    sigma: float = Field(default=0.1, gt=0)
    """σ, standard deviation of each coordinate (latents have coordinates of size one)"""
    learning_rate: float = Field(default=0.05, gt=0)
    """of Adam on μ"""
    shared_start: bool = True
    """the k samples of an update start from one state, so that they differ by their latents alone"""
    pessimism: float = Field(default=0.0, ge=0)
    """of the terminal value; 0 is the mean of the ensemble, 0.5 the minimum of two members"""


def lola_search(
    model: Model,
    evidence: Evidence,
    start: Tensor,
    world: World,
    tasks: Sequence[Task] | Mapping[str, Task],
    config: LoLAConfig | None = None,
    *,
    generator: torch.Generator,
    progress: Progress | None = None,
) -> Adapted:
    """Adapt latents ``[T, d]`` by acting in the world, all tasks and samples in one batch."""
    c = config or LoLAConfig()
    updates, rows = c.environment_steps // (c.samples * c.horizon), len(evidence.tasks)
    if updates == 0:
        raise ConfigError(
            f"one update of LoLA takes samples · horizon = {c.samples * c.horizon} environment steps, the "
            f"budget is {c.environment_steps}: raise environment_steps or lower the other two"
        )
    critic = FrozenCritic.of(model, evidence)
    environments = TaskEnvironments(world, tasks, evidence, generator)
    mean = model.project(start).detach().clone().requires_grad_(True)
    optimiser = torch.optim.Adam([mean], lr=c.learning_rate, maximize=True)
    own_starts = 1 if c.shared_start else c.samples
    starts = environments.draw(updates * rows * own_starts).reshape(updates, rows, own_starts, -1)
    bar = Ticker(progress, "LoLA", updates)
    earned = []
    with one_torch_thread(world.threads is not None), torch.no_grad():
        for begin in starts.expand(-1, -1, c.samples, -1):
            noise = torch.randn(rows, c.samples, start.shape[-1], generator=generator, dtype=start.dtype)
            sample = mean.unsqueeze(1) + c.sigma * noise  # no gradient flows here: ẑ is a constant
            returns = lookahead_returns(critic, environments, begin, model.project(sample), c)
            mean.grad = leave_one_out_gradient(sample, mean, c.sigma, returns.to(start.dtype))
            optimiser.step()
            mean.copy_(model.project(mean))
            earned.append(returns.mean(-1))
            bar.advance()
    trace = {"lookahead": torch.stack(earned)}
    return online_result("lola", model, evidence, start, mean.detach(), c, environments.steps, trace)


def lookahead_returns(
    critic: FrozenCritic, environments: TaskEnvironments, begin: Tensor, z: Tensor, config: LoLAConfig
) -> Tensor:
    """R ``[T, k]`` of latents ``[T, k, d]`` from simulator states ``[T, k, P]``."""
    model, gamma, n = critic.model, critic.model.discount, config.horizon
    obs, reached = environments.observed(environments.begin(begin), z), list[States]()
    for _ in range(n):
        reached.append(environments.step(model.act(obs, z)))
        obs = environments.observed(reached[-1], z)
    r = environments.rewards(reached)  # [n, T, k]
    terminal = pessimistic(critic.value(obs, z, model.act(obs, z), r[-1]), config.pessimism)
    discounts = gamma ** torch.arange(n, dtype=r.dtype)
    return torch.einsum("n,ntk->tk", discounts, r) + gamma**n * terminal


def leave_one_out_gradient(sample: Tensor, mean: Tensor, sigma: float, returns: Tensor) -> Tensor:
    """g ``[T, d]`` from samples ẑ ``[T, k, d]`` (before projection) and their returns ``[T, k]``."""
    k = returns.shape[-1]
    advantage = (returns - returns.mean(-1, keepdim=True)) * (k / (k - 1))  # = R_i − mean_{j≠i} R_j
    score = (sample - mean.unsqueeze(-2)) / sigma**2
    return (advantage.unsqueeze(-1) * score).mean(-2)


def practise(problem: Problem, config: LoLAConfig) -> Adapted:
    """LoLA from plain FB's latents."""
    return lola_search(
        problem.model,
        problem.evidence,
        problem.start,
        problem.environment(),
        problem.tasks,
        config,
        generator=problem.generator("lola"),
        progress=problem.progress,
    )


LOLA = Method(practise, LoLAConfig(), uses="environment")
