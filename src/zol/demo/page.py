"""One self-contained HTML page that shows what the demo found."""

import base64
import html
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from zol import report
from zol.demo.figures import headline
from zol.report.render import STYLE

if TYPE_CHECKING:
    from zol.demo.story import Story

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


def render(story: "Story", pictures: Mapping[str, Path]) -> str:
    """The page as one string, pictures embedded."""
    from zol.demo.story import extra_columns

    summary = report.html_table(report.summary(story.scores, "fb", extra_columns(story)))
    per_task = report.html_table(report.per_task(story.scores))
    means = {name: float(values.mean()) for name, values in story.scores.values.items()}
    notes = "".join(f"<li><b>{name}</b>: {html.escape(text)}</li>" for name, text in NOTES.items())
    figures = "".join(
        f'<figure><img alt="{name}" src="{_embedded(path)}">'
        f"<figcaption>{CAPTIONS[name]}</figcaption></figure>"
        for name, path in pictures.items()
    )
    facts = "".join(
        f"<li>{html.escape(str(key))}: {html.escape(str(value))}</li>"
        for key, value in story.scores.facts.items()
    )
    timing = ", ".join(f"{name} {seconds:.0f} s" for name, seconds in story.seconds.items())
    return f"""<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>zol: the donut</title><style>{STYLE}</style>
<h1>Zero-shot off-policy learning on the donut</h1>
<p class="lead">{html.escape(headline(means))}</p>
{summary}
{per_task}
<p><small>{html.escape(report.caveat(story.scores))}. Scores are (1 − γ) Σ γ<sup>t</sup> r, so 1 is the most
one can earn. Fit: correlation of B(s)ᵀz with the reward. Move: relative distance from plain FB's latent.
Est.: the ratio's guess of the mean score, made without any rollout; ESS: the share of the sample behind
it.</small></p>
<ul>{notes}</ul>
{figures}
<h2>How these numbers were made</h2>
<ul>{facts}<li>time: {timing}</li></ul>
</html>
"""


def _embedded(picture: Path) -> str:
    return "data:image/png;base64," + base64.b64encode(picture.read_bytes()).decode()
