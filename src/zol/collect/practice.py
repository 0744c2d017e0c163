"""Practice: the batches of a model that learns from what its own policies do for rewards of a prior.

A round is one episode in each of n environments, in which latents of the learner's pool of rewards act,
with noise; every ``latent_steps`` steps another one takes over. Its episodes are committed to a set on
disk, with the number of the reward that acted beside every step, and updates follow, one per
``steps_per_update`` steps, which draw from all rounds. The first rounds act at random.

Half of the rows of a batch keep the reward that acted (``own_share``), so that a latent sees what its own
policy leads to; the others get any reward of the pool. Whenever the set has doubled, the space of rewards
is built anew on it. Between two rounds nothing is open but the set, so a run that was interrupted takes the
very steps of one that was not.
"""

import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from zol.collect.recording import Recording
from zol.common import provenance
from zol.common.config import Config
from zol.common.errors import CheckpointError, DataError
from zol.common.threads import one_torch_thread
from zol.data import Batch, BatchSpec, Dataset
from zol.data.resident import Streamed
from zol.data.sampling import with_path
from zol.data.writer import episode_rows
from zol.fields import States
from zol.models.optimisation import restore_generator
from zol.models.prior_features import PriorFeaturesLearner
from zol.models.reward_space import balanced, value_range
from zol.worlds.base import World
from zol.worlds.episode import episode

RESETS = 1024  # start states stored with the set
SEEN = 65_536  # states of the set that the space of rewards is built on
VISITED = 16_384  # states of the set of which episodes begin in some
NOBODY = -1  # the reward of a step at random


