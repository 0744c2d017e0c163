"""Evaluating 100 walker episodes: one batched world against a loop over dm_control.

Two comparisons. With dm_control: the same actor, called once per environment and step, as evaluation code
usually has it (wanted: 6 times faster on two cores). With the bare physics, stepped through the same motions
without policy, observations or rewards (wanted: 0.8 of its speed), for one task and for four in one batch.

Both are MuJoCo as it comes, with its clock, sensors and islands. The *lean* rows take those from the bare
physics too, as our world does (``zol.worlds.dmc.strip``): what then is missing to 1 is policy and rewards.
"""

import os
from collections.abc import Callable

os.environ.setdefault("MUJOCO_GL", "disable")  # dm_control would look for a display

import torch
import tyro
from dm_control import suite
from dm_control.rl.control import flatten_observation

from benchmarks.physics import bare_physics, with_clock
from benchmarks.timing import Case, compare
from zol.models.base import Latent, identity
from zol.models.fb import FBConfig, fb_network
from zol.models.network import Network
from zol.rollout import evaluate
from zol.worlds import make
from zol.worlds.dmc.domain import Array
from zol.worlds.dmc.strip import strip_unused
from zol.worlds.dmc.world import ControlWorld


def main(
    episodes: int = 100, steps: int = 250, reference_episodes: int = 2, repeats: int = 15, json: bool = False
) -> None:
    """Compare speeds.

    Args:
        episodes: Environments evaluated at once.
        steps: Steps per episode. A quarter of an episode, often, instead of all of it a few times: a shared
            machine changes its speed within the ten seconds of a whole one, and then pairs do not compare.
        reference_episodes: Episodes that the dm_control loop runs; its speed does not depend on them.
        repeats: Interleaved repeats; medians are reported.
        json: Print one JSON object per line.
    """
    world = make("walker")
    assert isinstance(world, ControlWorld)
    model = fb_network(FBConfig(obs_dim=24, action_dim=6))
    z = model.project(torch.randn(model.z_dim, generator=torch.Generator().manual_seed(0)))
    latents = [Latent(z, identity(model), task, "random") for task in ("run", "walk", "stand", "spin")]

    def batched(tasks: int, length: int) -> Callable[[], object]:
        return lambda: evaluate(
            world,
            model,
            latents[:tasks],
            episodes=episodes,
            steps=length,
            generator=torch.Generator().manual_seed(0),
        )

    one, few, quarter = batched(1, steps), reference_episodes * steps, max(1, steps // 4)
    loop = dm_control_loop(model, z, steps, reference_episodes)
    stock = world.domain.model
    cases = [Case("walker evaluation / dm_control loop", "steps/s", episodes * steps, one, loop, few)]
    for name, ours, count, length in (
        ("walker evaluation", one, episodes, steps),
        ("4 tasks at once", batched(4, quarter), 4 * episodes, quarter),
    ):
        motion = recorded_motion(world, model, z, count, length)
        for physics, body, clock in (
            ("bare physics", stock, True),
            ("lean bare physics", strip_unused(stock, ()), False),
        ):
            run = bare_physics(body, world.domain.substeps, *motion, clock)
            cases.append(Case(f"{name} / {physics}", "steps/s", count * length, ours, run))
    compare(cases, repeats, json)


@torch.no_grad()
def recorded_motion(
    world: ControlWorld, model: Network, z: torch.Tensor, episodes: int, steps: int
) -> tuple[Array, Array]:
    """Start states and the actions of the policy from there."""
    states = world.reset(episodes, torch.Generator().manual_seed(0))
    starts, actions = world.physics.numpy(), []
    for _ in range(steps):
        actions.append(model.act(states.obs.float(), z).double())
        states = world.step(actions[-1])
    return starts, torch.stack(actions).numpy()


def dm_control_loop(model: Network, z: torch.Tensor, steps: int, episodes: int) -> Callable[[], float]:
    """The plain way: one environment, one policy call per step."""
    env = suite.load("walker", "run", task_kwargs={"random": 0})

    @torch.no_grad()
    def run() -> float:
        total = 0.0
        for _ in range(episodes):
            now = env.reset()
            for _ in range(steps):
                obs = torch.from_numpy(flatten_observation(now.observation)["observations"]).float()
                now = env.step(model.act(obs, z).numpy())
                total += now.reward
        return total

    return with_clock(run)


if __name__ == "__main__":
    tyro.cli(main)
