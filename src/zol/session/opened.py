"""A checkpoint with the world that it names and a sample of states: from wishes to labelled problems."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any

import torch
from rich.progress import Progress
from torch import Tensor

from zol.adapt import Problem, find_method
from zol.checkpoint import Checkpoint
from zol.common.errors import CheckpointError, DataError, ZolError
from zol.data import Dataset
from zol.evidence import SAMPLES, Evidence
from zol.fields import Layout
from zol.imagination.learned_world import LearnedWorld
from zol.models.network import Network
from zol.models.trained_latents import trained_latents
from zol.session.wishes import Wish, Wishes, as_reward, first_line, with_names
from zol.tasks import Starts, Task
from zol.tasks.expression import is_expression, typed_task
from zol.value.accuracy import of_practised
from zol.worlds import make
from zol.worlds.base import World, find_task

STARTS = 256  # start states that density ratios average over


class OpenedModel:
    """What an agent knows, and how a wish becomes a task with rewards on the sample."""

    def __init__(
        self,
        loaded: Checkpoint,
        *,
        world: World | None = None,
        data: Dataset | None = None,
        path: str = "this model",
    ) -> None:
        """``world`` instead of the one that the checkpoint names; ``data`` instead of its own sample."""
        self.checkpoint, self.path, self.data = loaded, path, data
        model = loaded.model
        if data is not None and (data.obs_dim, data.action_dim) != (model.obs_dim, model.action_dim):
            raise DataError(
                f"these data have {data.obs_dim} observations and {data.action_dim} actions, {path} takes "
                f"{model.obs_dim} and {model.action_dim}: bring data of the world that it was trained in"
            )
        self._given_world = world

    @cached_property
    def world(self) -> World | None:
        """The world it was trained in, made when it is first asked for; None if nobody has named one."""
        return self._given_world if self._given_world is not None else self._make_world()

    def _make_world(self) -> World | None:
        named = self.facts.get("world")
        return make(str(named)) if named else None

    @property
    def model(self) -> Any:
        """The network: a torch module that fulfils the Model contract (zol.models.base)."""
        return self.checkpoint.model

    @property
    def facts(self) -> Mapping[str, Any]:
        """What the checkpoint says about how the model was made."""
        return self.checkpoint.facts

    @property
    def dynamics(self) -> LearnedWorld | None:
        """The learned world that the checkpoint carries, if it does."""
        return self.checkpoint.dynamics

    @property
    def tasks(self) -> Mapping[str, Task]:
        """The named tasks of its world; none without a world."""
        return {} if self.world is None else self.world.tasks

    @property
    def layout(self) -> Layout:
        """What ``s[...]`` knows inside a reward: the world's fields, or ``s["obs"]`` alone."""
        return self.world.layout if self.world is not None else Layout.plain(self.model.obs_dim)

    @property
    def judged_domain(self) -> str:
        """The domain in which accuracies of estimators hold for this model: they were measured on FB's."""
        return self.world.name if self.world is not None and self.facts.get("model") == "fb" else ""

    def judged_in(self, estimator: str) -> str:
        """The domain in which an estimator's accuracy holds for this model; empty if none was measured."""
        if not of_practised(estimator):
            return self.judged_domain
        return self.world.name if self.world is not None and "practice" in self.facts else ""

    # What is wanted

    def resolve(self, wishes: Wishes | None = None) -> list[Task]:
        """Tasks from names, expressions, tasks and functions of states; by default all of the world."""
        if wishes is None:
            if self.world is None:
                raise self._no_named_tasks()
            return list(self.tasks.values())
        tasks = [self._resolve(name, wish) for name, wish in with_names(wishes)]
        names = [task.name for task in tasks]
        if len(set(names)) < len(names):
            raise DataError(f"rewards need names of their own, got {', '.join(names)}")
        return tasks

    def _resolve(self, name: str, wish: Wish) -> Task:
        if isinstance(wish, str):
            if wish not in self.tasks and is_expression(wish, self.layout):
                return typed_task(wish, self.layout, self.tasks, None if name == wish else name)
            if self.world is None:
                raise self._no_named_tasks()
            return find_task(self.world, wish)
        task = wish if isinstance(wish, Task) else Task(name, as_reward(wish), first_line(wish))
        if self.world is not None and self.tasks.get(task.name, task) is not task:
            raise DataError(
                f"{self.world.name} has a task '{task.name}' of its own: give your reward another name"
            )
        return task

    def _no_named_tasks(self) -> CheckpointError:
        return CheckpointError(
            f"{self.path} does not name its world, so it has no named tasks: bring a reward of your own, a "
            "function of states (on the command line --reward FILE.py:NAME) or text such as 'obs[0] > 0'"
        )

    def label(
        self, tasks: Sequence[Task], *, starts: int = STARTS, seed: int = 0, samples: int = SAMPLES
    ) -> Evidence:
        """The rewards of all tasks on the sample of states, with start states.

        ``samples`` is its size where there are data; the sample of a checkpoint is taken as it is.
        """
        if self.data is not None:
            generator = torch.Generator().manual_seed(seed)
            found = Evidence.gather(
                self.data, tasks, self.layout, samples=samples, starts=starts, generator=generator
            )
        else:
            data = str(self.facts.get("data", ""))
            found = Evidence.from_sample(self.checkpoint.prompt, self.layout, tasks, starts=starts, data=data)
        return found.with_own_starts(self._own_starts(tasks, len(found.starts), seed))

    def too_few_transitions(self, method: str) -> str:
        """A sentence if the method wants many more transitions than the checkpoint's sample; else empty."""
        wanted = find_method(method).samples
        if self.data is not None or wanted <= SAMPLES:
            return ""
        return (
            f"{method} learns from transitions and wants {wanted:,}: without data of its own it has the few "
            "thousand that travel with the checkpoint, so bring the data that the model was trained on, "
            "--data FOLDER or zol.load(path, data=dataset)"
        )

    def _own_starts(self, tasks: Sequence[Task], count: int, seed: int) -> dict[str, Tensor]:
        """Start states ``[count, D]`` of the tasks that begin in states of their own."""
        if self.world is None:
            return {}
        drawn: dict[Starts, Tensor] = {}
        for task in tasks:
            if task.starts is not None and task.starts not in drawn:
                physics = task.starts(count, torch.Generator().manual_seed(seed))
                drawn[task.starts] = self.world.observe(physics).float()
        return {task.name: drawn[task.starts] for task in tasks if task.starts is not None}

    def problem(
        self,
        wishes: Wishes | None = None,
        *,
        starts: int = STARTS,
        seed: int = 0,
        samples: int = SAMPLES,
        world: World | None = None,
        progress: Progress | None = None,
    ) -> Problem:
        """What a method is given: model and labelled sample, without tasks that it holds no reward for."""
        tasks = self.resolve(wishes)
        evidence, _ = self.label(tasks, starts=starts, seed=seed, samples=samples).rewarded_tasks()
        return Problem(
            model=self.model,
            evidence=evidence,
            domain="" if self.world is None else self.world.name,
            tasks={task.name: task for task in tasks if task.name in evidence.tasks},
            layout=self.layout,
            world=world,
            dynamics=self.dynamics,
            seed=seed,
            prompt=self.checkpoint.default_prompt,
            episode_length=None if self.world is None else self.world.episode_length,
            dataset=str(self.facts.get("dataset", "")),
            trained=self._trained_latents if isinstance(self.model, Network) else None,
            progress=progress,
        )

    def _trained_latents(self, count: int, generator: torch.Generator) -> Tensor:
        """Latents ``[count, d]`` as the model met them in training; its sample stands for the data."""
        states = self.checkpoint.prompt.get("obs")
        return trained_latents(self.model, self.facts, states, self.layout, seed=0)(count, generator)

    def environment(self, method: str) -> World:
        """A world to act in while adapting: not the one of tests, unless a world was given."""
        world = self._given_world if self._given_world is not None else self._make_world()
        if world is None:
            raise CheckpointError(
                f"{method} acts in the environment, and {self.path} does not name its world"
            )
        return world

    def _known_task(self, name: str) -> Task | None:
        """The task that a name alone stands for: one of the world, or a reward typed as an expression."""
        if name not in self.tasks and is_expression(name, self.layout):
            with suppress(ZolError):
                return typed_task(name, self.layout, self.tasks)
        return self.tasks.get(name)
