"""The demo's pictures: the paper's reconstruction figure, and occupancies visited against predicted."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from zol import measure
from zol.adapt import Adapted
from zol.common.pictures import write_picture
from zol.demo.paths import write_paths
from zol.demo.story import Occupancy, Story
from zol.fields import States
from zol.models.network import Network
from zol.worlds.donut import INNER, OUTER, Donut

FINE, COARSE = 60, 24  # cells per side: for functions, and for the sharp paths of deterministic policies
INK = "#222222"


def grid(cells: int = FINE) -> tuple[Tensor, Tensor]:
    """Cell centres ``[cells², 2]`` over the square around the donut, and which of them lie on it."""
    edge = torch.linspace(-OUTER, OUTER, cells + 1)
    centre = (edge[:-1] + edge[1:]) / 2
    points = torch.stack(torch.meshgrid(centre, centre, indexing="xy"), dim=-1).reshape(-1, 2)
    radius = points.norm(dim=-1)
    return points, (radius >= INNER) & (radius <= OUTER)


def reconstruction(model: Network, z: Tensor, world: Donut) -> list[float]:
    """Correlation of B(s)ᵀz with the reward over a uniform grid, per task."""
    points, inside = grid()
    points = points[inside]
    with torch.no_grad():
        rebuilt = model.backward(points) @ z.mT  # [cells, T]
    rewards = torch.stack([task(States(points, world.layout)) for task in world.tasks.values()])
    return [
        float(torch.corrcoef(torch.stack([a, b]))[0, 1]) for a, b in zip(rebuilt.mT, rewards, strict=True)
    ]


def draw(story: Story, world: Donut, out: Path) -> dict[str, Path]:
    """Write all figures, the first of them moving; name → path."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    paths = {"paths": write_paths(story, world, out / "paths.webp")}
    with plt.rc_context({"font.size": 9, "axes.titlesize": 9, "figure.dpi": 110}):
        for name, figure in {
            "reconstruction": _reconstruction_figure(story, world, plt),
            "occupancy": _occupancy_figure(story, plt),
        }.items():
            paths[name] = write_picture(figure, out / f"{name}.png", bbox_inches="tight")
            plt.close(figure)
    return paths


def _panel(axis: Any, values: Tensor, title: str, *, signed: bool = False) -> None:
    cells = round(len(values) ** 0.5)
    inside = grid(cells)[1]
    picture = torch.where(inside, values, torch.nan).reshape(cells, cells).numpy()
    limit = float(values[inside].abs().max()) or 1.0
    style = {"cmap": "coolwarm", "vmin": -limit, "vmax": limit} if signed else {"cmap": "magma", "vmin": 0.0}
    axis.imshow(picture, origin="lower", extent=(-OUTER, OUTER, -OUTER, OUTER), **style)
    axis.set_title(title, color=INK)
    axis.set_xticks([])
    axis.set_yticks([])
    for side in axis.spines.values():
        side.set_visible(False)


def _histogram(points: Tensor, weights: Tensor | None = None, cells: int = COARSE) -> Tensor:
    """Share of (weighted) points per cell, ``[cells²]``."""
    cell = ((points + OUTER) / (2 * OUTER) * cells).long().clamp(0, cells - 1)
    number = cell[..., 1] * cells + cell[..., 0]
    mass = torch.ones_like(number, dtype=torch.float64) if weights is None else weights.double()
    counts = torch.zeros(cells * cells, dtype=torch.float64)
    counts.scatter_add_(0, number.reshape(-1), mass.expand(number.shape).reshape(-1))
    return counts / counts.sum()


def _reconstruction_figure(story: Story, world: Donut, plt: Any) -> Any:
    """The paper's toy figure: support, reward, and B(s)ᵀz of FB, ZOL and the default."""
    shown = ["fb", "zol", story.default]
    points, _ = grid()
    support = _histogram(story.dataset.transitions().obs, cells=FINE)
    figure, axes = plt.subplots(
        len(story.evidence.tasks), 2 + len(shown), figsize=(11, 2.3 * len(world.tasks)), layout="constrained"
    )
    for t, (name, task) in enumerate(world.tasks.items()):
        _panel(axes[t, 0], support, "data" if t == 0 else "")
        _panel(axes[t, 1], task(States(points, world.layout)), "reward" if t == 0 else "")
        axes[t, 0].set_ylabel(name)
        for k, method in enumerate(shown):
            with torch.no_grad():
                rebuilt = story.agent.model.backward(points) @ story.methods[method].z[0, t]
            corr = story.reconstruction[method][t]
            _panel(axes[t, 2 + k], rebuilt, f"{method if t == 0 else ''} r={corr:.2f}".strip(), signed=True)
    figure.suptitle("Data, reward, and the reward each latent stands for: B(s)ᵀz")
    return figure


def occupancy(model: Network, found: Adapted, visited: Tensor) -> Occupancy:
    """Where a method's policies went, ``[steps, T, E, 2]``, and where the ratio says they go, on a grid."""
    when = model.discount ** torch.arange(len(visited), dtype=torch.float64)
    evidence = found.evidence
    with torch.no_grad():
        mu = measure.forward_mean(model, evidence.starts, found.z[0])
        raw = measure.raw_ratio(model, mu, model.backward(evidence.obs))  # [T, N]
    real = [_histogram(path, when.unsqueeze(-1)) for path in visited.unbind(1)]
    predicted = [_histogram(evidence.obs, row.clamp_min(0.0)) for row in raw]
    return Occupancy(torch.stack(real), torch.stack(predicted), raw.mean(-1))


def _occupancy_figure(story: Story, plt: Any) -> Any:
    """Where the methods really go, beside where the ratio says they go."""
    shown, tasks = ["fb", story.default], story.evidence.tasks
    figure, axes = plt.subplots(
        len(tasks), 2 * len(shown), figsize=(8, 2.1 * len(tasks)), layout="constrained"
    )
    for m, method in enumerate(shown):
        found = story.occupancy[method]
        for t, task in enumerate(tasks):
            _panel(axes[t, 2 * m], found.visited[t] ** 0.25, f"{method}: visited" if t == 0 else "")
            heading = f"{method}: ratio says" if t == 0 else ""
            title = f"{heading} (overlap {found.overlap[t]:.2f})".strip()
            _panel(axes[t, 2 * m + 1], found.predicted[t] ** 0.25, title)
            axes[t, 0].set_ylabel(task)
    figure.suptitle(
        "Discounted occupancy: visited in rollouts, and predicted by the ratio (fourth-root scale)"
    )
    return figure
