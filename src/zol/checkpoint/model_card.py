"""The model card: a checkpoint's README, written from the facts of its run and from nothing else."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from zol.common.markdown import markdown_table
from zol.models.foreign.hub import described

USE = """\
```python
import zol

agent = zol.load("{where}")
skill = agent.adapt(lambda s: {reward})  # any reward; then skill.act(observation)
```
"""
ONE_SEED = (
    "One pretraining seed: runs of other seeds differ by more than the episodes of this one among each other."
)


def model_card(facts: Mapping[str, Any], where: str = "path/to/this/folder") -> str:
    """Markdown from what ``config.json`` says; ``where`` is the address that loads the model."""
    title = facts.get("title", "A behavioural foundation model")
    parts = [f"# {title}", _facts(facts), USE.format(where=where, reward='s["obs"][..., 0]').strip()]
    if facts.get("film"):
        parts.append(f"![Every task of its world]({facts['film']})")
    if facts.get("tested"):
        parts.append(_tested(facts["tested"]))
    if facts.get("returns"):
        parts.append(_returns(facts))
    if facts.get("curve"):
        parts.append(_curve(facts["curve"]))
    if facts.get("metrics"):
        parts.append(_metrics(facts["metrics"][-1]))
    parts.append("## Limits\n\n" + "\n".join(f"- {limit}" for limit in _limits(facts)))
    return "\n\n".join(parts) + "\n"


def _facts(facts: Mapping[str, Any]) -> str:
    rows = [
        ("model", facts["model"]),
        ("observation, action, latent", ", ".join(map(str, facts["sizes"]))),
        ("discount", facts["network"]["discount"]),
        ("weights", facts["weights"]),
        *(
            (name, facts[name])
            for name in (
                "world",
                "data",
                "transitions",
                "own_data",
                "demonstrations",
                "preset",
                "start",
                "steps",
                "seed",
                "license",
            )
            if name in facts
        ),
        *([("origin", described(facts))] if "revision" in facts else []),
        *((name, facts["training"][name]) for name in ("batch_size", "anneal") if "training" in facts),
    ]
    for session in facts.get("sessions", []):
        where = f"{session.get('cpu', '')}, commit {session.get('commit', '')}"
        device = f", {session['gpu']}" if "gpu" in session else ""
        rows.append((f"from step {session['from_step']}", f"`{session['command']}` on {where}{device}"))
    rows.append(("written by", ", ".join(f"{name} {version}" for name, version in facts["versions"].items())))
    return markdown_table(("fact", "value"), rows)


def _tested(tested: Mapping[str, Any]) -> str:
    """What the model earns as it is stored, with intervals: measured after training, on other episodes."""
    rows = []
    for task, cell in tested["returns"].items():
        mean, low, high, chance = (_return(cell[name]) for name in ("mean", "low", "high", "random"))
        rows.append([task, chance, f"{mean} [{low}, {high}]"])
    made = f"`{tested['command']}`\non {tested['cpu']}, commit {tested['commit']}"
    lead = (
        f"Plain prompts from the states in this folder, {tested['episodes']} episodes per task, from start "
        f"states of seed {tested['seed']};\n95 % intervals over episodes.\n{made}."
    )
    return f"## Returns\n\n{lead}\n\n{markdown_table(('task', 'random actions', 'return [95 %]'), rows)}"


def _curve(curve: Mapping[str, Sequence[float]]) -> str:
    """Mean returns over all tasks while it was trained."""
    rows = [
        [f"{step:g}", f"{minutes:.1f}", _number(score)]
        for step, minutes, score in zip(curve["steps"], curve["minutes"], curve["scores"], strict=True)
    ]
    lead = "Mean return over all tasks; minutes of training alone, without tests, on the machine named above."
    return f"## Learning curve\n\n{lead}\n\n{markdown_table(('step', 'minutes', 'mean return'), rows)}"


def _returns(facts: Mapping[str, Any]) -> str:
    tested: Sequence[Mapping[str, float]] = facts["returns"]
    first, last = tested[0], tested[-1]
    tasks = [name.removeprefix("return/") for name in last if name.startswith("return/")]
    rows = [
        [
            task,
            *map(_number, (first.get(f"random/{task}"), first.get(f"return/{task}"), last[f"return/{task}"])),
        ]
        for task in tasks
    ]
    head = ("task", "random actions", f"step {first['step']}", f"step {last['step']}")
    note = f", {facts['episodes']} episodes per task" if facts.get("episodes") else ""
    lead = f"Mean returns of {facts['model']}, prompted in closed form{note}."
    return f"## Returns while it was trained\n\n{lead}\n\n{markdown_table(head, rows)}"


def _metrics(line: Mapping[str, float]) -> str:
    returns = ("return/", "random/")
    rows = [(name, _number(value)) for name, value in line.items() if not name.startswith(returns)]
    return f"## Metrics at the end\n\n{markdown_table(('metric', 'value'), rows)}"


def _limits(facts: Mapping[str, Any]) -> Iterable[str]:
    yield "Knows what its data cover: behaviour that no transition hints at cannot be prompted."
    if "practice" in facts:
        where = facts["practice"].get("world", facts["world"])
        yield f"Not learned offline: its own policies acted in the world {where} while it trained."
    if facts.get("pinned") is False:
        yield (
            f"Fetched from the hub without naming a commit: {described(facts)}. Its address may hold another "
            "model tomorrow; @COMMIT behind it pins it."
        )
    if "data" in facts:
        yield f"Prompts and density ratios are relative to the data {facts['data']}."
    if facts.get("returns"):
        yield ONE_SEED
    elif "steps" in facts:
        yield "No returns were measured while it was trained."


def _return(value: float) -> str:
    """A return of a whole episode, of which a hundredth is nothing."""
    return f"{value:.4g}" if abs(value) >= 0.01 else "0"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"
