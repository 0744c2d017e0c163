r"""Whole episodes: latents that the model was trained for, played as long as an episode in its learned world.

A model that practised is good at the latents it practised for, and its learned world knows where its own
policies go. Searches on the sphere are fooled there: they find policies of latents that nobody trained, which
look good for the few steps that are imagined. So candidates here are of two kinds only,

    prompts           of the reward, and of rewards that rank states alike (zol.adapt.reward_space); goals
    trained latents   drawn as in training (zol.models.trained_latents): for models that practised, prompts of
                      rewards of their prior, among which a neighbour of the task often does it better

and each of them is played for as long as an episode lasts, by every member k of the dynamics ensemble, from a
few start states s. With V_{k,s}(z) the mean reward of that rollout and κ the pessimism,

    score(z) = mean_{k,s} V_{k,s}(z) − κ std_k mean_s V_{k,s}(z).

The best few of every task play again from fresh start states. Of them the one with the highest score takes
the place of the plain prompt if its paired gain Δ = V(z) − V(z_plain) is beyond doubt and worth the change,

    mean Δ > max( margin · error, min_gain · (max r − min r) ),
    error  = std_s(mean_k Δ) / √S + std_k(mean_s Δ).

Where the learned world does not predict the task's reward on real stretches, or misses much of single steps
(contacts), it is not believed: the plain prompt stays, and its estimate means nothing.
"""

import torch
from pydantic import Field
from torch import Tensor

from zol.adapt.candidates import goal_latents, prompt_latents
from zol.adapt.problem import Method, Problem
from zol.adapt.rehearse import GOALS_AMONG, deviation, paired_gain
from zol.adapt.result import Adapted
from zol.adapt.reward_space import reward_space_latents
from zol.common.config import Config
from zol.common.progress import Ticker
from zol.imagination.rollouts import ImaginedRollouts
from zol.models.base import identity
from zol.value.base import Z95


class EpisodesConfig(Config):
    """Settings of the choice; one default for all worlds."""

    trained: int = Field(default=128, ge=0)
    """latents drawn as in training, shared by all tasks"""
    goals: int = Field(default=12, ge=0)
    """latents of states with high rewards, per task"""
    horizon: int = Field(default=0, ge=0)
    """steps of an imagined episode; 0: as many as an episode of the world has, or 1000 if nobody says"""
    starts: int = Field(default=4, ge=1)
    """start states that every candidate is played from"""
    finalists: int = Field(default=4, ge=1)
    """candidates per task that are played again"""
    final_starts: int = Field(default=16, ge=2)
    """fresh start states of the finalists"""
    pessimism: float = Field(default=1.0, ge=0)
    """κ, in standard deviations between members"""
    margin: float = Field(default=Z95, ge=0)
    """standard errors by which a latent must beat the plain prompt"""
    min_gain: float = Field(default=0.01, ge=0)
    """share of the range of the data's rewards by which it must beat it, too"""
    min_correlation: float = Field(default=0.5, ge=-1, le=1)
    """correlation of imagined with real rewards on held-out stretches, below which the plain prompt stays"""
    max_one_step_error: float = Field(default=0.2, ge=0)
    """share of a typical column's variance of changes that one step may miss; above, nothing is changed"""


def whole_episodes(problem: Problem, config: EpisodesConfig) -> Adapted:
    """The latent of every task that earns most in whole imagined episodes, or the plain prompt."""
    model, evidence, tasks = problem.model, problem.evidence, problem.ordered_tasks
    learned = problem.learned_world()
    correlation = learned.reward_correlation(tasks, problem.layout)  # [T]
    one_step_error = torch.full_like(correlation, learned.median_one_step_error())
    believed = (correlation >= config.min_correlation) & (one_step_error <= config.max_one_step_error)
    own, plain = torch.arange(len(tasks)), model.project(problem.start)
    candidates = torch.cat([plain, _candidates(problem, config)]) if bool(believed.any()) else plain  # [K, d]
    picks = torch.randperm(len(learned.starts), generator=problem.generator("episodes"))
    several, fresh = picks[: config.starts], picks[config.starts :][: config.final_starts]
    horizon = config.horizon or problem.episode_length or EPISODE
    count = len(candidates) * len(several) + len(tasks) * (1 + config.finalists) * len(fresh)
    bar = Ticker(problem.progress, "imagined episodes", count)

    def play(z: Tensor, starts: Tensor) -> Tensor:
        rollouts = ImaginedRollouts(
            model, learned.dynamics, problem.layout, tasks, learned.starts[starts], horizon
        )
        parts = []
        for some in z.split(AT_ONCE):
            parts.append(rollouts.values(some, problem.generator("imagined noise")))
            bar.advance(len(some) * len(starts))
        return torch.cat(parts)  # [K, P, T, S]

    means = play(candidates, several).mean(-1)  # [K, P, T]
    scores = means.mean(1) - config.pessimism * deviation(means, 1)
    best = scores.topk(min(config.finalists, len(candidates)), dim=0).indices.T  # [T, f]
    contest = torch.cat([plain.unsqueeze(1), candidates[best]], dim=1)  # [T, 1 + f, d]
    values = play(contest.flatten(0, 1), fresh)
    values = values.reshape(*contest.shape[:2], *values.shape[1:])[own, :, :, own]  # [T, 1 + f, P, S]
    scores = values.mean((-2, -1)) - config.pessimism * deviation(values.mean(-1), -1)  # [T, 1 + f]
    chosen = scores[:, 1:].argmax(-1) + 1
    gain, error = paired_gain(values[own, chosen] - values[:, 0])
    spread = evidence.rewards.amax(-1) - evidence.rewards.amin(-1)
    least = torch.maximum(config.margin * error, config.min_gain * spread)
    wins = believed & (gain > least) & (scores[own, chosen] > scores[:, 0])
    bar.finish()
    kept = torch.where(wins, chosen, 0)
    told = {
        "correlation": correlation,
        "one_step_error": one_step_error,
        "believed": believed,
        "changed": wins,
        "imagined_gain": torch.where(wins, gain, 0.0),
        "imagined_error": error,
        "doubt": deviation(values[own, kept].mean(-1), -1),
        "horizon": torch.full_like(correlation, horizon),
    }
    return Adapted(
        z=contest[own, kept].unsqueeze(0),
        start=plain,
        method="episodes",
        configs=(config.model_dump(),),
        evidence=evidence,
        model_identity=identity(model),
        estimate=values[own, kept].mean((1, 2)).unsqueeze(0),
        diagnostics={name: value.double().unsqueeze(0) for name, value in told.items()},
    )


EPISODE = 1000  # steps of an episode where no world says
AT_ONCE = 16  # candidates that are played between two steps of the progress bar


def _candidates(problem: Problem, config: EpisodesConfig) -> Tensor:
    """Prompts of every task, goals, and latents as in training, ``[K, d]``."""
    model, evidence = problem.model, problem.evidence
    found = [
        prompt_latents(model, evidence).flatten(0, 1),
        reward_space_latents(model, evidence, problem.generator("reward space")).flatten(0, 1),
    ]
    if config.goals:
        goals = goal_latents(
            model, evidence, config.goals, among=GOALS_AMONG, generator=problem.generator("goals")
        )
        found.append(goals.flatten(0, 1))
    if config.trained and problem.trained is not None:
        found.append(problem.trained(config.trained, problem.generator("trained latents")))
    return model.project(torch.cat(found))


EPISODES = Method(whole_episodes, EpisodesConfig(), needs_learned_world=True, estimator="episodes")
