"""Training the ant expert: TD3 on an open plane, many ants at once, on one core.

    reward   displacement along the command in metres per second; nothing follows a fall
    target   r + γ · min_i Q̄_i(s', clip(π(s') + ε)),      actor   max_π Q_1(s, π(s)) every other update

A command stays for 100 steps, as in OGBench's recipe. Displacement can be judged against any direction, so
half of every batch is relabelled with directions that nobody commanded; in the expert's own view (see
:mod:`zol.collect.ant_expert`) they are further headings from which the same walk is learned.

The folder holds everything: transitions (a memory-mapped ring), networks, optimisers, generator. An
interrupted run goes on from its last save with fresh ants.
"""

import copy
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from rich.progress import Progress
from torch import Tensor, nn

from zol.collect.ant_config import AntConfig
from zol.collect.ant_expert import (
    ACTIONS,
    SEEN,
    AntExpert,
    by_legs,
    network,
    own_view,
    unit_directions,
    upright,
)
from zol.common.interrupts import Stopped
from zol.common.outputs import require_place
from zol.common.progress import Ticker
from zol.common.tensors import counted, read_metadata, read_tensors, write_tensors
from zol.common.threads import one_torch_thread
from zol.models.layers import initialise
from zol.models.optimisation import Adam, frozen, move_towards, named_state, restore_generator, restore_state
from zol.worlds.ogbench.maze import MazeWorld, open_ground

STATE, EXPERT, MEMORY = "training.safetensors", "expert.safetensors", "memory.bin"
OBS = 29
SECONDS = 0.1  # between two actions


@dataclass(frozen=True)
class Walk:
    """How well commands are followed: displacements in metres of ants that were given one direction each."""

    along: Tensor  # along the command, [n]
    aside: Tensor  # at right angles to it, [n]
    fallen: Tensor  # [n]
    seconds: float

    @property
    def followed(self) -> Tensor:
        """Whether an ant went a cell of a maze (4 m) within 30 degrees of its command, on its feet."""
        return (self.along >= 4.0) & (self.aside.abs() <= 0.577 * self.along) & ~self.fallen

    def words(self) -> str:
        """One line of numbers."""
        return (
            f"{100 * float(self.followed.float().mean()):.1f} % of {len(self.along)} commands followed, "
            f"{float(self.along.mean()) / self.seconds:.2f} m/s along them, "
            f"{float(self.aside.abs().mean()):.2f} m aside after {self.seconds:.0f} s, "
            f"{100 * float(self.fallen.float().mean()):.1f} % fallen"
        )


@torch.no_grad()
def walk_test(
    expert: AntExpert, n: int, generator: torch.Generator, *, steps: int = 100, noise: float = 0.0
) -> Walk:
    """Command ``n`` ants into one direction each, spread over the circle, for ``steps`` steps."""
    world = open_ground()
    states = world.reset(n, generator)
    angle = 2 * torch.pi * torch.arange(n) / n
    direction = torch.stack([angle.cos(), angle.sin()], -1)
    begin = states.obs[:, :2].float()
    for _ in range(steps):
        action = expert(states.obs.float(), direction)
        action = action + noise * torch.randn(action.shape, generator=generator)
        states = world.step(action.clamp(-1, 1))
    moved = states.obs[:, :2].float() - begin
    along = (moved * direction).sum(-1)
    aside = moved[:, 1] * direction[:, 0] - moved[:, 0] * direction[:, 1]
    return Walk(along, aside, ~upright(states.obs.float()), steps * SECONDS)


def train_expert(
    out: str | Path,
    config: AntConfig = AntConfig(),  # noqa: B008
    *,
    progress: Progress | None = None,
) -> AntExpert:
    """Train an expert in the folder ``out``, or go on with one; the expert is ``out/expert.safetensors``."""
    require_place(out)
    with one_torch_thread():
        run = _Training(Path(out), config)
        bar = Ticker(progress, "ant expert", config.steps, done=run.steps)
        try:
            while run.steps < config.steps:
                run.advance()
                bar.reach(run.steps, run.note)
        except KeyboardInterrupt as interrupt:
            run.save()
            raise Stopped(f"{run.steps:,} steps are saved in {out}; the same command goes on") from interrupt
        run.save()
        bar.finish()
    return run.expert


