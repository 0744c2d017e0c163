"""What skills earn in a world, each by its own task, beside random actions from the same states."""

from collections.abc import Sequence
from typing import Any

import torch
from rich.progress import Progress

from zol.common.progress import shown
from zol.rollout import evaluate, random_returns
from zol.session.evaluation import Evaluation
from zol.session.skill import Skill, joint_policy, played_together
from zol.worlds.base import World


def evaluate_skills(
    world: World,
    model: Any,
    skills: Sequence[Skill],
    episodes: int,
    *,
    seed: int,
    sampled: bool = False,
    progress: Progress | None,
) -> Evaluation:
    """Paired episodes of all skills; those of one behaviour are played together."""
    tasks = [skill.require_task() for skill in skills]
    returns = torch.empty(len(skills), episodes, dtype=torch.float64)
    with shown(progress) as display:
        for rows in played_together(skills):
            played = evaluate(
                world,
                model,
                [skills[k].latent for k in rows],
                tasks=[tasks[k] for k in rows],
                policy=joint_policy([skills[k] for k in rows]),
                sampled=sampled,
                episodes=episodes,
                # of the same seed for each group: all of them start from the same states
                generator=torch.Generator().manual_seed(seed),
                progress=display,
            )
            returns[rows] = played.returns.double()
    generator = torch.Generator().manual_seed(seed)
    random = random_returns(world, tasks, episodes=episodes, generator=generator)
    return Evaluation(
        world=world.name,
        tasks=tuple(task.name for task in tasks),
        methods=tuple(skill.latent.method for skill in skills),
        returns=returns.numpy(),
        random=random.double().numpy(),
        steps=world.episode_length,
    )
