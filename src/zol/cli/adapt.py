"""``zol adapt``: all methods of the registry, each with its own settings as options.

What the options are depends on the method, so the words are read twice: first for ``--method`` alone, then
for the whole command with that method's settings.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import tyro

from zol import report, session
from zol.adapt import METHODS, Adapted, find_method
from zol.adapt.problem import NoSettings
from zol.common.errors import CheckpointError
from zol.common.outputs import require_place
from zol.common.progress import progress_bar
from zol.common.terminal import terminal
from zol.film import require_filming
from zol.models.base import identity
from zol.tasks.from_file import task_from_file
from zol.worlds.gym_env import GymEnvironment

# what the table shows beside the estimate: title → diagnostic, as far as the method tells it
COLUMNS = {
    "ESS": "ess",
    "negative": "negative_share",
    "mean ratio": "mean_ratio",
    "moved": "distance",
    "corr.": "correlation",
    "error": "one_step_error",
    "changed": "changed",
    "gain": "imagined_gain",
    "doubt": "doubt",
    "env. steps": "environment_steps",
}


def adapt(words: Sequence[str]) -> None:
    """Run ``zol adapt`` with the words that follow."""
    tyro.cli(_command(words), prog="zol adapt", args=words, config=(tyro.conf.OmitArgPrefixes,))


def _command(words: Sequence[str]) -> Callable[..., None]:
    """The command whose options are those of the method that the words ask for."""
    method = _method_of(words)
    settings = NoSettings() if method == session.AUTO else find_method(method).settings
    listed = "; ".join(f"{name}: {summary}" for name, summary in METHODS.summaries().items())

    def adapt(
        model: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")],
        task: tuple[str, ...] = (),
        reward: tuple[str, ...] = (),
        method: str = session.AUTO,
        settings: Any = settings,
        start_states: int = session.STARTS,
        episodes: int = 0,
        env: str | None = None,
        seed: int = 0,
        out: Path | None = None,
        video: Path | None = None,
    ) -> None:
        console, agent = terminal(), session.load(model)
        if agent.world is None and env is None and (episodes or video):
            raise CheckpointError(
                f"{agent.path} does not name its world, so nothing can be tested or filmed: --episodes 0, no "
                "--video, or an environment of gymnasium, --env Pendulum-v1"
            )
        if env is not None:  # whether it can be made, and fits, is known before a minute is spent, too
            with GymEnvironment(env) as environment:
                environment.require_sizes(agent.model.obs_dim, agent.model.action_dim)
        wishes: list[session.Wish] = [*task, *map(task_from_file, reward)]
        for wanted in agent.resolve(wishes or None):  # places and extras before a minute is spent on a search
            if out is not None:
                require_place(require_place(out) / f"{wanted.name}.json", folder=False)
            if video is not None:
                require_place(require_place(video, "--video") / f"{wanted.name}.mp4", "--video", folder=False)
        if video is not None and env is None and agent.world is not None:
            require_filming(agent.world)
        chosen = None if method == session.AUTO else settings
        with progress_bar() as progress:
            skills = agent.adapt(
                wishes or None,
                method,
                settings=chosen,
                starts=start_states,
                seed=seed,
                progress=progress,
            )
            tested = None
            if episodes:
                tested = agent.evaluate(skills, episodes, env=env, seed=seed, progress=progress)
        if skills.unrewarded:
            note = f"no reward on any sampled state, left out: {', '.join(skills.unrewarded)}"
            console.print(note, soft_wrap=True)
        where = agent.path if agent.world is None else agent.world.name
        title = f"{skills.found.method} on {where}, model {identity(agent.model)}"
        console.print(report.table(_cells(skills.found, tested), title))
        if out is not None:
            for skill in skills:
                skill.save(out / f"{skill.latent.task}.json")
            console.print(f"{len(skills)} latents are in {out}", soft_wrap=True)
        if video is not None:
            with progress_bar() as progress:
                films = agent.film(skills, video, env=env, seed=seed, progress=progress)
            console.print(f"films: {', '.join(map(str, films))}", soft_wrap=True)

    adapt.__annotations__["settings"] = type(settings)
    adapt.__doc__ = f"""Find the latent for a task or for a reward of your own, from a checkpoint alone.

    Prints an offline estimate of the mean reward per step with its diagnostics; with --episodes also what the
    policy really earns in its world, beside random actions.

    A reward of your own is a function of states in a Python file, one number per state:

        def backwards(s): return (-s["speed"]).clamp(0, 1)

    zol worlds show WORLD lists what s[...] knows; a checkpoint without a world knows s["obs"]. Every method
    has options of its own: zol adapt MODEL --method zol --help.

    Args:
        model: checkpoint folder, a name of the zoo (zol zoo list), or hf://org/name
        task: tasks of the checkpoint's world; all of them if nothing is named
        reward: your own, as FILE.py:NAME; the file is run
        method: auto is rehearse with a learned world, fb without. {listed}
        settings: of the method
        start_states: start states that the ratio averages over
        episodes: test episodes per task; 0 tests nothing
        env: environment of gymnasium to test and film in instead of the checkpoint's world; its own reward
            counts there
        seed: of test episodes and of what is random in the method
        out: folder for the latents, one JSON file per task
        video: folder for films of one episode, TASK.mp4 each (MuJoCo worlds; about 20 s per task)
    """
    return adapt


def _method_of(words: Sequence[str]) -> str:
    """What follows --method; everything else is for the second reading."""

    def only(method: str = session.AUTO) -> str:
        return method

    wanted, _ = tyro.cli(only, args=list(words), return_unknown_args=True, add_help=False)
    return wanted


def _cells(found: Adapted, tested: session.Evaluation | None) -> report.Cells:
    """One row per task: what it earned (if that was tested), the estimate, and diagnostics."""
    shown = {
        title: found.diagnostics[name][0] for title, name in COLUMNS.items() if name in found.diagnostics
    }
    columns = ["task", "estimate", *shown]
    rows = [
        [name, f"{found.estimate[0, t]:.3f}", *(f"{value[t]:.4g}" for value in shown.values())]
        for t, name in enumerate(found.evidence.tasks)
    ]
    if tested is not None:
        columns[1:1] = [f"return of {tested.returns.shape[1]}", "random"]
        for row, earned, chance in zip(rows, tested.intervals, tested.random.mean(1).tolist(), strict=True):
            row[1:1] = [str(earned), report.number(chance)]
    return columns, rows
