"""What a visitor takes home: the shown latent as a file, a policy or a film, and the way to find it again."""

import json
import shlex
from dataclasses import replace
from pathlib import Path

from torch import Tensor

from zol.common.outputs import file_stem
from zol.models.base import Latent
from zol.play.session import PlaySession

NAME = 80  # characters of a reward that go into the name of a file


def save(session: PlaySession) -> Path:
    """Write the shown latent; ``agent.skill(path)`` reads it."""
    skill = session.skill
    path = session.out / f"{file_stem(skill.latent.task)[:NAME]} by {skill.latent.method}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    skill.save(path)
    return path


def export(session: PlaySession) -> Path:
    """Write the policy as ONNX with the shown latent."""
    rate = 1 / session.body.timestep
    return session.agent.export(session.out / "onnx", session.skill, rate=rate).folder


def film(session: PlaySession, seconds: float = 10.0) -> Path:
    """Write a film of the shown latent, from a fresh start state."""
    skill = session.skill
    short = replace(skill, latent=replace(skill.latent, task=skill.latent.task[:NAME]))
    return session.agent.film(short, session.out, steps=round(seconds / session.body.timestep))[0]


def python(session: PlaySession) -> str:
    """Python that finds the shown latent again."""
    return as_python(session.name, session.text, session.source, session.prompted.task.goal)


def command(session: PlaySession) -> str:
    """The command that finds the shown latent again."""
    return as_command(session.name, session.text, session.source, session.text in session.agent.tasks)


def as_python(model: str, reward: str, latent: Latent, goal: Tensor | None = None) -> str:
    """Python that finds this latent again; ``reward`` is the text that was asked for, or FILE.py:NAME."""
    lines = ["import zol", "", f"agent = zol.load({json.dumps(model)})"]
    if goal is not None and latent.method == "goal":
        numbers = ", ".join(f"{value:.6g}" for value in goal.tolist())
        lines[0] = "import torch\nimport zol"
        return "\n".join(
            [*lines, f"goal = torch.tensor([{numbers}])", "z = zol.prompt.goal(agent.model, goal)"]
        )
    wish = json.dumps(reward, ensure_ascii=False)
    if ".py:" in reward:
        lines.insert(1, "from zol.tasks.from_file import task_from_file")
        wish = f"task_from_file({wish})"
    return "\n".join(
        [
            *lines,
            f'skill = agent.adapt({wish}, "{latent.method}")',
            "print(agent.evaluate(skill, episodes=20))",
        ]
    )


def as_command(model: str, reward: str, latent: Latent, is_task: bool) -> str:
    """The command that finds this latent again and tests it; '' for goals, which have none."""
    if latent.method == "goal":
        return "(a goal is prompted in Python only)"
    option = "--task" if is_task else "--reward"
    words = ["zol", "adapt", model, option, reward, "--method", latent.method, "--episodes", "20"]
    return shlex.join(words)
