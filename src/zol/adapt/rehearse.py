r"""Rehearsal: search the latents of a frozen model by playing them in its learned world, offline.

Candidates for every task come from

    prompts      correlation, ridge and weighted, of raw and of centred rewards
    goals        Π(B(s)) of states with the highest rewards
    strangers    Π(ε), latents as in training
    others       whatever the caller brings (ZOL's result, say)

and all of them are played by every member of the dynamics ensemble (zol.imagination):
tasks share candidates,
because one imagined rollout is scored by all tasks. Then a cross-entropy search on the sphere draws new
ones around the best of each task, with shrinking spread, and the finalists are played again from start
states that chose none of them. A latent's score is pessimistic in the ensemble's doubt,

    score(z) = mean_k V_k(z) − κ · std_k V_k(z)

and the winner replaces plain FB's latent only if it is better by ``margin`` standard errors of the paired
difference, and by ``worth`` times the range of the task's rewards: where no candidate comes near a reward in
imagination, differences are dust, and dust may well be significant.

How far a task may go depends on how well the learned world predicts its rewards, by their open-loop
correlation on real stretches. From ``trust`` on it has the whole search. A search finds the errors of a worse
judge; a choice among a few does so less, so from ``trust_prompts`` on a task chooses among prompts and
others. Below, it keeps plain FB's latent, as all tasks do if single steps are already predicted badly
(``miss``): rewards of short stretches may correlate in a world that no policy could be judged in. The result
says which (``trusted``, ``missed``).
"""

from collections.abc import Callable, Sequence

import torch
from pydantic import Field
from torch import Tensor

from zol import prompt
from zol.adapt.result import Adapted
from zol.common.config import Config
from zol.common.errors import DataError
from zol.evidence import Evidence
from zol.fields import Layout
from zol.imagination.learned_world import LearnedWorld
from zol.imagination.rollouts import ImaginedRollouts
from zol.models.base import Model, identity
from zol.tasks import Task


class RehearsalConfig(Config):
    """Settings of the search; one default for all worlds."""

    horizon: int = Field(default=200, ge=1)
    """steps of an imagined rollout"""
    starts: int = Field(default=16, ge=2)
    """start states of the search; as many others judge the finalists"""
    goals: int = Field(default=12, ge=0)
    """goal latents per task"""
    strangers: int = Field(default=12, ge=0)
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
    worth: float = Field(default=0.005, ge=0)
    """share of the range of the data's rewards by which it must beat it, too"""
    trust: float = Field(default=0.8, ge=-1, le=1)
    """open-loop correlation of rewards from which on a task is searched for"""
    trust_prompts: float = Field(default=0.5, ge=-1, le=1)
    """and from which on it chooses among prompts and others; below, it keeps plain FB's latent"""
    miss: float = Field(default=0.2, ge=0)
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
    others: Callable[[], Tensor] | None = None,
) -> Adapted:
    """The best latent of every task by rehearsal.

    ``others`` gives more candidates ``[K, d]``; it is not called when no task may take any of them.
    """
    c = config or RehearsalConfig()
    if tuple(task.name for task in tasks) != evidence.tasks:
        raise DataError(f"the tasks to rehearse must be those of the evidence: {', '.join(evidence.tasks)}")
    search = _Search(model, learned, evidence, tasks, layout, c, generator)
    # [T, d]; candidate t is task t's own fallback, to the last bit that of plain FB (zol.adapt.controls)
    plain = model.project(evidence.prompt(model))
    pool = _Pool(plain, search)
    if search.chooses.any():
        pool.add(search.prompts(), prompts=True)
        if others is not None:
            pool.add(others(), prompts=True)
    if search.searches.any():
        pool.add(search.goals_and_strangers())
        for k in range(c.rounds):
            pool.add(search.around(pool.best(c.elites), c.spread * 0.5**k))
    return search.decide(plain, pool)


def spread(values: Tensor, members: int) -> Tensor:
    """Standard deviation over the members' dimension; a single member has none."""
    return values.std(members) if values.shape[members] > 1 else torch.zeros_like(values.mean(members))


class _Pool:
    """Latents ``[K, d]``, plain FB's first, and their scores ``[K, T]`` on the search's start states.

    A latent that a task may not take has the score −∞.
    """

    def __init__(self, plain: Tensor, search: "_Search") -> None:
        self.search, self.z = search, plain
        self.scores = search.score(plain)

    def add(self, z: Tensor, *, prompts: bool = False) -> None:
        allowed = self.search.chooses if prompts else self.search.searches
        self.z = torch.cat([self.z, z])
        self.scores = torch.cat([self.scores, self.search.score(z).where(allowed, -torch.inf)])

    def best(self, count: int) -> Tensor:
        """The best latents of every task, ``[T, count, d]``."""
        return self.z[self._top(count).indices.T]

    def allowed(self, count: int) -> Tensor:
        """Which of them the task may take, ``[T, count]``."""
        return self._top(count).values.T.isfinite()

    def _top(self, count: int) -> "torch.return_types.topk":
        return self.scores.topk(min(count, len(self.z)), dim=0)


