"""Rewards of stored states: a formula over arrays against set_state and get_reward, one state at a time."""

import os
from collections.abc import Callable

os.environ.setdefault("MUJOCO_GL", "disable")  # dm_control would look for a display

import torch
import tyro
from dm_control import suite

from benchmarks.timing import Case, compare
from zol.fields import States
from zol.worlds import make

TASKS = (("walker", "run"), ("cheetah", "run"), ("quadruped", "walk"))


def main(states: int = 100_000, reference_states: int = 2_000, repeats: int = 5, json: bool = False) -> None:
    """Compare speeds.

    Args:
        states: States that the formula labels.
        reference_states: States that the simulator labels; its speed does not depend on them.
        repeats: Interleaved repeats; medians are reported.
        json: Print one JSON object per line.
    """
    torch.set_num_threads(1)  # one core for both sides
    cases = []
    for domain, task in TASKS:
        ours, reference = formula(domain, task, states), simulator(domain, task, reference_states)
        cases.append(Case(f"relabel {domain} {task}", "states/s", states, ours, reference, reference_states))
    compare(cases, repeats, json)


def visited(domain: str, count: int) -> States:
    """States of random behaviour, repeated up to the wanted number."""
    world, generator = make(domain), torch.Generator().manual_seed(0)
    world.reset(200, generator)
    for _ in range(50):
        states = world.step(torch.rand((200, world.action_dim), generator=generator) * 2 - 1)
    rows = torch.arange(count) % 200
    return States(states.obs[rows].float(), world.layout, physics=world.physics[rows])


def formula(domain: str, task: str, count: int) -> Callable[[], torch.Tensor]:
    """Our way, on float32 observations as data sets store them."""
    states, reward = visited(domain, count), make(domain).tasks[task]
    return lambda: reward(states)


def simulator(domain: str, task: str, count: int) -> Callable[[], float]:
    """The plain way: every state goes through the simulator."""
    env = suite.load(domain, task)
    physics = visited(domain, count).physics
    assert physics is not None
    rows = physics.numpy()

    def run() -> float:
        total = 0.0
        for row in rows:
            with env.physics.reset_context():
                env.physics.set_state(row)
            total += env.task.get_reward(env.physics)
        return total

    return run


if __name__ == "__main__":
    tyro.cli(main)
