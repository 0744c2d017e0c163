"""What the tasks of OGBench share: rewards that count what is missing, and td_jepa's shift by one.

The package's single-task reward is the number of sub-goals that a state fulfils minus their total: 0 where
the task is solved, negative elsewhere. A mean of B weighted with such rewards mostly says "not here",
wherever that is, so td_jepa adds one to every reward before it infers a latent. That convention has a name
here: task ``task1_shifted`` is ``task1`` with rewards one higher, and equal in everything else. Success is
the same for both.

The package has two timings of a reward. With 'post', that of its goal-conditioned environments, a step is
paid for the state that it led to, as everywhere in zol. With 'pre', that of its single-task environments
since 1.2.0, it is paid for the state that it began in, and so a goal that is reached in the last step of an
episode is never seen. Rewards themselves are functions of one state, so timing is only which state they are
asked about: ``GymView(..., timing="pre")`` asks about the earlier one.
"""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from zol.fields import States
from zol.tasks import Starts, Task

SHIFT = 1.0  # td_jepa's
SHIFTED = "_shifted"  # ends the names of tasks whose rewards are one higher
Fulfilled = Callable[[States], Tensor]
"""Which sub-goals states ``[...]`` fulfil, ``[..., G]`` of truth values."""


def goal_tasks(
    name: str,
    description: str,
    fulfilled: Fulfilled,
    starts: Starts,
    goal: Tensor,
    place: tuple[float, ...] | None = None,
) -> tuple[Task, Task]:
    """A task of the package, and the same with td_jepa's shift.

    ``fulfilled`` says which sub-goals a state fulfils; a state that fulfils all of them solves the task and
    ends the episode.
    """

    def reward(states: States) -> Tensor:
        solved = fulfilled(states)
        return solved.sum(-1).to(torch.float64) - solved.shape[-1]

    task = Task(
        name,
        reward,
        description,
        starts=starts,
        goal=goal,
        success=lambda states: fulfilled(states).all(-1),
        ends_at_success=True,
        place=place,
    )
    return task, shifted(task)


def shifted(task: Task) -> Task:
    """The same task with every reward one higher, as td_jepa labels data before it infers a latent."""
    return replace(
        task,
        name=task.name + SHIFTED,
        reward=lambda states: task.reward(states) + SHIFT,
        description=f"{task.description}; rewards one higher, as in td_jepa",
    )