class PracticeConfig(Config):
    """How a model practises."""

    envs: int = Field(default=32, ge=1)
    """n: environments stepped together; a round is one episode of each"""
    episode_length: int = Field(default=500, ge=1)
    """steps of an episode"""
    latent_steps: int = Field(default=250, ge=1)
    """steps before another latent takes over"""
    steps_per_update: int = Field(default=16, ge=1)
    """environment steps, over all environments, per update"""
    random_steps: int = Field(default=32_000, ge=1)
    """environment steps with uniform actions before the first update"""
    noise: tuple[float, float] = Field(default=(0.1, 0.4), strict=False)
    """standard deviations of the noise on actions in the first and in the last environment"""
    own_share: float = Field(default=0.5, ge=0, le=1)
    """share of the rows of a batch that keep the reward that acted"""
    restarts: float = Field(default=0.0, ge=0, le=1)
    """share of the episodes that begin in states that were visited, evenly over their quantities"""
    place_every: int = Field(default=1_000, ge=1)
    """updates after which the pool grows and its latents are computed anew"""

    @property
    def updates(self) -> int:
        """Updates between two rounds."""
        return max(1, self.envs * self.episode_length // self.steps_per_update)


class Practice:
    """Draws batches, and practises when it is time to."""

    def __init__(
        self,
        learner: PriorFeaturesLearner,
        world: World,
        config: PracticeConfig,
        *,
        folder: Path | None,
        seed: int,
    ) -> None:
        """The set is in ``folder``, or nowhere."""
        learner.use_layout(world.layout)
        self.learner, self.world, self.config, self.seed = learner, world, config, seed
        self._temporary = tempfile.TemporaryDirectory() if folder is None else None
        place = Path(self._temporary.name) / "set" if self._temporary is not None else folder
        assert place is not None
        starts = world.reset(RESETS, torch.Generator().manual_seed(seed)).obs
        facts = {
            "world": world.name,
            "how": "practice",
            "seed": seed,
            "config": config.model_dump(mode="json"),
            "quantities": list(learner.config.quantities),
        }
        self.recording = Recording(place, provenance.of_data("practice", **facts), starts.float().numpy())
        self.chance = torch.Generator().manual_seed(seed)
        self.updates, self.built = 0, 0  # built: episodes when the space of rewards was built
        try:
            self.begun = self._act_at_random()
        except BaseException:
            self.close()
            raise

    @property
    def settings(self) -> dict[str, Any]:
        """What decides a run beside model and loop: it is continued with the same values only."""
        return {f"practice.{name}": value for name, value in self.config.model_dump(mode="json").items()}

    def _act_at_random(self) -> Dataset:
        """The set as it is before the first update."""
        made_with = self.recording.provenance.get("config")
        if self.recording.writer.episodes and made_with != self.config.model_dump(mode="json"):
            raise DataError(
                f"{self.recording.path} was begun with other settings of practice ({made_with}): continue "
                "with the same ones, or choose another folder"
            )
        generator, steps = torch.Generator().manual_seed(self.seed + 1), 0
        while steps < self.config.random_steps:
            steps += self._round(generator, at_random=True)
        return self.recording.dataset()

    def draw(self, spec: BatchSpec, n: int, generator: torch.Generator) -> Batch:
        """A batch of ``n`` stretches with the latents of their rewards."""
        del generator  # simulators want a CPU's generator
        c, learner = self.config, self.learner
        if self.updates % c.updates == 0:
            if self.updates:
                self._round(self.chance, at_random=False)
            self._build()
        elif self.updates % c.place_every == 0:
            learner.grow(self.chance)
        self.updates += 1
        data = self.recording.dataset()
        steps = torch.randint(len(data), (n,), generator=self.chance)
        source = Streamed(data, torch.device("cpu"))
        batch = with_path(source, steps, spec.path, source.take(steps))
        assert batch.path_length is not None
        ends = (steps + batch.path_length - 1).numpy()
        terminated = data.take(ends, physics=False).terminated
        rewards = self._rewards(data, steps)
        return replace(batch, terminated=terminated, z=learner.space.latents[rewards].clone()).to(
            next(learner.model.parameters()).device
        )

    def _rewards(self, data: Dataset, steps: Tensor) -> Tensor:
        """Numbers of rewards for these steps, ``[N]``: those that acted, or any."""
        assert data.mapped is not None
        acted = data.mapped.gather("reward_number", data.rows(steps.numpy()), 1)[:, 0]
        own = torch.from_numpy(acted.astype(np.int64).reshape(-1))
        keep = torch.rand(len(steps), generator=self.chance) < self.config.own_share
        drawn = torch.randint(int(self.learner.space.count), (len(steps),), generator=self.chance)
        return torch.where(keep & (own != NOBODY), own, drawn)

    def _build(self) -> None:
        """Build the space of rewards on what there is, if that has doubled; let the pool grow."""
        data = self.recording.dataset()
        if data.episodes >= 2 * self.built:
            seen = data.sample(min(len(data), SEEN), self.chance, physics=False)
            self.learner.prepare(seen.next_obs, self.chance)
            self.built = data.episodes
        else:
            self.learner.grow(self.chance)

    def _round(self, generator: torch.Generator, *, at_random: bool) -> int:
        """One episode in every environment, committed to the set; how many steps that was."""
        c, n = self.config, self.config.envs
        space, world = self.learner.space, self.world
        turns = -(-c.episode_length // c.latent_steps)
        if at_random:
            rewards = torch.full((n, turns), NOBODY)
        else:
            rewards = torch.randint(int(space.count), (n, turns), generator=generator)
        weights = next(self.learner.model.parameters())
        noise = torch.linspace(*c.noise, n).unsqueeze(-1)
        taken: list[States] = []

        @torch.no_grad()
        def act(states: States) -> Tensor:
            if at_random:
                return 2 * torch.rand(n, world.action_dim, generator=generator) - 1
            z = space.latents[rewards[:, len(taken) // c.latent_steps]]
            mean = self.learner.model.act(states.obs.to(weights), z.to(weights)).cpu().float()
            return (mean + noise * torch.randn(mean.shape, generator=generator)).clamp(-1, 1)

        with one_torch_thread(world.threads is not None):
            first = self._first(0 if at_random else round(c.restarts * n), generator)
            physics = [world.physics.clone()]
            running = [torch.ones(n, dtype=torch.bool)]
            for step in episode(world, first, act, c.episode_length):
                taken.append(step.states)
                physics.append(world.physics.clone())
                running.append(running[0] if step.running is None else step.running)
        lengths = torch.stack(running[1:]).sum(0).tolist()
        obs = torch.stack([first.obs, *(states.obs for states in taken)]).float().numpy()
        action = torch.stack([states.need_action() for states in taken]).float().numpy()
        simulated = torch.stack(physics).numpy()
        over = torch.zeros(n, dtype=torch.bool)
        for states in taken:
            over |= torch.zeros(n, dtype=torch.bool) if states.terminated is None else states.terminated
        numbers = rewards.repeat_interleave(c.latent_steps, dim=1).numpy().astype(np.int32)
        self.recording.commit(
            [
                episode_rows(
                    obs[: length + 1, env],
                    action[:length, env],
                    terminated=bool(over[env]),
                    physics=simulated[: length + 1, env],
                    reward_number=numbers[env, :length, None],
                )
                for env, length in enumerate(lengths)
            ]
        )
        return int(sum(lengths))

    def _first(self, again: int, generator: torch.Generator) -> States:
        """The first states of a round, ``again`` of them states that were visited before.

        A body that has just learned to stand rarely stands long enough to learn how to walk; begun on its
        feet, it does. The others begin where episodes of the world do.
        """
        first = self.world.reset(self.config.envs, generator)
        if not again:
            return first
        data = self.recording.dataset()
        # the states before these steps: those after them may be terminal
        visited = data.take(self._evenly(data, again, VISITED, generator).numpy()).physics
        assert visited is not None
        physics = self.world.physics.clone()
        physics[torch.randperm(len(physics), generator=generator)[:again]] = visited.to(physics)
        return self.world.set_physics(physics)

    def _evenly(self, data: Dataset, count: int, among: int, generator: torch.Generator) -> Tensor:
        """Steps ``[count]`` drawn evenly from clusters of the quantities of ``among`` random ones."""
        steps = torch.randint(len(data), (among,), generator=generator)
        obs = data.take(steps.numpy(), physics=False).next_obs
        assert self.learner.quantities is not None
        values = self.learner.quantities(obs.double()).float()
        low, high = value_range(values)
        return steps[balanced(values, low, high, count, generator)]

    def prompt_steps(self, count: int = 10_000) -> Tensor:
        """Steps drawn evenly from clusters of their quantities, as the sample of the space of rewards is."""
        data, generator = self.recording.dataset(), torch.Generator().manual_seed(self.seed)
        return self._evenly(data, min(count, len(data)), SEEN, generator)

    def state_dict(self) -> dict[str, Tensor]:
        """Everything beyond model and learner that an exact resume needs."""
        counts = {"updates": self.updates, "episodes": self.recording.done, "built": self.built}
        return {n: torch.tensor(v) for n, v in counts.items()} | {"generator": self.chance.get_state()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """The inverse of :meth:`state_dict`."""
        for name in self.state_dict():
            if name not in state:
                raise CheckpointError(f"the training state has no '{name}' of practice: it is another run's")
        done = int(state["episodes"])
        if done > self.recording.writer.episodes:
            raise DataError(
                f"{self.recording.path} has {self.recording.writer.episodes} episodes, the training state "
                f"counts {done}: restore the set, or choose another folder"
            )
        self.updates, self.built, self.recording.done = int(state["updates"]), int(state["built"]), done
        restore_generator(self.chance, state, self.recording.path)

    def collected(self) -> Dataset:
        """Everything that was visited so far."""
        return self.recording.dataset()

    def close(self) -> None:
        """Release the files; a set that was to be nowhere is gone."""
        self.recording.close()
        if self._temporary is not None:
            self._temporary.cleanup()
