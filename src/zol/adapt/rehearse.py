r"""Rehearsal: search the latents of a frozen model by playing them in its learned world, offline.

Candidates for every task come from

    prompts           correlation, ridge and weighted, of raw and of centred rewards
    extra candidates  whatever the caller brings (ZOL's result, say)
    goals             Π(B(s)) of states with high rewards
    random latents    Π(ε), latents as in training

All of them are played by every member of the dynamics ensemble (zol.imagination); tasks share candidates,
because one imagined rollout is scored by all tasks. A cross-entropy search on the sphere follows: every round
draws new latents around the best of each task (the *elites*), with shrinking steps. At last the best few of
each task (the *finalists*) are played again from start states that chose none of them. A latent's score is
pessimistic where the ensemble disagrees,

    score(z) = mean_k V_k(z) − κ · std_k V_k(z)                     V_k: mean reward in member k's world

and the winner replaces plain FB's latent only if it earns more by ``margin`` standard errors of the paired
difference, and by ``min_gain`` times the range of the task's rewards: where no candidate comes near a reward
in imagination, differences are negligible, though possibly significant.

How far a task may go depends on how well the learned world predicts its rewards, by their open-loop
correlation on real stretches of experience. From ``min_correlation`` on it has the whole search. A search
finds the errors of a worse judge; a choice among a few does so less, so from ``min_correlation_prompts`` on a
task chooses among prompts and extra candidates. Below, it keeps plain FB's latent, as all tasks do if single
steps are already predicted badly (``max_one_step_error``): rewards of short stretches may correlate in a
world that no policy could be judged in. The result says which (``correlation``, ``one_step_error``).
"""

from collections.abc import Callable, Sequence

import torch
from pydantic import Field
from rich.progress import Progress
from torch import Tensor

from zol import prompt
from zol.adapt.candidates import goal_latents, prompt_latents, random_latents
from zol.adapt.problem import Method, Problem
from zol.adapt.result import Adapted
from zol.adapt.zol import ON_THE_SPHERE
from zol.adapt.zol_auto import zol_candidates
from zol.common.config import Config
from zol.common.errors import DataError
from zol.common.progress import Ticker
from zol.evidence import Evidence
from zol.fields import Layout
from zol.imagination.learned_world import LearnedWorld
from zol.imagination.rollouts import ImaginedRollouts
from zol.models.base import Model, identity
from zol.tasks import Task

PROMPTS = 6  # of every task, plain FB's among them
GOALS_AMONG = 100  # goals are drawn among so many states of the highest rewards


class RehearsalConfig(Config):
    """Settings of the search; one default for all worlds."""

    horizon: int = Field(default=200, ge=1)
    """steps of an imagined rollout"""
    starts: int = Field(default=16, ge=2)
    """start states of the search; as many others judge the finalists"""
    goals: int = Field(default=12, ge=0)
    """goal latents per task"""
    random_latents: int = Field(default=12, ge=0)
    """random latents, shared by all tasks"""
    rounds: int = Field(default=3, ge=0)
    """of the cross-entropy search"""
    population: int = Field(default=16, ge=1)
    """new latents per task and round"""
    elites: int = Field(default=4, ge=1)
    """latents that a round is drawn around"""
    spread: float = Field(default=0.5, gt=0)
    """size of the first round's steps, relative to the length of a latent; halved every round"""
    finalists: int = Field(default=6, ge=1)
    """latents per task that are judged again"""
    members: int = Field(default=0, ge=0)
    """networks of the ensemble that play; 0 are all"""
    pessimism: float = Field(default=1.0, ge=0)
    """κ, in standard deviations between members"""
    margin: float = Field(default=1.0, ge=0)
    """standard errors by which a latent must beat plain FB's"""
    min_gain: float = Field(default=0.005, ge=0)
    """share of the range of the data's rewards by which it must beat it, too"""
    min_correlation: float = Field(default=0.8, ge=-1, le=1)
    """open-loop correlation of rewards from which on a task is searched for"""
    min_correlation_prompts: float = Field(default=0.5, ge=-1, le=1)
    """and from which on it chooses among prompts and extra candidates; below, it keeps plain FB's latent"""
    max_one_step_error: float = Field(default=0.2, ge=0)
    """share of a typical column's variance of changes that one step may miss; above, nothing is changed"""
    noise: float = Field(default=0.0, ge=0)
    """noise on imagined states, in units of the one-step error"""
    bootstrap: bool = False
    """discounted returns that end with the model's own value instead of plain means"""


