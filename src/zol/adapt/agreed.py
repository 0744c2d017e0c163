r"""One setting for all worlds: candidates from everywhere, and the plain latent unless judges agree.

No offline judge is to be trusted alone (docs/ratios.md). Three of them see different things: rollouts in the
learned world know no F, a critic of the task knows the reward and the stored transitions but no model of the
world, and LSTD-Q corrects what F itself says. With Δ_j = V_j(z) − V_j(z_plain):

**Where the learned world predicts the task**, rehearsal proposes its winner (zol.adapt.rehearse), with
candidates from reward space beside its own. It is taken if one more judge says so: Δ_critic > 0 or
Δ_lstd > 0.

**Where it does not, or there is none**, prompts and candidates from reward space are left. The one with the
largest min(Δ_critic, Δ_lstd) is taken if for both

    Δ_j > max( margin · error_j, min_gain · (max r − min r) ),          error_j that of V_j(z).

The plain latent, which is the model's own prompt, stays otherwise. The critic (zol.value.task_critic) sees
all candidates of all tasks at once; LSTD-Q (zol.value.lstd), which is slower, sees the ``finalists`` that the
critic likes best.
"""

from dataclasses import replace
from typing import Annotated

import torch
import tyro
from pydantic import Field
from torch import Tensor

from zol.adapt.candidates import prompt_latents
from zol.adapt.problem import Method, Problem
from zol.adapt.rehearse import RehearsalConfig, rehearsed
from zol.adapt.result import Adapted
from zol.adapt.reward_space import reward_space_latents
from zol.adapt.zol import score
from zol.adapt.zol_auto import zol_candidates
from zol.common.config import Config
from zol.value import ESTIMATORS
from zol.value.task_critic import TaskCriticSettings


class AgreedConfig(Config):
    """Settings of the choice; one default for all worlds."""

    rehearsal: RehearsalConfig = RehearsalConfig()
    """of the search in the learned world, where there is one"""
    critic: Annotated[TaskCriticSettings, tyro.conf.Suppress] = TaskCriticSettings()
    """of the critic of the task"""
    contenders: int = Field(default=3, ge=1)
    """candidates per task that the critic passes on to LSTD-Q"""
    preference: float = Field(default=1.0, ge=0)
    """standard errors by which both critics must prefer a latent that the learned world cannot judge"""
    critic_gain: float = Field(default=0.005, ge=0)
    """share of the range of the data's rewards by which they must prefer it, too"""


def agreed(problem: Problem, config: AgreedConfig) -> Adapted:
    """The latent of every task that the judges agree on, or the plain one."""
    model, evidence = problem.model, problem.evidence
    plain = model.project(problem.start)  # [T, d]
    others = reward_space_latents(model, evidence, problem.generator("reward space"))
    few = torch.cat([prompt_latents(model, evidence), others], dim=1)  # [T, K, d]
    proposed, told = _rehearsal(problem, config, plain, others)
    z, own, chosen = problem.start, torch.arange(len(plain)), torch.zeros(len(plain), dtype=torch.long)
    if not ESTIMATORS["task_critic"].missing(problem.value_problem()):
        contest = torch.cat([plain.unsqueeze(1), proposed.unsqueeze(1), few], dim=1)  # [T, 2 + K, d]
        critic, lstd, contest = _judged(problem, config, contest)
        rewards = evidence.rewards
        least = config.critic_gain * (rewards.amax(-1) - rewards.amin(-1))
        chosen = decided(told["trusted"] > 0, told["proposed"] > 0, critic, lstd, least, config.preference)
        # what stays is the plain prompt to the last bit: projected twice, a latent is another one
        z = torch.where((chosen > 0).unsqueeze(-1), contest[own, chosen], z)
        told |= {"critic_gain": critic[0][own, chosen], "lstd_gain": lstd[0][own, chosen]}
    found = score(model, evidence, z)
    told |= {"changed": chosen > 0}
    extra = {name: value.double().unsqueeze(0) for name, value in told.items()}
    diagnostics = dict(found.diagnostics) | extra
    return replace(found, start=plain, configs=(config.model_dump(),), diagnostics=diagnostics)