class _Training:
    """Ants, memory and networks."""

    def __init__(self, out: Path, config: AntConfig) -> None:
        c = self.config = config
        out.mkdir(parents=True, exist_ok=True)
        self.out, self.steps, self.note = out, 0, ""
        self.generator = torch.Generator().manual_seed(c.seed)
        self.expert = AntExpert(c.hidden)
        self.critic = network(SEEN + ACTIONS, c.hidden, 1, members=2)
        for net in (self.expert.actor, self.critic):
            initialise(net, self.generator)
        self.target_critic = copy.deepcopy(self.critic).requires_grad_(False)
        self.actor_optimiser = Adam(self.expert.actor.parameters(), c.learning_rate)
        self.critic_optimiser = Adam(self.critic.parameters(), c.learning_rate)
        self.memory = _Memory(out / MEMORY, c.steps + c.envs)
        self._resume()
        self.world: MazeWorld = open_ground()
        self.obs = self.world.reset(c.envs, self.generator).obs.float()
        self.direction = unit_directions(c.envs, self.generator)
        self.age = torch.randint(c.episode_steps, (c.envs,), generator=self.generator)
        self.speed = torch.zeros(())
        self.began, self.began_steps = time.perf_counter(), self.steps

    @torch.no_grad()
    def _act(self) -> Tensor:
        c = self.config
        if self.steps < c.random_steps:
            return 2 * torch.rand(c.envs, ACTIONS, generator=self.generator) - 1
        action = self.expert(self.obs, self.direction)
        return (action + c.noise * torch.randn(action.shape, generator=self.generator)).clamp(-1, 1)

    def advance(self) -> None:
        """One step of all ants, and the updates that belong to it."""
        c = self.config
        action = self._act()
        after = self.world.step(action).obs.float()
        fallen = ~upright(after)
        self.memory.add(torch.cat([self.obs, action, after, self.direction, fallen.unsqueeze(-1)], -1))
        moved = ((after - self.obs)[:, :2] * self.direction).sum(-1) / SECONDS
        self.speed = self.speed + 0.01 * (moved.mean() - self.speed)
        before, self.steps = self.steps, self.steps + c.envs
        self.age += 1
        self._put_back(after, fallen | (self.age >= c.episode_steps))
        change = self.age % c.command_steps == 0
        self.direction = torch.where(change[:, None], unit_directions(c.envs, self.generator), self.direction)
        if self.steps >= c.random_steps:
            for number in range(c.updates):
                self._update(number % 2 == 0)
        rate = (self.steps - self.began_steps) / (time.perf_counter() - self.began)
        self.note = f"{rate:.0f} steps/s, {float(self.speed):.2f} m/s along commands"
        if before // c.save_every != self.steps // c.save_every:
            self.save()

    def _put_back(self, after: Tensor, over: Tensor) -> None:
        """Begin anew where an episode is over; the other ants go on from where they are."""
        self.obs = after
        if bool(over.any()):
            physics = self.world.physics
            fresh = self.world.starts_in(np.ones((int(over.sum()), 2), dtype=np.int64), self.generator)
            physics[over] = fresh
            self.obs = self.world.set_physics(physics).obs.float()
            self.age[over] = 0

    def _update(self, with_actor: bool) -> None:
        c, e = self.config, self.expert
        rows = self.memory.sample(c.batch_size, self.generator)
        obs, action, after, direction, fallen = rows.split([OBS, ACTIONS, OBS, 2, 1], -1)
        half = c.batch_size // 2
        direction = torch.cat([direction[:half], unit_directions(c.batch_size - half, self.generator)])
        with torch.no_grad():
            reward = ((after - obs)[:, :2] * direction).sum(-1) / SECONDS
            (s, quarters), (s2, _) = own_view(obs, direction), own_view(after, direction)
            action = by_legs(action, quarters)
            e.normaliser.update(s)
            s, s2 = e.scaled(s), e.scaled(s2)
            noise = (c.noise * torch.randn(action.shape, generator=self.generator)).clamp(
                -c.noise_clip, c.noise_clip
            )
            following = (e.act(s2) + noise).clamp(-1, 1)
            value = self.target_critic(torch.cat([s2, following], -1)).amin(0).squeeze(-1)
            target = reward + c.discount * (1 - fallen.squeeze(-1)) * value
        values = self.critic(torch.cat([s, action], -1)).squeeze(-1)  # [2, N]
        (values - target).square().mean(-1).sum().backward()
        self.critic_optimiser.step_and_clear()
        if with_actor:
            with frozen(self.critic):
                wanted = self.critic(torch.cat([s, e.act(s)], -1))[0]
            (-wanted.mean()).backward()
            self.actor_optimiser.step_and_clear()
        move_towards(self.target_critic, self.critic, c.target_rate)

    def save(self) -> None:
        """Networks and counters to the folder; the memory is there already."""
        self.memory.flush()
        self.expert.save(self.out / EXPERT, steps=str(self.steps), seed=str(self.config.seed))
        state = named_state(self._parts()) | {"generator": self.generator.get_state()}
        write_tensors(self.out / STATE, state, {"steps": str(self.steps), "rows": str(self.memory.rows)})

    def _parts(self) -> dict[str, nn.Module | Adam]:
        return {
            "expert": self.expert,
            "critic": self.critic,
            "target_critic": self.target_critic,
            "actor_optimiser": self.actor_optimiser,
            "critic_optimiser": self.critic_optimiser,
        }

    def _resume(self) -> None:
        path = self.out / STATE
        if path.exists():
            header = read_metadata(path, ("steps", "rows"))
            state = read_tensors(path)
            restore_generator(self.generator, state, path)
            restore_state(self._parts(), {name: v for name, v in state.items() if name != "generator"})
            self.steps, self.memory.rows = counted(header, "steps", path), counted(header, "rows", path)


class _Memory:
    """Transitions of all ants, a ring in a file that the system keeps in memory as far as it can."""

    WIDTH = OBS + ACTIONS + OBS + 2 + 1

    def __init__(self, path: Path, capacity: int) -> None:
        size = capacity * self.WIDTH * 4
        if not path.exists() or path.stat().st_size < size:
            with path.open("ab") as file:
                file.truncate(size)
        self.values: NDArray[np.float32] = np.memmap(path, np.float32, "r+", shape=(capacity, self.WIDTH))
        self.rows = 0

    def add(self, rows: Tensor) -> None:
        capacity = len(self.values)
        places = (self.rows + np.arange(len(rows))) % capacity
        self.values[places] = rows.numpy()
        self.rows += len(rows)

    def sample(self, n: int, generator: torch.Generator) -> Tensor:
        have = min(self.rows, len(self.values))
        places = torch.randint(have, (n,), generator=generator).numpy()
        return torch.from_numpy(self.values[places])

    def flush(self) -> None:
        if isinstance(self.values, np.memmap):
            self.values.flush()