def rehearsed(
    model: Model,
    learned: LearnedWorld,
    evidence: Evidence,
    tasks: Sequence[Task],
    layout: Layout,
    config: RehearsalConfig | None = None,
    *,
    generator: torch.Generator,
    plain: Tensor | None = None,
    extra_candidates: Callable[[], Tensor] | None = None,
    progress: Progress | None = None,
) -> Adapted:
    """The best latent of every task by rehearsal.

    ``plain`` ``[T, d]`` is what stays unless it is beaten, E[B r] unless given.
    ``extra_candidates`` gives more of them, ``[K, d]``; it is not called when no task may take any of them.
    """
    c = config or RehearsalConfig()
    if tuple(task.name for task in tasks) != evidence.tasks:
        raise DataError(f"the tasks to rehearse must be those of the evidence: {', '.join(evidence.tasks)}")
    rehearsal = _Rehearsal(model, learned, evidence, tasks, layout, c, generator, progress)
    bar = rehearsal.bar
    # [T, d]; candidate t is task t's own fallback, to the last bit that of plain FB (zol.adapt.prompts)
    plain = model.project(evidence.prompt(model) if plain is None else plain)
    pool = _Pool(plain, rehearsal)
    if rehearsal.chooses.any():
        pool.add(rehearsal.prompts(), prompts=True)
        if extra_candidates is not None:
            bar.advance(0, note="a search for more candidates")
            found_elsewhere = extra_candidates()
            bar.expect(len(found_elsewhere) * c.horizon)
            pool.add(found_elsewhere, prompts=True)
    if rehearsal.searches.any():
        pool.add(rehearsal.goals_and_random_latents())
        for k in range(c.rounds):
            pool.add(rehearsal.around(pool.best(c.elites), c.spread * 0.5**k))
    found = rehearsal.decide(plain, pool)
    bar.finish()
    return found


def deviation(values: Tensor, members: int) -> Tensor:
    """Standard deviation over the members' dimension; a single member has none."""
    return values.std(members) if values.shape[members] > 1 else torch.zeros_like(values.mean(members))


class _Pool:
    """Latents ``[K, d]``, plain FB's first, and their scores ``[K, T]`` on the search's start states.

    A latent that a task may not take has the score −∞.
    """

    def __init__(self, plain: Tensor, rehearsal: "_Rehearsal") -> None:
        self.rehearsal, self.z = rehearsal, plain
        self.scores = rehearsal.score(plain)

    def add(self, z: Tensor, *, prompts: bool = False) -> None:
        allowed = self.rehearsal.chooses if prompts else self.rehearsal.searches
        self.z = torch.cat([self.z, z])
        self.scores = torch.cat([self.scores, self.rehearsal.score(z).where(allowed, -torch.inf)])

    def best(self, count: int) -> Tensor:
        """The best latents of every task, ``[T, count, d]``."""
        return self.z[self._top(count).indices.T]

    def allowed(self, count: int) -> Tensor:
        """Which of them the task may take, ``[T, count]``."""
        return self._top(count).values.T.isfinite()

    def _top(self, count: int) -> "torch.return_types.topk":
        return self.scores.topk(min(count, len(self.z)), dim=0)