Judgement = tuple[Tensor, Tensor]
"""Gains on the first latent and standard errors, ``[T, F]`` each, every latent by its own task"""


def decided(
    trusted: Tensor, proposed: Tensor, critic: Judgement, lstd: Judgement, least: Tensor, margin: float
) -> Tensor:
    """The chosen latent of every task ``[T]``: 0 is the plain one, 1 rehearsal's, the others candidates.

    ``trusted`` says where the learned world may judge, ``proposed`` where rehearsal found something, both
    ``[T]``; ``least`` ``[T]`` is the smallest gain that counts.
    """
    own = torch.arange(len(trusted))
    seconded = (critic[0][:, 1] > 0) | (lstd[0][:, 1] > 0)
    best = torch.minimum(critic[0], lstd[0])[:, 2:].argmax(-1) + 2
    sure = ~trusted
    for gain, error in (critic, lstd):
        sure = sure & (gain[own, best] > torch.maximum(margin * error[own, best], least))
    return torch.where(trusted & proposed & seconded, 1, torch.where(sure, best, 0))


def _rehearsal(
    problem: Problem, config: AgreedConfig, plain: Tensor, others: Tensor
) -> tuple[Tensor, dict[str, Tensor]]:
    """What rehearsal proposes ``[T, d]``, on which tasks it does, and on which it may judge at all.

    ``others`` ``[T, K, d]`` are candidates beside its own.
    """
    none = torch.zeros(len(plain))
    learned = problem.dynamics
    if learned is None:
        return plain, {"trusted": none, "proposed": none}

    def more() -> Tensor:
        searched = zol_candidates(
            problem.model, problem.evidence, problem.start, generator=problem.generator("zol")
        )
        return torch.cat([searched, others.flatten(0, 1)])

    found = rehearsed(
        problem.model,
        learned,
        problem.evidence,
        problem.ordered_tasks,
        problem.layout,
        config.rehearsal,
        generator=problem.generator("rehearse"),
        plain=plain,
        extra_candidates=more,
        progress=problem.progress,
    )
    told = {name: value[0] for name, value in found.diagnostics.items()}
    c = config.rehearsal
    trusted = (told["correlation"] >= c.min_correlation_prompts) & (
        told["one_step_error"] <= c.max_one_step_error
    )
    shown = ("correlation", "one_step_error", "imagined_gain", "imagined_error")
    return found.z[0], {name: told[name] for name in shown} | {
        "trusted": trusted.float(),
        "proposed": told["changed"],
    }


def _judged(problem: Problem, config: AgreedConfig, contest: Tensor) -> tuple[Judgement, Judgement, Tensor]:
    """What critic and LSTD-Q say of the first two latents ``[T, 2 + K, d]`` and of the critic's favourites.

    The favourites follow the first two in the latents ``[T, 2 + finalists, d]`` that are given back.
    """
    tasks, count, _ = contest.shape
    own = torch.arange(tasks)
    asked = replace(problem.value_problem("agreed"), progress=problem.progress)

    def ask(name: str, z: Tensor, *settings: Config) -> Judgement:
        found = ESTIMATORS[name].estimate(asked, z.flatten(0, 1), *settings)
        mean, error = (x.reshape(tasks, -1, tasks)[own, :, own] for x in (found.mean, found.error))
        return mean - mean[:, :1], error

    gain, error = ask("task_critic", contest, config.critic)
    favourites = gain[:, 2:].topk(min(config.contenders, count - 2), dim=-1).indices + 2
    kept = torch.cat([torch.arange(2).expand(tasks, 2), favourites], dim=-1)  # [T, F]
    final = contest.take_along_dim(kept.unsqueeze(-1), dim=1)
    critic = gain.take_along_dim(kept, dim=1), error.take_along_dim(kept, dim=1)
    return critic, ask("lstd", final), final


AGREED = Method(agreed, AgreedConfig())
