"""One self-contained page that shows what the demo found."""

from collections.abc import Mapping
from pathlib import Path

from zol import report
from zol.demo.story import Story, caveat, extra_columns
from zol.report.html import page

CAPTIONS = {
    "reconstruction": "The paper's toy figure. Left: where the data are. Then the reward, and the reward "
    "that each latent stands for. A sharper picture is not a better return: compare with the table.",
    "occupancy": "Where policies go, and where the density ratio read off the model says they go. Overlap is "
    "one minus the total-variation distance; 1 would be perfect.",
    "search": "What the search saw while it climbed its own objective.",
}

NOTES = {
    "fb": "z = E[B r], plain inference",
    "centred": "the same with the mean reward subtracted",
    "ridge": "least squares r ≈ Bᵀz",
    "zol": "the paper's search with its settings, fixed beforehand",
    "perturb": "control: a random move as long as zol's",
    "zol-far": "the same search with larger steps and a looser trust region",
    "perturb-far": "control: a random move as long as zol-far's",
}


def render(story: Story, pictures: Mapping[str, Path]) -> str:
    """The page as one string, pictures embedded."""
    means = {name: float(values.mean()) for name, values in story.scores.values.items()}
    timing = ", ".join(f"{name} {seconds:.0f} s" for name, seconds in story.seconds.items())
    return page(
        "demo",
        title="zol: the donut",
        headline=headline(means),
        summary=report.summary(story.scores, "fb", extra_columns(story)),
        per_task=report.per_task(story.scores),
        caveat=caveat(story),
        methods=NOTES,
        figures=[(path, CAPTIONS[name]) for name, path in pictures.items()],
        facts={**story.scores.facts, "time": timing},
    )


def headline(means: Mapping[str, float]) -> str:
    """One sentence about the result, whichever way it went."""
    best = max(means, key=lambda name: means[name])
    change = means["zol"] - means["fb"]
    word = "gains" if change > 0 else "loses"
    return (
        f"On this run ZOL {word} {abs(change):.3f} against plain FB ({means['fb']:.3f}), and a random move "
        f"of the same size gives {means['perturb'] - means['fb']:+.3f}; the best method is {best} "
        f"({means[best]:.3f})."
    )
