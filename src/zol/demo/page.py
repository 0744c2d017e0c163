"""One self-contained page that shows what the demo found."""

from collections.abc import Mapping
from pathlib import Path

from zol import report
from zol.demo.film import Film
from zol.demo.story import Story, extra_columns, verdict
from zol.report.html import page

CAPTIONS = {
    "paths": "Every dot is an episode; yellow is where the reward lies. Above plain FB's latents, below "
    "those of the default method, from the same start states; the numbers are the scores of the table.",
    "reconstruction": "The paper's toy figure. Left: where the data are. Then the reward, and the reward "
    "that each latent stands for. A sharper picture is not a better return: compare with the table.",
    "occupancy": "Where policies go, and where the density ratio read off the model says they go. Overlap is "
    "one minus the total-variation distance; 1 would be perfect.",
}

NOTES = {
    "fb": "z = E[B r], plain inference",
    "fb-centred": "the same with the mean reward subtracted",
    "ridge": "least squares r ≈ Bᵀz",
    "zol": "the paper's search with its settings, fixed beforehand",
    "rehearse": "the default of zol adapt: latents are played in a learned world, and the best one replaces "
    "plain FB's only where it earns more there",
    "perturb": "control: a random move as long as zol's",
    "perturb-far": "control: a random move as long as that of the default",
}


def render(story: Story, pictures: Mapping[str, Path], film: Film) -> str:
    """The page as one string, pictures embedded."""
    timing = ", ".join(f"{name} {seconds:.0f} s" for name, seconds in story.seconds.items())
    captioned = {name: (path, CAPTIONS[name]) for name, path in pictures.items()}
    return page(
        "demo",
        title="zol: the donut",
        headline=verdict(story.scores, story.default),
        moving=captioned.pop("paths"),
        film=film,
        summary=report.summary(story.scores, "fb", extra_columns(story)),
        per_task=report.per_task(story.scores),
        caveat=report.caveat(story.scores),
        methods={name: NOTES[name] for name in story.methods},
        figures=list(captioned.values()),
        facts={**story.scores.facts, "time": timing},
    )