class _Search:
    def __init__(
        self,
        model: Model,
        learned: LearnedWorld,
        evidence: Evidence,
        tasks: Sequence[Task],
        layout: Layout,
        config: RehearsalConfig,
        generator: torch.Generator,
    ) -> None:
        self.model, self.evidence, self.config, self.generator = model, evidence, config, generator
        self.trusted = learned.reward_correlation(tasks, layout)  # [T]
        self.missed = learned.median_one_step_error()
        known = torch.full_like(self.trusted, self.missed) <= config.miss
        self.searches = known & (self.trusted >= config.trust)
        self.chooses = self.searches | known & (self.trusted >= config.trust_prompts)
        dynamics = learned.dynamics.first(config.members) if config.members else learned.dynamics
        picks = torch.randperm(len(learned.starts), generator=generator)[: 2 * config.starts]
        moments = None
        if config.bootstrap:
            moments = prompt.reward_moments(model, evidence.obs, evidence.rewards)
        self.search_room, self.judge_room = (
            ImaginedRollouts(
                model,
                dynamics,
                layout,
                tasks,
                learned.starts[part],
                config.horizon,
                config.noise,
                moments,
            )
            for part in picks.split(-(-len(picks) // 2))
        )

    def prompts(self) -> Tensor:
        """All but plain FB's, of raw and of centred rewards, ``[5T, d]``."""
        evidence, model = self.evidence, self.model
        found = [evidence.prompt(model, centre=True)]
        for how in ("ridge", "weighted"):
            found += [evidence.prompt(model, how, centre=centre) for centre in (False, True)]
        return torch.cat(found)

    def goals_and_strangers(self) -> Tensor:
        """Latents of the best states of every task, and random ones, ``[K, d]``."""
        c, evidence, model = self.config, self.evidence, self.model
        found = []
        if c.goals:
            best = evidence.rewards.topk(min(100, len(evidence.obs)), dim=-1).indices  # [T, 100]
            chosen = best[:, torch.randperm(best.shape[1], generator=self.generator)[: c.goals]]
            with torch.no_grad():
                found.append(model.project(model.backward(evidence.obs[chosen.flatten()])))
        noise = torch.randn(c.strangers, model.z_dim, generator=self.generator)
        return torch.cat([*found, model.project(noise)])

    def around(self, elites: Tensor, spread: float) -> Tensor:
        """New latents ``[T · population, d]`` near the elites ``[T, E, d]``."""
        tasks, count, d = elites.shape
        size = (tasks, self.config.population)
        picks = torch.randint(count, (2, *size), generator=self.generator)
        rows = torch.arange(tasks).unsqueeze(-1)
        share = torch.rand(*size, 1, generator=self.generator)
        centre = share * elites[rows, picks[0]] + (1 - share) * elites[rows, picks[1]]
        step = torch.randn(*size, d, generator=self.generator) * spread
        return self.model.project((self.model.project(centre) + step).flatten(0, 1))

    def score(self, z: Tensor) -> Tensor:
        """Pessimistic scores ``[K, T]`` on the search's start states."""
        return self.pessimistic(self.search_room.values(z, self._same_noise()))

    def pessimistic(self, values: Tensor) -> Tensor:
        """mean − κ·std over members of the means over starts, ``[K, P, T, S] → [K, T]``."""
        means = values.mean(-1)
        return means.mean(1) - self.config.pessimism * spread(means, 1)

    def _same_noise(self) -> torch.Generator:
        return torch.Generator().manual_seed(0)  # every latent meets the same noise

    def decide(self, plain: Tensor, pool: _Pool) -> Adapted:
        """Judge the finalists of every task on fresh starts and keep plain FB's latent unless beaten."""
        c, tasks = self.config, len(plain)
        finalists, allowed = pool.best(c.finalists), pool.allowed(c.finalists)  # [T, f, d], [T, f]
        contest = torch.cat([plain.unsqueeze(1), finalists], dim=1)  # [T, 1 + f, d]
        values = self.judge_room.values(contest.flatten(0, 1), self._same_noise())
        own = torch.arange(tasks)
        values = values.reshape(*contest.shape[:2], *values.shape[1:])[own, :, :, own]  # [T, 1 + f, P, S]
        means = values.mean(-1)
        scores = means.mean(-1) - c.pessimism * spread(means, -1)  # [T, 1 + f]
        scores[:, 1:] = scores[:, 1:].where(allowed, -torch.inf)
        best = scores[:, 1:].argmax(-1) + 1
        difference = values[own, best] - values[:, 0]  # [T, P, S], paired
        gain = difference.mean((1, 2))
        error = difference.mean(1).std(-1) / difference.shape[-1] ** 0.5 + spread(difference.mean(2), -1)
        rewards = self.evidence.rewards
        enough = torch.maximum(c.margin * error, c.worth * (rewards.amax(-1) - rewards.amin(-1)))
        wins = (gain > enough) & (scores[own, best] > scores[:, 0]) & self.chooses
        chosen = torch.where(wins, best, 0)
        z = contest[own, chosen]
        diagnostics = {
            "trusted": self.trusted,
            "missed": torch.full_like(self.trusted, self.missed),
            "changed": wins.float(),
            "imagined_gain": torch.where(wins, gain, 0.0),
            "imagined_error": error,
            "doubt": spread(means[own, chosen], -1),
        }
        return Adapted(
            z=z.unsqueeze(0),
            start=plain,
            method="rehearse",
            configs=(c.model_dump(),),
            evidence=self.evidence,
            model_identity=identity(self.model),
            estimate=means[own, chosen].mean(-1).unsqueeze(0),
            diagnostics={name: value.unsqueeze(0) for name, value in diagnostics.items()},
        )
