"""From a reward or a goal to a latent in a millisecond: features of the sample are computed once.

    z = Π( E[B r] )

costs one evaluation of the reward on the checkpoint's sample and one product with B of that sample, which
does not depend on the reward. The closed forms themselves are those of :mod:`zol.prompt`.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from zol import prompt
from zol.adapt.prompts import prompt_name
from zol.common.errors import DataError
from zol.fields import States
from zol.models.base import Latent, Model, identity, regressors_of
from zol.session import Agent
from zol.tasks import Task


class _Remembering:
    """What prompts ask of a model, with its features of one sample computed beforehand."""

    def __init__(self, model: Model, obs: Tensor) -> None:
        self.obs_dim, self.z_dim, self.project = model.obs_dim, model.z_dim, model.project
        phi = regressors_of(model)
        with torch.no_grad():
            self._features, self._regressors = model.backward(obs), phi(obs)
        self._obs, self._model, self._phi = obs, model, phi

    def backward(self, obs: Tensor) -> Tensor:
        return self._found(obs, self._features, self._model.backward)

    def regressors(self, obs: Tensor) -> Tensor:
        return self._found(obs, self._regressors, self._phi)

    def _found(self, obs: Tensor, known: Tensor, compute: Callable[[Tensor], Tensor]) -> Tensor:
        """The rows that were computed beforehand, if these are rows of the sample itself."""
        rows, mine = obs.untyped_storage(), self._obs.untyped_storage()
        if rows.data_ptr() != mine.data_ptr():
            return compute(obs)
        first = (obs.storage_offset() - self._obs.storage_offset()) // obs.shape[-1]
        return known[first : first + len(obs)]


@dataclass(frozen=True)
class Prompted:
    """A latent that a prompt gave, and what the sample says about the task."""

    latent: Latent
    task: Task
    rewards: Tensor  # r of the sampled states, [N]


class Prompter:
    """Prompts one agent's model with one sample; shared by all who play with it, for it never changes."""

    def __init__(self, agent: Agent) -> None:
        """Computes the features of the agent's sample."""
        evidence = agent.label([Task("nothing", lambda s: s.obs[..., 0] * 0)])
        physics = agent.checkpoint.prompt.get("physics") if agent.data is None else None
        self.states = States(evidence.obs, agent.layout, evidence.action, physics)
        self.data, self.model, self.identity = evidence.data, agent.model, identity(agent.model)
        self.how = agent.checkpoint.default_prompt
        self._remembering = _Remembering(agent.model, evidence.obs)

    @property
    def method(self) -> str:
        """What the registry calls this prompt."""
        return prompt_name(self.how)

    def reward(self, task: Task) -> Prompted:
        """The latent of a task; one without any reward on the sample is refused."""
        rewards = task(self.states).float()
        bad = int((~rewards.isfinite()).sum())
        if bad:
            raise DataError(f"the reward is NaN or infinite in {bad} of {len(rewards)} sampled states")
        if not bool(rewards.any()):
            raise DataError(
                f"the reward is zero in all {len(rewards)} sampled states, so it cannot say what is wanted"
            )
        model: Model = self._remembering  # type: ignore[assignment]  # all that a prompt asks of a model
        z = prompt.reward(model, self.states.obs, rewards, self.how)
        return Prompted(self._latent(z, task.name, self.method), task, rewards)

    def goal(self, obs: Tensor, name: str = "goal") -> Prompted:
        """The latent that leads to the state ``[D]``; its reward is minus the distance, in deviations.

        r(s) = −√(mean_k ((s_k − g_k) / σ_k)²), σ the deviations of the sample's columns.
        """
        goal = obs.to(self.states.obs.dtype)
        spread = self.states.obs.std(0).clamp_min(1e-6)

        def reward(states: States) -> Tensor:
            off = (states.obs - goal.to(states.obs)) / spread.to(states.obs)
            return -off.square().mean(-1).sqrt()

        task = Task(name, reward, "minus the distance to the frozen pose, in deviations", goal=goal)
        z = prompt.goal(self.model, goal)
        return Prompted(self._latent(z, name, "goal"), task, reward(self.states))

    def _latent(self, z: Tensor, task: str, method: str) -> Latent:
        return Latent(z, self.identity, task, method, self.data)
