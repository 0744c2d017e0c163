"""``zol value``: what a latent will earn, by every estimator that applies, side by side."""

from pathlib import Path
from typing import Annotated

import tyro

from zol import report, session
from zol.common.errors import ZolError
from zol.common.progress import progress_bar
from zol.common.terminal import terminal
from zol.session.wishes import own_reward


def value(
    model: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")],
    task: tuple[str, ...] = (),
    reward: tuple[str, ...] = (),
    latent: tuple[Path, ...] = (),
    method: str = "plain",
    by: tuple[str, ...] = (),
    start_states: int = session.STARTS,
    seed: int = 0,
) -> None:
    """What a latent will earn, offline: every estimator that applies, and which of them to believe.

    The latent is one that zol adapt --out has written (--latent), or the one that --method finds for a task
    or reward. Estimates are mean rewards per step, and the same as the return of an episode. Likely is where
    the truth lay in zol bench ratios, for estimators of which that held in other worlds, too. ESS is the
    share of the sample that carries a ratio's estimate, mass its mean (1), neg. its share of negative values
    (0), flow how far it violates the Bellman-flow equation (0).

    Estimators that train networks for the latent take seconds to minutes: --by ratio lstd leaves them out.

    Args:
        model: checkpoint folder, a name of the zoo (zol zoo list), or hf://org/name
        task: tasks of the checkpoint's world
        reward: your own: an expression over fields (docs/rewards.md), or FILE.py:NAME; the file is run
        latent: files of latents, each valued on its own task, or on the one --task or --reward
        method: what finds the latent where no file is given
        by: estimators, as in docs/registries.md; all that apply if none is named
        start_states: start states that values average over
        seed: of what is random in methods and estimators
    """
    console, agent = terminal(), session.load(model)
    own = [own_reward(text, agent.layout, agent.tasks) for text in reward]
    wishes: list[session.Wish] = [*task, *own]
    if latent and len(wishes) > 1:
        raise ZolError(
            f"latents are valued on one task, and {len(wishes)} were given: --task or --reward once"
        )
    if not latent and not wishes:
        raise ZolError("nothing to value: name a task (--task walk), a reward or a file (--latent walk.json)")
    with progress_bar() as progress:
        if latent:
            scored = wishes[0] if wishes else None
            skills = [agent.skill(path, agent.resolve([scored])[0] if scored else None) for path in latent]
        else:
            skills = list(agent.adapt(wishes, method, starts=start_states, seed=seed, progress=progress))
        found = agent.value(skills, by or None, starts=start_states, seed=seed, progress=progress)
    for one in found:
        console.print(report.table(one.cells(), one.title))
        for note in one.notes:
            console.print(note, soft_wrap=True)