class _Rehearsal:
    """Who may search, where latents are played, and how the finalists are judged."""

    def __init__(
        self,
        model: Model,
        learned: LearnedWorld,
        evidence: Evidence,
        tasks: Sequence[Task],
        layout: Layout,
        config: RehearsalConfig,
        generator: torch.Generator,
        progress: Progress | None,
    ) -> None:
        self.model, self.evidence, self.config, self.generator = model, evidence, config, generator
        self.correlation = learned.reward_correlation(tasks, layout)  # [T]
        self.one_step_error = learned.median_one_step_error()
        known = torch.full_like(self.correlation, self.one_step_error) <= config.max_one_step_error
        self.searches = known & (self.correlation >= config.min_correlation)
        self.chooses = self.searches | known & (self.correlation >= config.min_correlation_prompts)
        dynamics = learned.dynamics.first(config.members) if config.members else learned.dynamics
        picks = torch.randperm(len(learned.starts), generator=generator)[: 2 * config.starts]
        self.bar = Ticker(
            progress, "rehearsal", self.latents_to_play() * config.horizon, note="imagined steps"
        )
        moments = None
        if config.bootstrap:
            moments = prompt.reward_moments(model, evidence.obs, evidence.rewards)
        self.search_rollouts, self.final_rollouts = (
            ImaginedRollouts(
                model,
                dynamics,
                layout,
                tasks,
                learned.starts[part],
                config.horizon,
                config.noise,
                moments,
                self.bar,
            )
            for part in picks.split(-(-len(picks) // 2))
        )

    def latents_to_play(self) -> int:
        """How many there will be, without extra candidates: that says how long it takes."""
        c, tasks = self.config, len(self.evidence.tasks)
        count = tasks
        if self.chooses.any():
            count += tasks * (PROMPTS - 1)
        if self.searches.any():
            count += tasks * c.goals + c.random_latents + c.rounds * tasks * c.population
        return count + tasks * (1 + min(c.finalists, count))

    def prompts(self) -> Tensor:
        """All prompts but plain FB's, ``[K, d]``."""
        return prompt_latents(self.model, self.evidence)[:, 1:].transpose(0, 1).flatten(0, 1)

    def goals_and_random_latents(self) -> Tensor:
        """Latents of the best states of every task, and random ones, ``[K, d]``."""
        c, found = self.config, []
        if c.goals:
            goals = goal_latents(
                self.model, self.evidence, c.goals, among=GOALS_AMONG, generator=self.generator
            )
            found.append(goals.flatten(0, 1))
        return torch.cat([*found, random_latents(self.model, c.random_latents, self.generator)])

    def around(self, elites: Tensor, step_size: float) -> Tensor:
        """New latents ``[T · population, d]`` near the elites ``[T, E, d]``.

        z = Π( Π(u·e_i + (1 − u)·e_j) + step_size·ε ) for two elites e_i, e_j, u ~ U(0, 1) and ε ~ N(0, I).
        """
        tasks, count, d = elites.shape
        size = (tasks, self.config.population)
        picks = torch.randint(count, (2, *size), generator=self.generator)
        rows = torch.arange(tasks).unsqueeze(-1)
        share = torch.rand(*size, 1, generator=self.generator)
        centre = share * elites[rows, picks[0]] + (1 - share) * elites[rows, picks[1]]
        step = torch.randn(*size, d, generator=self.generator) * step_size
        return self.model.project((self.model.project(centre) + step).flatten(0, 1))

    def score(self, z: Tensor) -> Tensor:
        """score(z) ``[K, T]`` on the search's start states."""
        means = self.search_rollouts.values(z, _same_noise()).mean(-1)  # [K, P, T]
        return means.mean(1) - self.config.pessimism * deviation(means, 1)

    def decide(self, plain: Tensor, pool: _Pool) -> Adapted:
        r"""Judge the finalists of every task on fresh starts and keep plain FB's latent unless beaten.

        V_{k,s} is the mean reward from start state s in the world of member k, Δ_{k,s} = V(z) − V(z_plain)
        the paired difference of the finalist with the highest score. It is taken if the task may choose at
        all, if score(z) is higher than plain FB's, and if

            mean Δ > max( margin · error, min_gain · (max r − min r) ),
            error  = std_s(mean_k Δ) / √S + std_k(mean_s Δ).
        """
        c, tasks = self.config, len(plain)
        own = torch.arange(tasks)
        finalists, allowed = pool.best(c.finalists), pool.allowed(c.finalists)  # [T, f, d], [T, f]
        contest = torch.cat([plain.unsqueeze(1), finalists], dim=1)  # [T, 1 + f, d]
        values = self.final_rollouts.values(contest.flatten(0, 1), _same_noise())
        # every latent by its own task alone: V, [T, 1 + f, P, S]
        values = values.reshape(*contest.shape[:2], *values.shape[1:])[own, :, :, own]
        means = values.mean(-1)
        scores = means.mean(-1) - c.pessimism * deviation(means, -1)  # [T, 1 + f]
        scores[:, 1:] = scores[:, 1:].where(allowed, -torch.inf)
        best = scores[:, 1:].argmax(-1) + 1
        gain, error = paired_gain(values[own, best] - values[:, 0])
        rewards = self.evidence.rewards
        least = torch.maximum(c.margin * error, c.min_gain * (rewards.amax(-1) - rewards.amin(-1)))
        wins = (gain > least) & (scores[own, best] > scores[:, 0]) & self.chooses
        chosen = torch.where(wins, best, 0)
        diagnostics = {
            "correlation": self.correlation,
            "one_step_error": torch.full_like(self.correlation, self.one_step_error),
            "changed": wins.float(),
            "imagined_gain": torch.where(wins, gain, 0.0),
            "imagined_error": error,
            "doubt": deviation(means[own, chosen], -1),
        }
        return Adapted(
            z=contest[own, chosen].unsqueeze(0),
            start=plain,
            method="rehearse",
            configs=(c.model_dump(),),
            evidence=self.evidence,
            model_identity=identity(self.model),
            estimate=means[own, chosen].mean(-1).unsqueeze(0),
            diagnostics={name: value.unsqueeze(0) for name, value in diagnostics.items()},
        )


def paired_gain(difference: Tensor) -> tuple[Tensor, Tensor]:
    """mean Δ and its error ``[T]`` of paired differences Δ ``[T, P, S]``, as in :meth:`_Rehearsal.decide`."""
    by_start = difference.mean(1).std(-1) / difference.shape[-1] ** 0.5
    by_member = deviation(difference.mean(2), -1)
    return difference.mean((1, 2)), by_start + by_member


def _same_noise() -> torch.Generator:
    """Every latent meets the same noise."""
    return torch.Generator().manual_seed(0)


def rehearse(problem: Problem, config: RehearsalConfig) -> Adapted:
    """Search by playing latents in the learned world; ZOL's latents are among the candidates."""
    return rehearsed(
        problem.model,
        problem.learned_world(),
        problem.evidence,
        problem.ordered_tasks,
        problem.layout,
        config,
        generator=problem.generator("rehearse"),
        plain=problem.start,
        extra_candidates=lambda: zol_candidates(
            problem.model, problem.evidence, problem.start, generator=problem.generator("zol")
        ),
        progress=problem.progress,
    )


REHEARSE = Method(
    rehearse,
    RehearsalConfig(),
    needs_learned_world=True,
    revision=2,
    correction=ON_THE_SPHERE,
    estimator="imagination",
)
