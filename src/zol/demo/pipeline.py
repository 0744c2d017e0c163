"""Collect → pretrain → prompt → adapt → roll out → report, on the paper's toy.

Everything is judged by rollouts from the same start states. Reconstruction of the reward, which the paper's
toy figure shows, is printed next to the returns because the two need not agree.
"""

import json
import time
from collections.abc import Mapping
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import Progress
from torch import Tensor

from zol import report, rollout
from zol.adapt import Adapted, ZOLConfig, perturbed, prompted, zol_search
from zol.collect.donut import collect
from zol.common import files, provenance
from zol.common.outputs import require_place
from zol.common.progress import progress_bar
from zol.common.terminal import terminal
from zol.data import Dataset
from zol.demo import figures, page
from zol.demo.story import DemoConfig, Story, caveat, extra_columns
from zol.evidence import Evidence
from zol.models.fb import FBConfig, FBLearner, fb_network
from zol.models.network import Network
from zol.train import TrainConfig, fit
from zol.worlds.donut import Donut


def run(config: DemoConfig, out: Path, console: Console | None = None) -> Story:
    """Run the demo and write ``out``: raw scores, figures, checkpoint, latents and one page."""
    require_place(out)
    console = console or terminal()
    world, seconds = Donut(), {}
    clock = time.perf_counter()

    def lap(name: str) -> None:
        nonlocal clock
        seconds[name], clock = time.perf_counter() - clock, time.perf_counter()

    with progress_bar() as progress:
        dataset = collect(config.transitions, torch.Generator().manual_seed(config.seed))
        lap("collect")
        model = _pretrain(config, dataset, out, progress)
        lap("pretrain")
        evidence = Evidence.gather(
            dataset, world.tasks, world.layout, generator=torch.Generator().manual_seed(config.seed + 1)
        )
        methods = _adapt(model, evidence, config.seed)
        lap("adapt")
        scores, visited = _test(world, model, methods, config, progress)
        lap("roll out")
    recon = {name: figures.reconstruction(model, found.z[0], world) for name, found in methods.items()}
    story = Story(config, model, evidence, methods, scores, recon, visited, dataset, seconds)
    _write(story, world, out)
    lap("figures")
    title = "Returns from rollouts on the donut"
    console.print(report.table(report.per_task(scores), title))
    console.print(report.table(report.summary(scores, "fb", extra_columns(story)), caption=caveat(story)))
    console.print(f"everything is in {out}/ ; open {out}/index.html", soft_wrap=True)
    return story


def _pretrain(config: DemoConfig, dataset: Dataset, out: Path, progress: Progress) -> Network:
    settings = FBConfig(
        obs_dim=2,
        action_dim=2,
        z_dim=config.z_dim,
        discount=Donut.discount,
        hidden=config.hidden,
        backward_hidden=config.hidden,
        learning_rate=5e-4,
        backward_learning_rate=5e-4,
        actor_learning_rate=5e-4,
    )
    model = fb_network(settings, torch.Generator().manual_seed(config.seed))
    training = TrainConfig(
        steps=config.steps,
        batch_size=config.batch_size,
        seed=config.seed,
        log_every=50,
        save_every=1000,
        anneal=0.3,
    )
    facts = {"title": "FB on the donut", "world": "donut"}
    fit(FBLearner(model, settings), dataset, training, out / "model", facts=facts, progress=progress)
    return model.eval()


def _adapt(model: Network, evidence: Evidence, seed: int) -> dict[str, Adapted]:
    """All methods, with settings fixed in advance."""
    plain = prompted(model, evidence)
    searched = zol_search(model, evidence, plain.z[0])
    harder = zol_search(model, evidence, plain.z[0], ZOLConfig(learning_rate=0.02, trust_region=0.001))
    generator = torch.Generator().manual_seed(seed + 2)
    return {
        "fb": plain,
        "centred": prompted(model, evidence, centre=True),
        "ridge": prompted(model, evidence, "ridge"),
        "zol": searched,
        "perturb": perturbed(model, evidence, plain.z[0], searched.distance[0], generator),
        "zol-far": harder,
        "perturb-far": perturbed(model, evidence, plain.z[0], harder.distance[0], generator),
    }


def _test(
    world: Donut, model: Network, methods: Mapping[str, Adapted], config: DemoConfig, progress: Progress
) -> tuple[report.Scores, dict[str, Tensor]]:
    latents = [latent for found in methods.values() for latent in found.latents()]
    generator = torch.Generator().manual_seed(config.seed + 3)
    result = rollout.evaluate(
        world,
        model,
        latents,
        episodes=config.episodes,
        generator=generator,
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


def _write(story: Story, world: Donut, out: Path) -> None:
    story.scores.save(out / "scores")
    for name, found in story.methods.items():
        for latent in found.latents():
            latent.save(out / "latents" / f"{name}-{latent.task}.json")
    pictures = figures.draw(story, world, out)
    tables = [report.per_task(story.scores), report.summary(story.scores, "fb", extra_columns(story))]
    text = "\n".join([*map(report.markdown, tables), caveat(story), ""])
    files.write_bytes(out / "table.md", text.encode())
    files.write_bytes(out / "timing.json", json.dumps(story.seconds, indent=2).encode())
    files.write_bytes(out / "index.html", page.render(story, pictures).encode())
