"""``zol adapt``: all methods of the registry, each with its own settings as options.

What the options are depends on the method, so the words are read twice: first for ``--method`` alone, then
for the whole command with that method's settings.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import tyro

from zol import report, session
from zol.adapt import METHODS, Adapted, estimator_of, find_method
from zol.adapt.problem import NoSettings
from zol.cli import run_file
from zol.common.errors import CheckpointError
from zol.common.outputs import file_stem, require_place
from zol.common.progress import progress_bar
from zol.common.terminal import terminal
from zol.data import Dataset
from zol.film import require_filming
from zol.models.base import identity
from zol.session.skill import require_single_latents
from zol.session.wishes import own_reward
from zol.value.accuracy import bounds, likely, told
from zol.worlds.gym_env import GymEnvironment

# what the table shows beside the estimate, as far as the method tells it: title → diagnostic, what it means
COLUMNS = {
    "ESS": ("ess", "share of the sampled states that the estimate rests on; 1 is all of them"),
    "negative": ("negative_share", "share of the states with a negative density ratio; 0 is right"),
    "mean ratio": ("mean_ratio", "of the density ratio over the data; 1 is right"),
    "moved": ("distance", "distance from the plain latent, relative to its length"),
    "corr.": ("correlation", "of imagined and real rewards: how well the learned world predicts them"),
    "error": ("one_step_error", "share of a step's change that the learned world misses"),
    "changed": ("changed", "1 if the plain latent was replaced"),
    "imagined": ("imagined", "reward per step of what acts, in the learned world"),
    "gain": ("imagined_gain", "imagined reward per step beyond the plain latent's"),
    "critic": ("critic_gain", "reward per step beyond the plain latent's, by a critic of the task"),
    "lstd": ("lstd_gain", "the same by the model's own value, corrected on stored transitions"),
    "excess": ("excess", "of the same beyond what the density ratio says of the plain latent"),
    "doubt": ("doubt", "standard deviation of the estimate between the learned worlds"),
    "env. steps": ("environment_steps", "steps that were taken in the environment"),
}
EPISODES = "episodes"  # the estimator of whole imagined episodes
MEAN_RATIO = (0.8, 1.25)  # an estimate by a density ratio whose mean is outside is no estimate


def adapt(words: Sequence[str]) -> None:
    """Run ``zol adapt`` with the words that follow."""
    words = _with_signs(words)
    run_file.run(adapt_command(words), "adapt", words)


def adapt_command(words: Sequence[str]) -> Callable[..., None]:
    """The command whose options are those of the method that the words ask for."""
    method = _method_of(run_file.expanded("adapt", words, "model"))
    settings = NoSettings() if method == session.AUTO else find_method(method).settings
    listed = "; ".join(f"{name}: {summary}" for name, summary in METHODS.summaries().items())

    def adapt(
        model: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")],
        task: Annotated[tuple[str, ...], tyro.conf.arg(metavar="[TASK ...]")] = (),
        reward: Annotated[tuple[str, ...], tyro.conf.arg(metavar="[REWARD ...]")] = (),
        method: Annotated[str, tyro.conf.arg(metavar="METHOD")] = session.AUTO,
        settings: Any = settings,
        start_states: int = session.STARTS,
        episodes: int = 0,
        env: Annotated[str | None, tyro.conf.arg(metavar="ENV")] = None,
        sampled: bool = False,
        data: Path | None = None,
        seed: int = 0,
        out: Path | None = None,
        video: Path | None = None,
    ) -> None:
        console = terminal()
        agent = session.load(model, data=None if data is None else Dataset.open(data))
        if agent.world is None and env is None and (episodes or video):
            raise CheckpointError(
                f"{agent.path} does not name its world, so nothing can be tested or filmed: --episodes 0, no "
                "--video, or an environment of gymnasium, --env Pendulum-v1"
            )
        if env is not None:  # whether it can be made, and fits, is known before a minute is spent, too
            with GymEnvironment(env) as environment:
                environment.require_sizes(agent.model.obs_dim, agent.model.action_dim)
        name = agent.method(method)
        if out is not None:
            require_single_latents(name, "--out")
        if sampled:
            require_single_latents(name, "--sampled")
        if note := agent.too_few_transitions(name):
            console.print(note, soft_wrap=True)
        typed = [own_reward(text, agent.layout, agent.tasks) for text in reward]
        wishes: list[session.Wish] = [*task, *typed]
        for wanted in agent.resolve(wishes or None):  # places and extras before a minute is spent on a search
            if out is not None:
                require_place(require_place(out) / f"{file_stem(wanted.name)}.json", folder=False)
            if video is not None:
                require_place(
                    require_place(video, "--video") / f"{file_stem(wanted.name)}.mp4", "--video", folder=False
                )
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
                tested = agent.evaluate(
                    skills, episodes, env=env, seed=seed, sampled=sampled, progress=progress
                )
        if skills.unrewarded:
            note = f"no reward on any sampled state, left out: {', '.join(skills.unrewarded)}"
            console.print(note, soft_wrap=True)
        for name in skills.found.evidence.constant_tasks():
            note = f"the reward '{name}' is the same in every sampled state: any behaviour earns as much"
            console.print(note, soft_wrap=True)
        where = agent.path if agent.world is None else agent.world.name
        title = f"{skills.found.method} on {where}, model {identity(agent.model)}"
        domain = agent.judged_in(estimator_of(skills.found.method))
        report.print_table(console, _cells(skills.found, tested, domain), title)
        acting = any(skill.behaviour is not None and skill.behaviour.policy is not None for skill in skills)
        for line in _legend(skills.found, tested, domain, more_than_latents=acting):
            console.print(line, highlight=False)
        if out is not None:
            for skill in skills:
                skill.save(out / f"{file_stem(skill.latent.task)}.json")
            console.print(f"{len(skills)} latents are in {out}", soft_wrap=True)
        if video is not None:
            with progress_bar() as progress:
                films = agent.film(skills, video, env=env, seed=seed, progress=progress)
            console.print(f"films: {', '.join(map(str, films))}", soft_wrap=True)

    adapt.__annotations__["settings"] = type(settings)
    adapt.__doc__ = f"""Find the latent for a task or for a reward of your own, from a checkpoint alone.

    Prints an offline estimate of the mean reward per step with its diagnostics; with --episodes also what the
    policy really earns in its world, beside random actions.

    A reward of your own is an expression over fields, --reward "torso_height > 1.0" (docs/rewards.md), or a
    function of states in a Python file, one number per state:

        def backwards(s): return (-s["speed"]).clamp(0, 1)

    zol worlds show WORLD lists what s[...] knows; a checkpoint without a world knows s["obs"]. Every method
    has options of its own: zol adapt MODEL --method zol --help.

    Args:
        model: checkpoint folder, a name of the zoo (zol zoo list), or hf://org/name
        task: tasks of the checkpoint's world; all of them if nothing is named
        reward: your own, typed as an expression (or NAME = EXPRESSION), or FILE.py:NAME, which is run
        method: auto is plain without a learned world; with one, episodes for models that practised and where
            an episode is longer than rehearse looks ahead, and rehearse for others. {listed}
        settings: of the method
        start_states: start states that the ratio averages over
        episodes: test episodes per task; 0 tests nothing
        env: environment of gymnasium to test and film in instead of the checkpoint's world; its own reward
            counts there
        sampled: draw actions from the policy in test episodes instead of taking its mean action
        data: set to take transitions from, instead of the sample that the checkpoint carries; methods that
            train (tune, weighted-bc) need it
        seed: of test episodes and of what is random in the method
        out: folder for the latents, one JSON file per task, if the method gives a latent per task
        video: folder for films of one episode, TASK.mp4 each (MuJoCo worlds; about 20 s per task)
    """
    return adapt


def _with_signs(words: Sequence[str]) -> list[str]:
    """The words with a space before a reward that begins with a minus sign, so that it is not an option."""
    before = ["", *words]
    return [
        f" {word}" if last == "--reward" and word.startswith("-") and not word.startswith("--") else word
        for last, word in zip(before, words, strict=False)
    ]


def _method_of(words: Sequence[str]) -> str:
    """What follows --method; everything else is for the second reading."""

    def only(method: str = session.AUTO) -> str:
        return method

    wanted, _ = tyro.cli(only, args=list(words), return_unknown_args=True, add_help=False)
    return wanted


def _cells(found: Adapted, tested: session.Evaluation | None, domain: str) -> report.Cells:
    """One row per task: what it earned (if that was tested), the estimate, and diagnostics."""
    shown = {
        title: found.diagnostics[name][0] for title, (name, _) in COLUMNS.items() if name in found.diagnostics
    }
    columns = ["task", "estimate", *shown]
    estimates = _estimates(found, domain)
    rows = [
        [name, estimates[t], *(_short(float(value[t])) for value in shown.values())]
        for t, name in enumerate(found.evidence.tasks)
    ]
    if tested is not None:
        columns[1:1] = [f"return of {tested.returns.shape[1]}", "random"]
        for row, earned, chance in zip(rows, tested.intervals, tested.random.mean(1).tolist(), strict=True):
            row[1:1] = [str(earned), report.number(chance)]
    return columns, rows


def _short(value: float) -> str:
    """A diagnostic with three digits; what is nothing but rounding is nothing."""
    return "0" if abs(value) < 1e-5 else f"{value:.3g}"


def _estimates(found: Adapted, domain: str) -> list[str]:
    """The estimate of every task, with its interval where one was measured; none where it means nothing."""
    own = [_estimate(value) for value in found.estimate[0].tolist()]
    if estimator_of(found.method) != EPISODES:
        return own
    rewards = found.evidence.rewards.double()
    ends = likely(EPISODES, found.estimate[0].double(), rewards.amin(-1), rewards.amax(-1), domain)
    if ends is not None and domain:
        both = zip(own, ends.T.tolist(), strict=True)
        own = [f"{text} [{low:.2f}, {high:.2f}]" for text, (low, high) in both]
    believed = found.diagnostics["believed"][0] > 0
    return [text if known else "not known" for text, known in zip(own, believed.tolist(), strict=True)]


def _estimate(value: float) -> str:
    """Three decimals, or three digits where a reward of another unit would show none or dozens of them."""
    return f"{value:.3f}" if value == 0 or 1e-6 < abs(value) < 1e6 else f"{value:.3g}"


def _legend(
    found: Adapted, tested: session.Evaluation | None, domain: str, *, more_than_latents: bool = False
) -> list[str]:
    """What the columns mean, who made the estimates, and which of them are not to be trusted."""
    how = told(estimator_of(found.method), domain)
    lines = [f"estimate: mean reward per step, offline, never measured; {how}"]
    if estimator_of(found.method) == EPISODES:
        steps = int(found.diagnostics["horizon"][0, 0])
        lines = [f"estimate: mean reward per step of imagined episodes of {steps} steps; {how}"]
        if domain and (known := bounds(EPISODES, domain)) is not None:
            share = f"in brackets, where {known.level:.0%} of the true values should lie; {known}"
            lines += [share if known.hold else str(known)]
        if not bool(found.diagnostics["believed"].all()):
            lines += ["not known: the learned world does not predict this reward, so the plain prompt stays"]
    if more_than_latents:
        lines += [f"estimates are of the latent alone; what {found.method} does may earn more or less"]
    if tested is not None:
        episodes, steps = tested.returns.shape[1], tested.steps
        lines += [
            f"return: mean of {episodes} episodes of {steps} steps with its 95 % interval over episodes"
        ]
        lines += [f"random: what random actions earn (an estimate times {steps} compares with a return)"]
    lines += [
        f"{title}: {meaning}" for title, (name, meaning) in COLUMNS.items() if name in found.diagnostics
    ]
    if "imagined_gain" in found.diagnostics and estimator_of(found.method) not in ("imagination", EPISODES):
        lines += [f"imagined rewards were estimated {told('imagination', domain)}"]
    if "mean_ratio" in found.diagnostics:
        ratios = zip(found.evidence.tasks, found.diagnostics["mean_ratio"][0].tolist(), strict=True)
        low, high = MEAN_RATIO
        far = [f"{task} {ratio:.2g}" for task, ratio in ratios if not low <= ratio <= high]
        if far:
            lines += [f"the mean ratio is far from 1, so these estimates cannot be trusted: {', '.join(far)}"]
    return lines
