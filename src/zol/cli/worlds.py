"""``zol worlds``: which worlds there are, what their observations mean and which tasks they have."""

import inspect
from typing import Annotated

import tyro
from rich.table import Table

from zol.common.terminal import terminal
from zol.fields import Layout
from zol.tasks import Task
from zol.worlds import WORLDS, World, make


def list_() -> None:
    """Print the name of every world with one line about it, those of other packages included."""
    table = Table("world", "what it is", "needs")
    for name, summary in WORLDS.summaries().items():
        extra = WORLDS.own[name].extra if name in WORLDS.own else ""
        table.add_row(name, summary, extra and f".[{extra}]")
    terminal().print(table)


def show(
    name: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="WORLD")] = None,
) -> None:
    """Print a world's observation fields, what is derived from them, and its tasks.

    Args:
        name: Name of the world, as in zol worlds list; without one, all worlds are listed.
    """
    if name is None:
        list_()
        return
    world = make(name)
    console = terminal()
    console.print(
        f"{world.name}: {world.layout.obs_dim} observations, {world.action_dim} actions in "
        f"[-1, 1], {world.episode_length} steps per episode, discount {world.discount:g}"
    )
    console.print(field_table(world.layout))
    console.print(task_table(world))


def field_table(layout: Layout) -> Table:
    """Every name that ``states[name]`` accepts, stored fields first."""
    table = Table(title="fields: states[name]", title_justify="left")
    for heading in ("name", "columns", "unit", "meaning"):
        table.add_column(heading, no_wrap=heading in ("name", "columns"))
    for field in layout.fields:
        last = field.start + field.size - 1
        columns = str(field.start) if field.size == 1 else f"{field.start}-{last}"
        table.add_row(field.name, columns, field.unit, field.meaning)
    for name, function in layout.derived.items():
        table.add_row(name, "derived", "", inspect.getdoc(function) or "")
    return table


def task_table(world: World) -> Table:
    """The world's named tasks, and what they have beside a reward, if any of them has something."""
    table = Table(title="tasks", title_justify="left")
    table.add_column("name", no_wrap=True)
    table.add_column("rewarded")
    beside = {task.name: _beside_reward(task) for task in world.tasks.values()}
    if any(beside.values()):
        table.add_column("has its own")
    for task in world.tasks.values():
        table.add_row(*[task.name, task.description, beside[task.name]][: len(table.columns)])
    return table


def _beside_reward(task: Task) -> str:
    has = {"starts": task.starts, "goal": task.goal, "success": task.success}
    end = ", which ends it" if task.ends_at_success else ""
    return ", ".join(name for name, value in has.items() if value is not None) + end
