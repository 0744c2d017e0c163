"""Acting while learning: the batches of a model that trains on what its own policies visit.

Three memories: transitions with the latents that acted (a set on disk, which grows), demonstrations, and the
latents of recent updates, from which those for acting are drawn. The rhythm is

    k steps in each of n environments  →  n k / ``steps_per_update`` updates  →  k steps …

An episode begins in a demonstrated frame (with ``frame_share``) or where the world begins, changes its latent
every ``latent_steps`` steps, and is cut after ``episode_length``. Every stretch of k steps puts the
environments back into the simulator states that the last one ended in. Nothing else about a simulator has to
be stored, and a run that was interrupted takes the very steps of one that was not.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from pydantic import Field, model_validator
from rich.progress import Progress
from torch import Tensor

from zol.collect.demonstrations import Demonstrations
from zol.collect.recording import Recording
from zol.common.config import Config
from zol.common.errors import CheckpointError
from zol.common.progress import Ticker
from zol.common.threads import one_torch_thread
from zol.data import Batch, BatchSpec, Dataset
from zol.data.prompting import prompt_sample
from zol.data.writer import episode_rows
from zol.fields import States
from zol.models.fb_cpr import FBCPRLearner
from zol.models.layers import unit
from zol.models.optimisation import restore_generator
from zol.worlds.base import World
from zol.worlds.episode import episode

RANDOM_EPISODES = "random_episodes"  # of the set, made before the first update


class OnlineConfig(Config):
    """How a model acts while it learns."""

    envs: int = Field(default=20, ge=1)
    """n: environments stepped together"""
    stretch: int = Field(default=10, ge=1)
    """k: steps of each environment between updates"""
    steps_per_update: int = Field(default=10, ge=1)
    """environment steps, over all environments, per update"""
    episode_length: int = Field(default=300, ge=1)
    """steps of an episode, a multiple of the stretch"""
    latent_steps: int = Field(default=150, ge=1)
    """steps before an episode changes its latent, a multiple of the stretch"""
    random_steps: int = Field(default=10_000, ge=1)
    """environment steps with uniform actions before the first update"""
    frame_share: float = Field(default=0.8, ge=0, le=1)
    """share of episodes that begin in a demonstrated frame; the others begin where the world begins"""
    memory: int = Field(default=5_000_000, ge=1)
    """transitions that updates draw from, the latest ones"""
    prioritise_every: int = Field(default=2_000, ge=0)
    """updates between tests of how well motions are tracked, which set their priorities; 0: all alike"""

    @model_validator(mode="after")
    def _whole_stretches(self) -> Self:
        for name in ("episode_length", "latent_steps"):
            if getattr(self, name) % self.stretch:
                raise ValueError(f"{name} {getattr(self, name)} is no multiple of the stretch {self.stretch}")
        if self.envs * self.stretch % self.steps_per_update:
            raise ValueError(
                f"{self.envs} environments × {self.stretch} steps make no whole number of updates with one "
                f"every {self.steps_per_update} steps"
            )
        return self

    @property
    def updates(self) -> int:
        """Updates between two stretches."""
        return self.envs * self.stretch // self.steps_per_update


class Episodes:
    """The unfinished episodes of n environments, as tensors that a file can hold."""

    def __init__(self, n: int, length: int, sizes: Mapping[str, int], physics: torch.dtype) -> None:
        self.obs = torch.zeros(n, length + 1, sizes["obs"])
        self.physics = torch.zeros(n, length + 1, sizes["physics"], dtype=physics)
        self.action = torch.zeros(n, length, sizes["action"])
        self.z = torch.zeros(n, length, sizes["z"])
        self.steps = torch.zeros(n, dtype=torch.int64)  # of each episode so far
        self.running = torch.zeros(n, dtype=torch.bool)  # whether it goes on in the next stretch

    def tensors(self) -> dict[str, Tensor]:
        """Everything, by name."""
        return dict(vars(self))

    def begin(self, which: Tensor, obs: Tensor, physics: Tensor) -> None:
        """Begin episodes ``which`` [n] in these states of all environments."""
        self.obs[which, 0], self.physics[which, 0] = obs[which].float(), physics[which]
        self.steps[which], self.running[which] = 0, True

    def add(self, took_part: Tensor, states: States, physics: Tensor, z: Tensor) -> None:
        """One step of the environments ``took_part`` [n]."""
        env = torch.nonzero(took_part).squeeze(-1)
        t = self.steps[env]
        self.action[env, t], self.z[env, t] = states.need_action()[env].float(), z[env]
        self.obs[env, t + 1], self.physics[env, t + 1] = states.obs[env].float(), physics[env]
        self.steps[env] += 1

    def rows(self, env: int, *, terminated: bool) -> dict[str, np.ndarray]:
        """One episode as a set stores it."""
        t = int(self.steps[env])
        return episode_rows(
            self.obs[env, : t + 1].numpy(),
            self.action[env, :t].numpy(),
            terminated=terminated,
            physics=self.physics[env, : t + 1].numpy(),
            z=self.z[env, :t].numpy(),
        )


class Online:
    """Draws batches, and acts in the world when it is time to."""

    def __init__(
        self,
        learner: FBCPRLearner,
        world: World,
        demonstrations: Demonstrations,
        config: OnlineConfig,
        *,
        folder: Path | None,
        seed: int,
        track: Callable[[], Tensor] | None = None,
        progress: Progress | None = None,
    ) -> None:
        """``track`` gives the error of tracking each motion ``[E]``; the set is in ``folder``, or nowhere."""
        demonstrations.require_fit(world, frames=config.frame_share > 0)
        self.learner, self.world, self.demonstrations = learner, world, demonstrations
        self.config, self.track, self.seed = config, track, seed
        self.recording = Recording(world, folder, config, how="online", seed=seed)
        sizes = {
            "obs": world.layout.obs_dim,
            "action": world.action_dim,
            "physics": world.physics.shape[1],
            "z": learner.model.z_dim,
        }
        kind = world.physics.dtype
        self.now = Episodes(config.envs, config.episode_length, sizes, kind)
        self.obs = torch.zeros(config.envs, sizes["obs"], dtype=world.observe(world.physics).dtype)
        self.physics = torch.zeros(config.envs, sizes["physics"], dtype=kind)
        self.z = torch.zeros(config.envs, sizes["z"])
        self.chance = torch.Generator().manual_seed(seed)
        self.updates, self._places = 0, torch.zeros(0, 2, dtype=torch.int64)
        try:
            self.begun = self._act_at_random(progress)
        except BaseException:
            self.close()
            raise

    @property
    def settings(self) -> dict[str, Any]:
        """What decides a run beside model and loop: it is continued with the same values only."""
        own = {f"online.{name}": value for name, value in self.config.model_dump(mode="json").items()}
        return own | {"demonstrations": self.demonstrations.dataset.fingerprint()}

    def _act_at_random(self, progress: Progress | None) -> Dataset:
        """The set as it is before the first update: uniform actions, uniform latents."""
        known = self.recording.provenance.get(RANDOM_EPISODES)
        if not isinstance(known, int):
            generator, steps = torch.Generator().manual_seed(self.seed + 1), 0
            bar = Ticker(progress, "acting at random", self.config.random_steps)
            while steps < self.config.random_steps:
                steps += self._stretch(generator, at_random=True)
                bar.reach(steps)
            bar.finish(steps)
            self._commit(self.now.running, torch.zeros_like(self.now.running))
            known = self.recording.done
            self.recording.note(**{RANDOM_EPISODES: known})
        self.recording.done = known
        return self.recording.dataset()

    def draw(self, spec: BatchSpec, n: int, generator: torch.Generator) -> Batch:
        """A batch of ``n`` transitions with their latents, and windows of demonstrations."""
        del spec, generator  # what the learner wants is known, and simulators want a CPU's generator
        if self.updates % self.config.updates == 0:
            self._stretch(self.chance, at_random=False)
            self._places = torch.nonzero(self.now.running.unsqueeze(1) & self._stored())
        if self._due():
            assert self.track is not None
            self.demonstrations.prioritise(self.track())
        self.updates += 1
        batch = self._sample(n)
        windows = self.demonstrations.windows(-(-n // self.demonstrations.window), self.chance)
        batch = replace(batch, expert_obs=windows[0], expert_next_obs=windows[1])
        return batch.to(next(self.learner.model.parameters()).device)

    def _due(self) -> bool:
        every = self.config.prioritise_every
        return self.track is not None and every > 0 and self.updates > 0 and self.updates % every == 0

    def _stored(self) -> Tensor:
        """Which steps of unfinished episodes there are, ``[n, L]``."""
        return torch.arange(self.config.episode_length) < self.now.steps.unsqueeze(1)

    def _sample(self, n: int) -> Batch:
        """Transitions of finished and unfinished episodes, all equally likely."""
        past, now = self.recording.dataset(), self._places
        recent = min(len(past), max(0, self.config.memory - len(now)))
        picks = torch.randint(recent + len(now), (n,), generator=self.chance)
        old = (picks[picks < recent] + len(past) - recent).numpy()
        found = past.take(old, physics=False)
        assert past.mapped is not None
        z = torch.from_numpy(past.mapped.gather("z", past.rows(old), 1)[:, 0].copy())
        env, t = now[picks[picks >= recent] - recent].unbind(1)
        fresh = (self.now.obs[env, t], self.now.action[env, t], self.now.obs[env, t + 1])
        going_on = torch.zeros(len(env), dtype=torch.bool)  # an episode that is over is in the set
        columns = zip(
            (found.obs, found.action, found.next_obs, found.terminated, z),
            (*fresh, going_on, self.now.z[env, t]),
            strict=True,
        )
        obs, action, next_obs, terminated, z = (torch.cat(pair) for pair in columns)
        return Batch(obs, action, next_obs, terminated, z=z)

    def _stretch(self, generator: torch.Generator, *, at_random: bool) -> int:
        """k steps in every environment; how many steps that was. What is over is committed to the set."""
        c, now = self.config, self.now
        with one_torch_thread(self.world.threads is not None):
            self._begin(~now.running, generator)
            change = now.steps % c.latent_steps == 0
            self.z = torch.where(change.unsqueeze(-1), self._latents(generator, at_random), self.z)
            first = self.world.set_physics(self.physics)
            first = replace(first, obs=self.obs)  # sensors may remember what simulator states do not
            total, ended = 0, torch.zeros(c.envs, dtype=torch.bool)
            for step in episode(self.world, first, self._policy(generator, at_random), c.stretch):
                took_part = torch.ones(c.envs, dtype=torch.bool) if step.running is None else step.running
                now.add(took_part, step.states, self.world.physics, self.z)
                total += int(took_part.sum())
                self.obs = step.states.obs
                if step.states.terminated is not None:
                    ended |= step.states.terminated
            env = torch.arange(c.envs)
            self.physics = now.physics[env, now.steps].clone()
            self._commit(ended | (now.steps >= c.episode_length), ended)
        return total

    def _begin(self, fresh: Tensor, generator: torch.Generator) -> None:
        """Begin new episodes in environments ``fresh`` [n]."""
        count = int(fresh.sum())
        if not count:
            return
        self.world.reset(count, generator)
        start = self.world.physics
        if self.config.frame_share > 0:
            shown = torch.rand(count, generator=generator) < self.config.frame_share
            frames = self.demonstrations.frames(count, generator).to(start.dtype)
            start = torch.where(shown.unsqueeze(-1), frames, start)
        self.physics[fresh] = start
        self.obs = self.obs.clone()
        self.obs[fresh] = self.world.set_physics(start).obs
        self.now.begin(fresh, self.obs, self.physics)

    def _latents(self, generator: torch.Generator, at_random: bool) -> Tensor:
        """One latent per environment: of recent updates, or uniform before there are any."""
        recent = self.learner.recent
        if at_random or len(recent) == 0:
            return unit(torch.randn(self.z.shape, generator=generator))
        picks = torch.randint(len(recent), (self.config.envs,), generator=generator)
        return recent.stored[picks.to(recent.stored.device)].cpu().to(self.z.dtype)

    def _policy(self, generator: torch.Generator, at_random: bool) -> Callable[[States], Tensor]:
        model, std = self.learner.model, self.learner.config.action_std
        weights = next(model.parameters())

        @torch.no_grad()
        def act(states: States) -> Tensor:
            shape = (self.config.envs, self.world.action_dim)
            if at_random:
                return 2 * torch.rand(shape, generator=generator) - 1
            mean = model.act(states.obs.to(weights), self.z.to(weights)).cpu().float()
            return (mean + std * torch.randn(shape, generator=generator)).clamp(-1, 1)

        return act

    def _commit(self, over: Tensor, terminated: Tensor) -> None:
        """Write the episodes ``over`` [n] to the set; their environments begin anew."""
        which = torch.nonzero(over & (self.now.steps > 0)).squeeze(-1).tolist()  # a start may be terminal
        self.recording.commit([self.now.rows(env, terminated=bool(terminated[env])) for env in which])
        self.now.running &= ~over

    def state_dict(self) -> dict[str, Tensor]:
        """Everything beyond model and learner that an exact resume needs."""
        counts = {"updates": torch.tensor(self.updates), "episodes": torch.tensor(self.recording.done)}
        places = {"obs": self.obs, "physics": self.physics, "z": self.z, "places": self._places}
        own = counts | places | {"generator": self.chance.get_state()}
        own["weights"] = self.demonstrations.weights
        return own | {f"now.{name}": tensor for name, tensor in self.now.tensors().items()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """The inverse of :meth:`state_dict`."""
        for name, value in self.state_dict().items():
            if name not in state or (name != "places" and state[name].shape != value.shape):
                raise CheckpointError(
                    f"the training state has no fitting '{name}' of the environments: it is another run's"
                )
        self.recording.rewind(int(state["episodes"]))
        self.updates = int(state["updates"])
        self.obs, self.physics, self.z = (state[name].clone() for name in ("obs", "physics", "z"))
        self._places, self.demonstrations.weights = state["places"].clone(), state["weights"].clone()
        for name, tensor in self.now.tensors().items():
            tensor.copy_(state[f"now.{name}"])
        restore_generator(self.chance, state, self.recording.path)

    @property
    def facts(self) -> Mapping[str, Any]:
        """What the checkpoint says about the data."""
        return self.recording.facts

    def prompt_sample(self, seed: int) -> dict[str, Tensor]:
        """Any steps of the finished episodes."""
        return prompt_sample(self.recording.dataset(), seed)

    def collected(self) -> Dataset:
        """The finished episodes so far."""
        return self.recording.dataset()

    def close(self) -> None:
        """Release the files; a set that was to be nowhere is gone."""
        self.recording.close()
