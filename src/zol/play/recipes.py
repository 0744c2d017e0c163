"""What was done on the page as text: three lines of Python, or one command."""

import json
import shlex

from torch import Tensor

from zol.models.base import Latent


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
