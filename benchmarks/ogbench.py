"""Episodes in OGBench's worlds against the package's own loop: one environment, a policy call per step.

Both sides call the same network, of the size of a small actor, once per step: ours for all environments, the
package's for its only one. 250 environments are what ``zol bench ogbench`` steps at once: fifty episodes of
five tasks. A repeat is an episode of 200 steps, resets included, under a random policy that both sides share
and that the next repeat draws anew: arms that have come among cubes and buttons cost more than arms at a
start, and how much more depends on where a policy takes them. MuJoCo's clock, which zol takes away from a
process (zol.worlds.dmc.strip), is given back for the package's turns, as it runs without zol. Relabelling is
timed, too: a million rows for five tasks.
"""

import time
import warnings
from collections.abc import Callable
from itertools import count

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
EPISODE = 200  # steps; the cube's episodes are no longer


def main(environments: int = 250, episodes: int = 5, repeats: int = 5, json: bool = False) -> None:
    """Compare speeds.

    Args:
        environments: Environments stepped at once.
        episodes: Episodes of the package's environment per repeat.
        repeats: Interleaved repeats; medians are reported.
        json: Print one JSON object per line.
    """
    torch.set_num_threads(1)
    cases = [
        Case(
            f"{name}, {environments} at once / the package's loop",
            "steps/s",
            environments * EPISODE,
            ours(name, environments),
            theirs(name, episodes),
            episodes * EPISODE,
        )
        for name in NAMES
    ]
    compare(cases, repeats, json)
    for name in NAMES:
        print(f"{name}: {ROWS:,} rows for five tasks relabelled in {relabelling(name):.2f} s")


def actor(obs_dim: int, action_dim: int, seed: int) -> nn.Sequential:
    """A random policy of about the size of those that are evaluated."""
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Linear(obs_dim, 256),
        nn.ReLU(),
        nn.Linear(256, 256),
        nn.ReLU(),
        nn.Linear(256, action_dim),
        nn.Tanh(),
    )


def ours(name: str, environments: int) -> Callable[[], Tensor]:
    """One episode of all environments; returns the last observations."""
    world = make(name)
    generator, repeat = torch.Generator().manual_seed(0), count()

    @torch.no_grad()
    def run() -> Tensor:
        stop_clock()
        policy = actor(world.layout.obs_dim, world.action_dim, next(repeat))
        last = world.reset(environments, generator)
        for _ in range(EPISODE):
            last = world.step(policy(last.obs.float()))
        return last.obs

    return run


def theirs(name: str, episodes: int) -> Callable[[], object]:
    """Episodes of the package's environment under the same policies."""
    import ogbench

    how = "navigate" if "maze" in name else "play"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        env = ogbench.make_env_and_datasets(f"{name}-{how}-singletask-task1-v0", env_only=True)
    repeat = count()

    @torch.no_grad()
    def run() -> object:
        mujoco.set_mjcb_time(None)
        policy = actor(env.observation_space.shape[0], env.action_space.shape[0], next(repeat))
        for _ in range(episodes):
            last, _ = env.reset()
            for _ in range(EPISODE):
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
