"""Collect → pretrain → prompt → adapt → roll out → report, on the paper's toy.

Everything is judged by rollouts from the same start states. The default method is the one that ``zol adapt``
takes for the same checkpoint; its imagined rollouts are as long as the donut's episodes. Reconstruction of
the reward, which the paper's toy figure shows, is printed next to the returns: the two need not agree.
"""

import json
import time
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import Progress
from torch import Tensor

from zol import report, rollout
from zol.adapt import Adapted, perturbed
from zol.collect.donut import collect
from zol.common import files, provenance
from zol.common.outputs import require_place
from zol.common.progress import progress_bar
from zol.common.terminal import terminal
from zol.data import Dataset
from zol.demo import figures, page
from zol.demo.film import Film, make_film
from zol.demo.story import DemoConfig, Story, extra_columns, verdict
from zol.session import Agent, load
from zol.train.learned_world import WorldConfig, learn_world
from zol.train.pretraining import pretrain
from zol.worlds.donut import Donut

CLOSED_FORMS = ("fb", "fb-centred", "ridge")


def run(config: DemoConfig, out: Path, console: Console | None = None) -> Story:
    """Run the demo and write ``out``: raw scores, figures, checkpoint, latents and one page."""
    require_place(out)
    console = console or terminal()
    seconds: dict[str, float] = {}
    clock = time.perf_counter()

    def lap(name: str) -> None:
        nonlocal clock
        seconds[name], clock = time.perf_counter() - clock, time.perf_counter()

    with progress_bar() as progress:
        dataset = collect(config.transitions, torch.Generator().manual_seed(config.seed))
        lap("collect")
        agent = _pretrain(config, dataset, out / "model", progress)
        lap("pretrain")
        default, methods = _adapt(agent, config.seed, progress)
        lap("adapt")
        scores, visited = _test(agent, methods, config, progress)
        lap("roll out")
    world = Donut()
    recon = {name: figures.reconstruction(agent.model, found.z[0], world) for name, found in methods.items()}
    occupancy = {
        name: figures.occupancy(agent.model, found, visited[name]) for name, found in methods.items()
    }
    story = Story(config, agent, default, methods, scores, recon, visited, occupancy, dataset, seconds)
    _write_numbers(story, out)
    pictures = figures.draw(story, world, out)
    lap("figures")
    film = make_film(out, config.seed) if config.film else Film(None, "")
    lap("film")
    files.write_bytes(out / "timing.json", json.dumps(story.seconds, indent=2).encode())
    files.write_bytes(out / "index.html", page.render(story, pictures, film).encode())
    title = "Returns from rollouts on the donut"
    console.print(report.table(report.per_task(scores), title))
    console.print(
        report.table(report.summary(scores, "fb", extra_columns(story)), caption=report.caveat(scores))
    )
    console.print(verdict(scores, default), style="bold", highlight=False)
    console.print(f"everything is in {out}/ ; open {out}/index.html", soft_wrap=True)
    return story


def _pretrain(config: DemoConfig, dataset: Dataset, out: Path, progress: Progress) -> Agent:
    """FB and a learned world on the same data; killed half-way, both go on where they stopped."""
    pretrain(
        dataset,
        "fb",
        out=out,
        steps=config.steps,
        batch_size=config.batch_size,
        hidden=config.hidden,
        backward_hidden=config.hidden,
        z_dim=config.z_dim,
        fourier=3,  # B needs them for the thin frames and arms of the rewards
        seed=config.seed,
        log_every=50,
        save_every=1000,
        dynamics_steps=0,
        progress=progress,
    )
    settings = WorldConfig(steps=config.world_steps, width=config.hidden, seed=config.seed)
    learn_world(dataset, Donut.layout, settings, out, progress=progress)
    return load(out)


def _adapt(agent: Agent, seed: int, progress: Progress) -> tuple[str, dict[str, Adapted]]:
    """All methods, with settings fixed in advance; controls move as far as the searches that they control."""
    tasks, default = list(agent.tasks), agent.method()
    found = {name: agent.adapt(tasks, name, seed=seed).found for name in (*CLOSED_FORMS, "zol")}
    found[default] = agent.adapt(tasks, seed=seed, horizon=Donut.episode_length, progress=progress).found
    plain, generator = found["fb"], torch.Generator().manual_seed(seed + 2)
    for control, search in (("perturb", "zol"), ("perturb-far", default)):
        moved = perturbed(agent.model, plain.evidence, plain.z[0], found[search].distance[0], generator)
        found[control] = moved
    return default, found


def _test(
    agent: Agent, methods: dict[str, Adapted], config: DemoConfig, progress: Progress
) -> tuple[report.Scores, dict[str, Tensor]]:
    latents = [latent for found in methods.values() for latent in found.latents()]
    result = rollout.evaluate(
        Donut(),
        agent.model,
        latents,
        episodes=config.episodes,
        generator=torch.Generator().manual_seed(config.seed + 3),
        keep_visited=True,
        progress=progress,
    )
    tasks = next(iter(methods.values())).evidence.tasks
    table = result.discounted.reshape(len(methods), 1, len(tasks), config.episodes).numpy()
    assert result.visited is not None
    paths = result.visited.reshape(-1, len(methods), len(tasks), config.episodes, 2)
    facts = provenance.of_numbers() | {"score": "(1 − γ) Σ γ^t r", "settings": config.model_dump()}
    scores = report.Scores(tasks, dict(zip(methods, table, strict=True)), facts)
    return scores, {name: paths[:, k] for k, name in enumerate(methods)}


def _write_numbers(story: Story, out: Path) -> None:
    story.scores.save(out / "scores")
    for name, found in story.methods.items():
        for latent in found.latents():
            latent.save(out / "latents" / f"{name}-{latent.task}.json")
    tables = [report.per_task(story.scores), report.summary(story.scores, "fb", extra_columns(story))]
    parts = [verdict(story.scores, story.default), *map(report.markdown, tables), report.caveat(story.scores)]
    files.write_bytes(out / "table.md", ("\n\n".join(parts) + "\n").encode())
