r"""GPI: at every step, act with whichever of K latents promises most (Barreto et al. 2017).

Generalised policy improvement needs no search and no environment: the frozen model values every candidate
in the state at hand (v = E_ρ[B r], zol.adapt.critic),

    k*(s) = argmax_k F(s, π_{z_k}(s), z_k)ᵀ v,        π(s) = π_{z_k*}(s).

With exact F the value of π is at least that of the best candidate, in every state: one step of π followed by
candidate k* is worth max_k V_k(s) already, and switching again can only add. With a learned F it is as good
as its ranking. The result is a policy rather than a latent, K times as costly to run:

    rule = gpi_policy(model, evidence, candidate_latents(model, evidence, searched.z[0]))
    evaluate(world, model, rule.best().latents(), policy=rule, ...)
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from zol.adapt.candidates import candidate_latents
from zol.adapt.critic import FrozenCritic
from zol.adapt.problem import Behaviour, Method, NoSettings, Problem
from zol.adapt.result import Adapted
from zol.adapt.zol import ON_THE_SPHERE, score, search
from zol.adapt.zol_settings import ZOLConfig
from zol.common.config import ConfigError
from zol.evidence import Evidence
from zol.models.base import Model
from zol.models.losses import pessimistic


@dataclass(frozen=True)
class GPI:
    """The policies of T tasks; called like any other with observations ``[T, E, D]``."""

    evidence: Evidence
    critic: FrozenCritic
    candidates: Tensor  # Π(z_k), [T, K, d]
    pessimism: float = 0.0

    def weigh(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Actions ``[T, E, K, A]`` of all candidates and their values ``[T, E, K]``."""
        states, z = obs.unsqueeze(-2), self.candidates.unsqueeze(-3)  # [T, E, 1, D], [T, 1, K, d]
        action = self.critic.model.act(states, z)
        return action, pessimistic(self.critic.value(states, z, action), self.pessimism)

    @torch.no_grad()
    def __call__(self, obs: Tensor) -> Tensor:
        """Actions ``[T, E, A]`` of the best candidate of each state."""
        action, value = self.weigh(obs)
        choice = value.argmax(-1, keepdim=True).unsqueeze(-1)  # [T, E, 1, 1]
        return action.take_along_dim(choice, dim=-2).squeeze(-2)

    def best(self) -> Adapted:
        """The one candidate of each task that promises most from the start states, with its estimate."""
        tasks, count = self.candidates.shape[:2]
        starts = self.evidence.starts.to(self.candidates.dtype).expand(tasks, -1, -1)
        with torch.no_grad():
            choice = self.weigh(starts)[1].mean(-2).argmax(-1)  # [T]
        result = score(self.critic.model, self.evidence, self.candidates[torch.arange(tasks), choice])
        extra = {
            "candidate": choice.double().unsqueeze(0),
            "environment_steps": torch.zeros(1, tasks, dtype=torch.float64),
        }
        settings = {"candidates": count, "pessimism": self.pessimism}
        return replace(
            result, method="gpi", configs=(settings,), diagnostics=dict(result.diagnostics) | extra
        )


def gpi_policy(model: Model, evidence: Evidence, candidates: Tensor, *, pessimism: float = 0.0) -> GPI:
    """GPI over latents ``[T, K, d]``.

    ``pessimism`` lowers values by the disagreement of the ensemble; 0.5 is the minimum of two members.
    """
    wanted = (len(evidence.tasks), model.z_dim)
    if (
        candidates.ndim != 3
        or (candidates.shape[0], candidates.shape[-1]) != wanted
        or not candidates.shape[1]
    ):
        raise ConfigError(
            f"candidates have shape {tuple(candidates.shape)}; {wanted[0]} tasks of a model with z_dim "
            f"{wanted[1]} need ({wanted[0]}, K ≥ 1, {wanted[1]})"
        )
    return GPI(evidence, FrozenCritic.of(model, evidence), model.project(candidates).detach(), pessimism)


def generalised(problem: Problem, settings: NoSettings) -> Behaviour:
    """GPI over prompts, goals and ZOL's latent."""
    searched = search(problem, ZOLConfig()).z[0]
    candidates = candidate_latents(problem.model, problem.evidence, searched)
    rule = gpi_policy(problem.model, problem.evidence, candidates)
    return Behaviour(rule.best(), rule)


GPI_METHOD = Method(generalised, NoSettings(), single_latent=False, revision=2, correction=ON_THE_SPHERE)
