"""zol demonstrate: record what good policies visit, as states without actions."""

from pathlib import Path
from typing import Annotated

from rich.progress import Progress
from tyro.conf import Positional, arg

from zol import session
from zol.collect.demonstrations import Show, record
from zol.collect.experts import ExpertConfig, load_expert, save_expert, train_expert
from zol.common.errors import DataError
from zol.common.interrupts import Stopped
from zol.common.outputs import file_stem, require_place
from zol.common.progress import progress_bar
from zol.common.terminal import terminal
from zol.session import Agent
from zol.worlds import make
from zol.worlds.base import World, find_task


def demonstrate(
    world: Annotated[str, Positional, arg(metavar="WORLD")],
    /,
    out: Path,
    tasks: tuple[str, ...] = (),
    model: str | None = None,
    method: str = "plain",
    latents: tuple[Path, ...] = (),
    episodes: int = 10,
    steps: int = 300,
    skip: int = 0,
    seed: int = 0,
    expert: ExpertConfig = ExpertConfig(),  # noqa: B008
) -> None:
    """Record demonstrations for zol train fb_cpr and zol bench tracking.

    Without a model every task gets an expert of its own, trained on its reward; finished ones are kept beside
    the set, and the same command goes on with the others. With a model its own policies are recorded.

    Args:
        world: Name of the world, such as walker.
        out: Folder of the new set.
        tasks: Names of tasks that are demonstrated.
        model: Checkpoint folder or zoo name, whose latents are recorded instead of experts.
        method: How the model's latents are found, as in zol adapt.
        latents: Files of latents of that model (zol adapt --save), recorded beside the tasks.
        episodes: Episodes of each behaviour.
        steps: Steps of each episode.
        skip: Steps that are played first and not recorded.
        seed: Of start states and experts.
        expert: How experts are trained.
    """
    require_place(out)
    if out.exists() and any(out.iterdir()):
        raise DataError(f"{out} is not empty: choose another folder for the demonstrations")
    place = make(world)
    for task in tasks:
        find_task(place, task)
    if not tasks and not latents:
        raise DataError("there is nothing to demonstrate: --tasks NAMES, or --model RUN --latents FILES")
    if latents and model is None:
        raise DataError("latents belong to a model: give its checkpoint, too (--model RUN)")
    with progress_bar() as progress:
        if model is None:
            shows = _experts(place, tasks, out, expert, seed, progress)
            facts: dict[str, object] = {"how": "experts", "expert": expert.model_dump(mode="json")}
        else:
            agent = session.load(model)
            _require_fit(agent, place)
            shows = _of_model(agent, tasks, method, latents)
            facts = {"how": "model", "model": str(agent.facts.get("weights", ""))}
        data = record(
            place,
            shows,
            out,
            episodes=episodes,
            steps=steps,
            skip=skip,
            seed=seed,
            facts=facts,
            progress=progress,
        )
    names = ", ".join(dict.fromkeys(show.name for show in shows))
    terminal().print(
        f"{out}: {data.episodes:,} motions of {names}, {len(data):,} steps, states only",
        highlight=False,
        soft_wrap=True,
    )


def _experts(
    world: World, tasks: tuple[str, ...], out: Path, config: ExpertConfig, seed: int, progress: Progress
) -> list[Show]:
    folder = out.with_name(f"{out.name}-experts")
    shows: list[Show] = []
    for name in tasks:
        task, file = find_task(world, name), folder / f"{file_stem(name)}.safetensors"
        found = load_expert(world, file, config, seed)
        if found is None:
            try:
                found = train_expert(world, task, config, seed, progress)
            except KeyboardInterrupt as interrupt:
                kept = ", ".join(show.name for show in shows) or "none"
                raise Stopped(
                    f"finished experts ({kept}) are in {folder}, the one of {name} is lost; the same command "
                    "goes on with it"
                ) from interrupt
            folder.mkdir(parents=True, exist_ok=True)
            save_expert(found, file, config, seed)
        shows.append(Show(name, found.best, task))
    return shows


def _of_model(agent: Agent, tasks: tuple[str, ...], method: str, latents: tuple[Path, ...]) -> list[Show]:
    skills = [(name, agent.adapt(name, method)) for name in tasks]
    skills += [(path.stem, agent.skill(path)) for path in latents]
    return [Show(name, skill.act) for name, skill in skills]


def _require_fit(agent: Agent, world: World) -> None:
    sizes, own = (agent.model.obs_dim, agent.model.action_dim), (world.layout.obs_dim, world.action_dim)
    if sizes != own:
        raise DataError(
            f"this model has {sizes[0]} observation and {sizes[1]} action columns, {world.name} has {own[0]} "
            f"and {own[1]}: demonstrate in the world that it was trained in"
        )
