"""Evaluating 100 walker episodes: one batched world against a loop over dm_control.

Two comparisons. With dm_control: same actor, one call per environment and step, as evaluation code usually
has it (at least 6 times faster on two cores). With the raw physics, stepped with neither policy nor
observations (at least 0.8: what we add around the physics is small).
"""

import os
from collections.abc import Callable

os.environ.setdefault("MUJOCO_GL", "disable")  # dm_control would look for a display

import mujoco
import numpy as np
import torch
import tyro
from dm_control import suite
from dm_control.rl.control import flatten_observation
from mujoco.batch import Batch
from torch import Tensor, nn

from benchmarks.timing import Case, compare
from zol.tasks import States
from zol.worlds import make
from zol.worlds.dmc.world import ControlWorld

LATENT = 50
Policy = Callable[[Tensor], Tensor]


def main(
    episodes: int = 100, steps: int = 200, reference_episodes: int = 2, repeats: int = 5, json: bool = False
) -> None:
    """Compare speeds.

    Args:
        episodes: Environments evaluated at once.
        steps: Steps per episode; the full 1000 gives the same ratios and takes longer.
        reference_episodes: Episodes that the dm_control loop runs; its speed does not depend on them.
        repeats: Interleaved repeats; medians are reported.
        json: Print one JSON object per line.
    """
    world = make("walker")
    assert isinstance(world, ControlWorld)
    policy = actor(world.layout.obs_dim, world.action_dim)
    starts = world.reset(episodes, torch.Generator().manual_seed(0)).physics
    total = float(episodes * steps)
    batched = lambda: evaluate(world, policy, starts, steps)  # noqa: E731
    raw = physics_alone(world, starts, steps, recorded_actions(world, policy, starts, steps))
    loop = dm_control_loop(policy, steps, reference_episodes)
    compare(
        [
            Case(
                "walker evaluation / dm_control loop",
                "steps/s",
                total,
                batched,
                loop,
                reference_episodes * steps,
            ),
            Case("walker evaluation / raw physics", "steps/s", total, batched, raw),
        ],
        repeats,
        json,
    )


def actor(obs_dim: int, action_dim: int) -> Policy:
    """A policy of the usual small size, with one latent for everybody."""
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Linear(obs_dim + LATENT, 256),
        nn.ReLU(),
        nn.Linear(256, 256),
        nn.ReLU(),
        nn.Linear(256, action_dim),
        nn.Tanh(),
    )
    latent = torch.randn(LATENT)

    def act(obs: Tensor) -> Tensor:
        with torch.inference_mode():
            return net(torch.cat([obs.float(), latent.expand(*obs.shape[:-1], LATENT)], dim=-1))

    return act


def evaluate(world: ControlWorld, policy: Policy, starts: Tensor, steps: int) -> Tensor:
    """Returns of all episodes: one policy call and one reward call per step for all of them."""
    task = world.tasks["run"]
    states: States = world.set_physics(starts)
    returns = torch.zeros(len(starts), dtype=torch.float64)
    for _ in range(steps):
        states = world.step(policy(states.obs))
        returns += task(states)
    return returns


def recorded_actions(world: ControlWorld, policy: Policy, starts: Tensor, steps: int) -> np.ndarray:
    """What the policy does, so that the raw physics can go through the same motions."""
    states = world.set_physics(starts)
    actions = []
    for _ in range(steps):
        actions.append(policy(states.obs))
        states = world.step(actions[-1])
    return torch.stack(actions).double().numpy()


def physics_alone(world: ControlWorld, starts: Tensor, steps: int, actions: np.ndarray) -> Callable[[], None]:
    """The same motions by MuJoCo alone: no policy, no observations, no rewards."""
    batch = Batch(world.domain.model, len(starts))
    rows = starts.numpy()

    def run() -> None:
        batch.reset(stage=mujoco.mjtStage.mjSTAGE_NONE)
        batch.qpos[:], batch.qvel[:] = np.split(rows, 2, axis=1)
        for action in actions:
            batch.ctrl[:] = action
            batch.step(nstep=world.domain.substeps)

    assert len(actions) == steps
    return run


def dm_control_loop(policy: Policy, steps: int, episodes: int) -> Callable[[], float]:
    """The plain way: one environment, one policy call per step."""
    env = suite.load("walker", "run", task_kwargs={"random": 0})

    def run() -> float:
        total = 0.0
        for _ in range(episodes):
            step = env.reset()
            for _ in range(steps):
                obs = torch.from_numpy(flatten_observation(step.observation)["observations"])
                step = env.step(policy(obs).numpy())
                total += step.reward
        return total

    return run


if __name__ == "__main__":
    tyro.cli(main)
