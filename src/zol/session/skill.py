"""A skill: behaviour for one task, which acts on observations and can be saved."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from zol.adapt import Adapted, Behaviour, estimator_of, find_method
from zol.common.errors import DataError, unknown_name
from zol.models.base import Latent, Model, sampled_policy
from zol.rollout import Policy
from zol.tasks import Task
from zol.value.accuracy import told


@dataclass(frozen=True)
class Skill:
    """Behaviour for one task: a latent of a frozen model, or a policy where that is more than one latent."""

    model: Model
    latent: Latent
    task: Task | None = None  # what it is scored by
    behaviour: Behaviour | None = None  # the adaptation that it came from,
    row: int = 0  # and its place there
    domain: str = ""  # name of the world; '' if there is none

    @property
    def estimate(self) -> float | None:
        """The method's offline estimate of the mean reward per step; not a measured return."""
        return self.latent.estimate

    @overload
    def act(
        self, observation: NDArray[Any], generator: torch.Generator | None = None
    ) -> NDArray[np.float32]: ...
    @overload
    def act(self, observation: Tensor, generator: torch.Generator | None = None) -> Tensor: ...
    @torch.no_grad()
    def act(
        self, observation: NDArray[Any] | Tensor, generator: torch.Generator | None = None
    ) -> NDArray[np.float32] | Tensor:
        """Actions ``[..., A]`` in [−1, 1] for raw observations ``[..., D]``: NumPy for NumPy, or torch.

        They are the policy's mean actions (a flow's at noise 0); with a generator they are drawn from it.
        """
        given = observation if isinstance(observation, Tensor) else torch.as_tensor(np.asarray(observation))
        if given.ndim == 0 or given.shape[-1] != self.model.obs_dim:
            raise DataError(
                f"an observation has {self.model.obs_dim} columns, got shape {tuple(given.shape)}: expected "
                f"[{self.model.obs_dim}] or [batch, {self.model.obs_dim}]"
            )
        obs = given.to(self.latent.z.device, self.latent.z.dtype)
        policy = joint_policy([self])
        z = self.latent.z.expand(*obs.shape[:-1], -1)
        if generator is not None:
            self.single_latent()  # a choice between policies has no distribution to draw from
            action = sampled_policy(self.model, z, generator)(obs)
        elif policy is None:
            action = self.model.act(obs, z)
        else:
            action = policy(obs.reshape(1, -1, obs.shape[-1])).reshape(*obs.shape[:-1], -1)
        return action if isinstance(observation, Tensor) else action.cpu().numpy()

    def save(self, path: str | Path) -> None:
        """Write the skill as one JSON file; ``agent.skill(path)`` reads it."""
        self.single_latent().save(path)

    def single_latent(self) -> Latent:
        """Its latent, where that is all there is to it."""
        if self.behaviour is not None and self.behaviour.policy is not None:
            raise more_than_one_latent(self.latent.method)
        return self.latent

    def require_task(self) -> Task:
        """The task that it is scored by."""
        if self.task is None:
            raise DataError(
                f"this skill is for '{self.latent.task}', which is no task of the world: say what it is "
                "scored by, agent.skill(path, task=reward)"
            )
        return self.task

    def __repr__(self) -> str:
        known = f"Skill({self.latent.task} by {self.latent.method}); skill.act(observation) acts"
        if self.estimate is None:
            return known
        how = told(estimator_of(self.latent.method), self.domain)
        return f"{known}\n  offline estimate of the reward per step: {self.estimate:.3g} ({how})"


class Skills(Sequence[Skill]):
    """The skills of several tasks that were adapted together."""

    def __init__(self, skills: Sequence[Skill], found: Adapted, unrewarded: tuple[str, ...]) -> None:
        """``found`` is the adaptation with its diagnostics, ``unrewarded`` are tasks that were left out."""
        self._skills, self.found, self.unrewarded = tuple(skills), found, unrewarded

    @overload
    def __getitem__(self, which: int | str) -> Skill: ...
    @overload
    def __getitem__(self, which: slice) -> Sequence[Skill]: ...
    def __getitem__(self, which: int | str | slice) -> Skill | Sequence[Skill]:
        """The skill at a place, or of a task's name."""
        if not isinstance(which, str):
            return self._skills[which]
        for skill in self._skills:
            if skill.latent.task == which:
                return skill
        raise DataError(unknown_name("skill", which, [skill.latent.task for skill in self._skills]))

    def __len__(self) -> int:
        return len(self._skills)

    def __iter__(self) -> Iterator[Skill]:
        return iter(self._skills)

    def __repr__(self) -> str:
        return "\n".join(map(repr, self._skills))


def require_single_latents(method: str, what: str) -> None:
    """Refuse ``what`` needs a latent per task, before a search by a method that gives more than that."""
    if not find_method(method).single_latent:
        raise more_than_one_latent(method, what)


def more_than_one_latent(method: str, what: str = "") -> DataError:
    """Why a behaviour cannot be written as a latent, and what to do."""
    begin = f"{what}: " if what else ""
    return DataError(
        f"{begin}what {method} does is more than one latent (a choice in every state, or "
        "a network of its own): act, evaluate or film it, or save, sample or export a skill of another method"
    )


def played_together(skills: Sequence[Skill]) -> list[list[int]]:
    """Which skills are rolled out as one batch: those of plain latents, and those of each joint policy."""
    groups: dict[int, list[int]] = {}
    for k, skill in enumerate(skills):
        joint = skill.behaviour is not None and skill.behaviour.policy is not None
        groups.setdefault(id(skill.behaviour) if joint else 0, []).append(k)
    return list(groups.values())


def joint_policy(skills: Sequence[Skill]) -> Policy | None:
    """Actions ``[L, E, A]`` of skills of one adaptation, if its behaviour is more than a latent per task."""
    behaviour, rows = skills[0].behaviour, [skill.row for skill in skills]
    if behaviour is None or behaviour.policy is None:
        return None
    policy, tasks = behaviour.policy, len(behaviour.found.evidence.tasks)

    def act(obs: Tensor) -> Tensor:
        every = obs[:1].repeat(tasks, 1, 1)  # the policy acts for all tasks at once
        every[rows] = obs
        return policy(every)[rows]

    return act


def each_acting(skills: Sequence[Skill]) -> Policy | None:
    """Actions ``[L, E, A]`` of skills that need not be of one adaptation; None if all are plain latents."""
    if all(joint_policy([skill]) is None for skill in skills):
        return None
    return lambda obs: torch.stack([skill.act(own) for skill, own in zip(skills, obs, strict=True)])
