"""Episodes in OGBench's worlds against the package's own loop: one environment, a policy call per step.

Both sides call the same network, of the size of a small actor, once per step: ours for all environments, the
package's for its only one. 250 environments are what ``zol bench ogbench`` steps at once: fifty episodes of
five tasks. MuJoCo's clock, which zol takes away from a process (zol.worlds.dmc.strip), is given back for the
package's turns, as it runs without zol. Relabelling is timed, too: a million rows for five tasks.
"""

import time
import warnings
from collections.abc import Callable

import mujoco
import numpy as np
import torch
import tyro
from torch import Tensor, nn

from benchmarks.timing import Case, compare
from zol.fields import States
from zol.worlds import make
from zol.worlds.dmc.strip import stop_clock

NAMES = ("antmaze-medium", "cube-single", "puzzle-3x3", "pointmaze-medium")
ROWS = 1_000_000


def main(
    environments: int = 250, steps: int = 2, package_steps: int = 50, repeats: int = 7, json: bool = False
) -> None:
    """Compare speeds.

    Args:
        environments: Environments stepped at once.
        steps: Steps of all of them per repeat.
        package_steps: Steps of the package's environment per repeat.
        repeats: Interleaved repeats; medians are reported.
        json: Print one JSON object per line.
    """
    torch.set_num_threads(1)
    cases = [
        Case(
            f"{name}, {environments} at once / the package's loop",
            "steps/s",
            environments * steps,
            ours(name, environments, steps),
            theirs(name, package_steps),
            package_steps,
        )
        for name in NAMES
    ]
    compare(cases, repeats, json)
    for name in NAMES:
        print(f"{name}: {ROWS:,} rows for five tasks relabelled in {relabelling(name):.2f} s")


def actor(obs_dim: int, action_dim: int) -> nn.Sequential:
    """A policy of about the size of those that are evaluated."""
    return nn.Sequential(
        nn.Linear(obs_dim, 256),
        nn.ReLU(),
        nn.Linear(256, 256),
        nn.ReLU(),
        nn.Linear(256, action_dim),
        nn.Tanh(),
    )


@torch.no_grad()
def ours(name: str, environments: int, steps: int) -> Callable[[], Tensor]:
    """All environments under one policy; returns the last observations."""
    world = make(name)
    policy = actor(world.layout.obs_dim, world.action_dim)
    last = world.reset(environments, torch.Generator().manual_seed(0))

    @torch.no_grad()
    def run() -> Tensor:
        nonlocal last
        stop_clock()
        for _ in range(steps):
            last = world.step(policy(last.obs.float()))
        return last.obs

    return run


def theirs(name: str, steps: int) -> Callable[[], object]:
    """The package's environment under a policy of the same size."""
    import ogbench

    how = "navigate" if "maze" in name else "play"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        env = ogbench.make_env_and_datasets(f"{name}-{how}-singletask-task1-v0", env_only=True)
        first, _ = env.reset(seed=0)
    policy = actor(len(first), env.action_space.shape[0])
    last = first

    @torch.no_grad()
    def run() -> object:
        nonlocal last
        mujoco.set_mjcb_time(None)
        for _ in range(steps):
            action = policy(torch.as_tensor(last, dtype=torch.float32)[None])[0].numpy()
            last, _, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                last, _ = env.reset()
        return last

    return run


def relabelling(name: str) -> float:
    """Seconds for the rewards of a million random observations under five tasks."""
    world = make(name)
    obs = torch.from_numpy(
        np.random.default_rng(0).normal(size=(ROWS, world.layout.obs_dim)).astype(np.float32)
    )
    states = States(obs, world.layout)
    began = time.perf_counter()
    for number in range(1, 6):
        world.tasks[f"task{number}"](states)
    return time.perf_counter() - began


if __name__ == "__main__":
    tyro.cli(main)
