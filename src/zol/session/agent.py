"""An agent: a checkpoint, its world and a sample of states; from wishes to skills, and what they earn."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, overload

import torch
from rich.progress import Progress

from zol import checkpoint
from zol.adapt import Problem, find_method, solve
from zol.checkpoint import Checkpoint, zoo
from zol.common.config import Config
from zol.common.errors import CheckpointError, DataError
from zol.common.progress import shown
from zol.data import Dataset
from zol.evidence import Evidence
from zol.export import Exported, export
from zol.fields import Layout
from zol.imagination.learned_world import LearnedWorld
from zol.models.base import Latent, identity
from zol.rollout import evaluate, random_returns
from zol.session.evaluation import Evaluation
from zol.session.skill import Skill, Skills, joint_policy, played_together
from zol.session.wishes import Wish, Wishes, as_reward, first_line, with_names
from zol.tasks import Task
from zol.value import ESTIMATORS, ValueEstimate, ValueProblem
from zol.worlds import make
from zol.worlds.base import World, find_task

AUTO = "auto"
"""The method that fits the checkpoint: ``rehearse`` with a learned world, plain ``fb`` without."""

STARTS = 256  # start states that density ratios average over


def load(path: str | Path, *, discount: float | None = None, data: Dataset | None = None) -> "Agent":
    """Open a pretrained model: a name of the zoo, a checkpoint folder, or ``hf://org/name``.

    ``discount`` is for other projects' models that do not record the one they were trained with. ``data`` are
    states to apply rewards to, for checkpoints that carry no sample of their own.
    """
    where = str(path) if str(path).startswith("hf://") else str(zoo.find(path))
    return Agent(checkpoint.load(where, discount=discount), path=where, data=data)


class Agent:
    """A pretrained model that can be asked for behaviour."""

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

    def __repr__(self) -> str:
        m = self.model
        sizes = f"{m.obs_dim} observations, {m.action_dim} actions, latents of {m.z_dim}"
        where = "no world" if self.world is None else f"world {self.world.name}"
        learned = "with a learned world" if self.dynamics is not None else "without a learned world"
        known = f"tasks: {', '.join(self.tasks)}" if self.tasks else 'rewards read s["obs"]'
        return (
            f"Agent({self.path}: {where}, {learned}, {sizes})\n  {known}\n"
            '  agent.adapt("TASK") or agent.adapt(lambda s: s["FIELD"] > 1.0) gives a skill'
        )

    # What is wanted

    def resolve(self, wishes: Wishes | None = None) -> list[Task]:
        """Tasks from names, tasks and functions of states; all tasks of the world if nothing is named."""
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
            "function of states (on the command line --reward FILE.py:NAME)"
        )

    def label(self, tasks: Sequence[Task], *, starts: int = STARTS, seed: int = 0) -> Evidence:
        """The rewards of all tasks on the sample of states, with start states."""
        if self.data is not None:
            generator = torch.Generator().manual_seed(seed)
            return Evidence.gather(self.data, tasks, self.layout, starts=starts, generator=generator)
        data = str(self.facts.get("data", ""))
        return Evidence.from_sample(self.checkpoint.prompt, self.layout, tasks, starts=starts, data=data)

    def problem(
        self,
        wishes: Wishes | None = None,
        *,
        starts: int = STARTS,
        seed: int = 0,
        world: World | None = None,
        progress: Progress | None = None,
    ) -> Problem:
        """What a method is given: model and labelled sample, without tasks that it holds no reward for."""
        tasks = self.resolve(wishes)
        evidence, _ = self.label(tasks, starts=starts, seed=seed).rewarded_tasks()
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
            progress=progress,
        )

    # From a wish to a skill

    def method(self, name: str = AUTO) -> str:
        """The method's name; ``auto`` is what fits the checkpoint."""
        if name == AUTO:
            return "rehearse" if self.dynamics is not None else "fb"
        find_method(name)
        return name

    @overload
    def adapt(self, wishes: Wish, method: str = AUTO, **settings: Any) -> Skill: ...
    @overload
    def adapt(
        self, wishes: Sequence[Wish] | Mapping[str, Wish] | None = None, method: str = AUTO, **settings: Any
    ) -> Skills: ...
    def adapt(
        self,
        wishes: Wishes | None = None,
        method: str = AUTO,
        *,
        settings: Config | None = None,
        starts: int = STARTS,
        seed: int = 0,
        progress: Progress | None = None,
        **changes: Any,
    ) -> Skill | Skills:
        """The skill for one task or reward; for several (or with none named, all tasks of the world) skills.

        ``method`` is a name of the registry (zol.adapt.METHODS); its settings may be changed by name,
        ``agent.adapt("run", "zol", learning_rate=1e-3)``, or given whole as ``settings``. ``starts`` is the
        number of start states that density ratios average over, ``seed`` that of its randomness.
        """
        name = self.method(method)
        chosen = settings or find_method(name).settings
        chosen = chosen.updated(**changes) if changes else chosen
        tasks = self.resolve(wishes)
        world = None if find_method(name).offline else self._environment(name)
        problem = self.problem(tasks, starts=starts, seed=seed, world=world)
        unrewarded = [task.name for task in tasks if task.name not in problem.tasks]
        if not problem.tasks:
            count = len(self.checkpoint.prompt.get("obs", ())) or "the"
            raise DataError(
                f"no reward on any of {count} sampled states, left out: {', '.join(unrewarded)}; "
                "nothing is left to adapt to"
            )
        with shown(progress) as display:
            behaviour = solve(name, replace(problem, progress=display), chosen)
        skills = Skills(
            [
                Skill(self.model, latent, task, behaviour, t)
                for t, (latent, task) in enumerate(
                    zip(behaviour.found.latents(), problem.ordered_tasks, strict=True)
                )
            ],
            behaviour.found,
            tuple(unrewarded),
        )
        return skills[0] if isinstance(wishes, str | Task) or callable(wishes) else skills

    def _environment(self, method: str) -> World:
        """A world to act in while adapting: not the one of tests, unless a world was given."""
        world = self._given_world if self._given_world is not None else self._make_world()
        if world is None:
            raise CheckpointError(
                f"{method} acts in the environment, and {self.path} does not name its world"
            )
        return world

    def skill(self, path: str | Path, task: Wish | None = None) -> Skill:
        """A skill that was saved; ``task`` says what it is scored by, if that is no task of the world."""
        latent = Latent.load(path)
        latent.require(identity(self.model), self.model.z_dim)
        known = self._resolve(latent.task, task) if task is not None else self.tasks.get(latent.task)
        return Skill(self.model, latent, known)

    # What it is worth

    def evaluate(
        self,
        skills: Skill | Sequence[Skill],
        episodes: int = 20,
        *,
        seed: int = 0,
        progress: Progress | None = None,
    ) -> Evaluation:
        """What skills earn in the world, each by its own task, beside random actions from the same states."""
        if self.world is None:
            raise CheckpointError(
                f"{self.path} does not name its world, so nothing can be tested: evaluate needs a world or "
                "an environment (Agent(checkpoint, world=…)); skill.act(observation) works without one"
            )
        chosen = [skills] if isinstance(skills, Skill) else list(skills)
        if not chosen:
            raise DataError("there are no skills to evaluate")
        tasks = [skill.require_task() for skill in chosen]
        returns = torch.empty(len(chosen), episodes, dtype=torch.float64)
        with shown(progress) as display:
            for rows in played_together(chosen):
                played = evaluate(
                    self.world,
                    self.model,
                    [chosen[k].latent for k in rows],
                    tasks=[tasks[k] for k in rows],
                    policy=joint_policy([chosen[k] for k in rows]),
                    episodes=episodes,
                    # of the same seed for each group: all of them start from the same states
                    generator=torch.Generator().manual_seed(seed),
                    progress=display,
                )
                returns[rows] = played.returns.double()
        generator = torch.Generator().manual_seed(seed)
        random = random_returns(self.world, tasks, episodes=episodes, generator=generator)
        return Evaluation(
            world=self.world.name,
            tasks=tuple(task.name for task in tasks),
            methods=tuple(skill.latent.method for skill in chosen),
            returns=returns.numpy(),
            random=random.double().numpy(),
            steps=self.world.episode_length,
        )

    def value(
        self,
        skills: Skill | Sequence[Skill],
        estimator: str = "ratio",
        *,
        starts: int = STARTS,
        seed: int = 0,
    ) -> ValueEstimate:
        """What skills would earn per step, each on its own task, by an estimator of zol.value.ESTIMATORS.

        An estimate ``[skills]`` with its interval (``mean``, ``low``, ``high``): no environment is touched.
        """
        chosen = [skills] if isinstance(skills, Skill) else list(skills)
        tasks = list({task.name: task for task in (skill.require_task() for skill in chosen)}.values())
        problem = ValueProblem(
            model=self.model,
            evidence=self.label(tasks, starts=starts, seed=seed),
            tasks=tasks,
            layout=self.layout,
            learned_world=self.dynamics,
            generator=torch.Generator().manual_seed(seed),
        )
        z = torch.stack([skill.single_latent().z for skill in chosen])
        every = ESTIMATORS[estimator].estimate(problem, z)  # [skills, tasks]
        own = torch.tensor([tasks.index(skill.require_task()) for skill in chosen])
        rows = torch.arange(len(chosen))
        return ValueEstimate(every.mean[rows, own], every.error[rows, own])

    def film(
        self,
        skills: Skill | Sequence[Skill],
        folder: str | Path,
        *,
        seed: int = 0,
        steps: int | None = None,
        progress: Progress | None = None,
    ) -> list[Path]:
        """``folder/TASK.mp4`` of one episode of every skill (MuJoCo worlds)."""
        from zol.film import film  # OpenGL, which nothing else here needs

        if self.world is None:
            raise CheckpointError(f"{self.path} does not name its world, so nothing can be filmed")
        chosen = [skills] if isinstance(skills, Skill) else list(skills)
        return film(
            self.world,
            self.model,
            [skill.single_latent() for skill in chosen],
            folder,
            generator=torch.Generator().manual_seed(seed),
            tasks=[skill.task for skill in chosen],
            steps=steps,
            progress=progress,
        )

    def export(self, folder: str | Path, skills: Skill | Sequence[Skill] = (), **options: Any) -> Exported:
        """The policy as ONNX with these skills' latents and a contract (``options`` as in zol.export)."""
        chosen = [skills] if isinstance(skills, Skill) else list(skills)
        return export(self.model, folder, [skill.single_latent() for skill in chosen], **options)
