"""An agent: a checkpoint, its world and a sample of states; from wishes to skills, and what they earn."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, overload

import torch
from rich.progress import Progress
from torch import Tensor

from zol import checkpoint
from zol.adapt import Problem, find_method, solve
from zol.checkpoint import Checkpoint, zoo
from zol.checkpoint.publishing import push
from zol.common.config import Config
from zol.common.errors import CheckpointError, DataError, ZolError
from zol.common.files import new_folder
from zol.common.progress import shown
from zol.data import Dataset
from zol.evidence import Evidence
from zol.export import Exported, export
from zol.fields import Layout
from zol.imagination.learned_world import LearnedWorld
from zol.models.base import Latent, identity
from zol.rollout import evaluate, random_returns
from zol.session.appraisal import Appraisal
from zol.session.environment import evaluate_in, film_in
from zol.session.evaluation import Evaluation
from zol.session.skill import Skill, Skills, joint_policy, played_together
from zol.session.wishes import Wish, Wishes, as_reward, first_line, with_names
from zol.tasks import Starts, Task
from zol.tasks.expression import is_expression, typed_task
from zol.value import ESTIMATORS, ValueEstimate, ValueProblem
from zol.value.base import joined
from zol.value.optidice import optidice
from zol.worlds import make
from zol.worlds.base import World, find_task
from zol.worlds.gym_env import GymEnvironment

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
    """A pretrained model that can be asked for behaviour.

    agent.adapt(reward)          a skill for a function of states, a Task, or the name of a task
    agent.value(skill)           what it would earn per step, estimated offline, with an interval
    agent.evaluate(skill)        what it earns: in the agent's world, or env="Pendulum-v1" of gymnasium
    agent.film(skill, folder)    one episode as .mp4, there, too
    agent.export(folder, skill)  the policy as ONNX, for a robot
    agent.save(folder)           a checkpoint; agent.push_to_hub("organisation/name") publishes it
    agent.tasks, agent.layout    the named tasks of its world, and the fields that rewards may read

    ``zol.load`` opens one, ``zol.pretrain`` makes one from data.
    """

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

    def label(self, tasks: Sequence[Task], *, starts: int = STARTS, seed: int = 0) -> Evidence:
        """The rewards of all tasks on the sample of states, with start states."""
        if self.data is not None:
            generator = torch.Generator().manual_seed(seed)
            found = Evidence.gather(self.data, tasks, self.layout, starts=starts, generator=generator)
        else:
            data = str(self.facts.get("data", ""))
            found = Evidence.from_sample(self.checkpoint.prompt, self.layout, tasks, starts=starts, data=data)
        return found.with_own_starts(self._own_starts(tasks, len(found.starts), seed))

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
                Skill(self.model, latent, task, behaviour, t, problem.domain)
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
        known = self._resolve(latent.task, task) if task is not None else self._known_task(latent.task)
        return Skill(self.model, latent, known, domain="" if self.world is None else self.world.name)

    def _known_task(self, name: str) -> Task | None:
        """The task that a name alone stands for: one of the world, or a reward typed as an expression."""
        if name not in self.tasks and is_expression(name, self.layout):
            with suppress(ZolError):
                return typed_task(name, self.layout, self.tasks)
        return self.tasks.get(name)

    # What it is worth

    def evaluate(
        self,
        skills: Skill | Sequence[Skill],
        episodes: int = 20,
        *,
        env: Any = None,
        seed: int = 0,
        steps: int | None = None,
        progress: Progress | None = None,
    ) -> Evaluation:
        """What skills earn in the world, each by its own task, beside random actions from the same states.

        ``env`` is an environment of gymnasium to play in instead, or its id: ``"Pendulum-v1"``. Its own
        reward is what counts then, and the reward that each skill was asked for stands beside it; ``steps``
        cuts its episodes short.
        """
        chosen = [skills] if isinstance(skills, Skill) else list(skills)
        if not chosen:
            raise DataError("there are no skills to evaluate")
        if env is not None:
            with GymEnvironment(env) as environment, shown(progress) as display:
                return evaluate_in(
                    environment, self.layout, chosen, episodes, seed=seed, steps=steps, progress=display
                )
        if self.world is None:
            raise CheckpointError(
                f"{self.path} does not name its world, so nothing can be tested: evaluate needs a world or "
                'an environment (evaluate(skill, env="Pendulum-v1")); skill.act(obs) works without one'
            )
        if steps is not None:
            raise DataError(f"episodes of {self.world.name} are played whole: steps= is for env=")
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

    @overload
    def value(
        self,
        skills: Skill | Sequence[Skill],
        by: str,
        *,
        starts: int = STARTS,
        seed: int = 0,
        settings: Config | None = None,
        progress: Progress | None = None,
    ) -> ValueEstimate: ...
    @overload
    def value(
        self,
        skills: Skill,
        by: tuple[str, ...] | list[str] | None = None,
        *,
        starts: int = STARTS,
        seed: int = 0,
        settings: Config | None = None,
        progress: Progress | None = None,
    ) -> Appraisal: ...
    @overload
    def value(
        self,
        skills: Sequence[Skill],
        by: tuple[str, ...] | list[str] | None = None,
        *,
        starts: int = STARTS,
        seed: int = 0,
        settings: Config | None = None,
        progress: Progress | None = None,
    ) -> list[Appraisal]: ...
    def value(
        self,
        skills: Skill | Sequence[Skill],
        by: str | tuple[str, ...] | list[str] | None = None,
        *,
        starts: int = STARTS,
        seed: int = 0,
        settings: Config | None = None,
        progress: Progress | None = None,
    ) -> ValueEstimate | Appraisal | list[Appraisal]:
        """What skills would earn per step, each on its own task, without touching an environment.

        By every estimator of zol.value.ESTIMATORS that applies, or by those that are named, side by side and
        with a sentence on which to believe. ``by="lstd"``, one name, gives numbers: an estimate ``[skills]``
        with its interval (``mean``, ``low``, ``high``). ``settings`` instead of an estimator's own.
        """
        chosen = [skills] if isinstance(skills, Skill) else list(skills)
        groups = self._by_task(chosen, starts, seed)
        z = torch.stack([skill.single_latent().z for skill in chosen])

        def estimate(name: str) -> ValueEstimate:
            """Of every skill on its own task, in the order of skills; with the same generator for all."""
            parts = []
            for problem, rows in groups:
                drawn = replace(problem, generator=torch.Generator().manual_seed(seed), progress=display)
                parts.append(ESTIMATORS[name].estimate(drawn, z[rows], settings).on_task(0))
            return joined(parts).at(torch.tensor([k for _, rows in groups for k in rows]).argsort())

        with shown(progress) as display:
            if isinstance(by, str):
                return estimate(by)
            names = list(ESTIMATORS) if by is None else list(by)
            lacking = {name: ESTIMATORS[name].missing(groups[0][0]) for name in names}
            found = {name: estimate(name) for name in names if not lacking[name]}
            best = {} if by is not None else self._supported(groups, seed, display)
        judged = [
            Appraisal(
                task=skill.require_task().name,
                method=skill.latent.method,
                domain="" if self.world is None else self.world.name,
                estimates={name: one.at(torch.tensor(k)) for name, one in found.items()},
                left_out={name: what for name, what in lacking.items() if what},
                steps=None if self.world is None else self.world.episode_length,
                supported=best.get(skill.require_task().name),
            )
            for k, skill in enumerate(chosen)
        ]
        return judged[0] if isinstance(skills, Skill) else judged

    def _by_task(
        self, skills: Sequence[Skill], starts: int, seed: int
    ) -> list[tuple[ValueProblem, list[int]]]:
        """What estimators are given for each task of these skills, and which skills are scored by it."""
        if not skills:
            raise DataError("there are no skills to value")
        tasks = {task.name: task for task in (skill.require_task() for skill in skills)}
        evidence = self.label(list(tasks.values()), starts=starts, seed=seed)
        return [
            (
                ValueProblem(
                    model=self.model,
                    evidence=evidence.only(name),
                    tasks=[task],
                    layout=self.layout,
                    learned_world=self.dynamics,
                ),
                [k for k, skill in enumerate(skills) if skill.require_task().name == name],
            )
            for name, task in tasks.items()
        ]

    def _supported(
        self, groups: Sequence[tuple[ValueProblem, list[int]]], seed: int, progress: Progress
    ) -> dict[str, float]:
        """What the best behaviour within the data's support earns on every task, where that can be said."""
        found = {}
        for problem, _ in groups:
            data = problem.transitions
            if data is None:
                continue
            generator = torch.Generator().manual_seed(seed)
            best = optidice(data, data.rewards, self.model.discount, generator=generator, progress=progress)
            found[data.tasks[0]] = float(best.value[0])
        return found

    def film(
        self,
        skills: Skill | Sequence[Skill],
        folder: str | Path,
        *,
        env: Any = None,
        seed: int = 0,
        steps: int | None = None,
        progress: Progress | None = None,
    ) -> list[Path]:
        """``folder/TASK.mp4`` of one episode of every skill.

        In the agent's own world, if that can draw itself (MuJoCo worlds), or in ``env``: an id of gymnasium,
        or an environment that was made with ``render_mode="rgb_array"``.
        """
        from zol.film import film  # OpenGL, which nothing else here needs

        chosen = [skills] if isinstance(skills, Skill) else list(skills)
        if env is not None:
            with GymEnvironment(env, pictures=True) as environment, shown(progress) as display:
                return film_in(environment, chosen, folder, seed=seed, steps=steps, progress=display)
        if self.world is None:
            raise CheckpointError(
                f"{self.path} does not name its world, so nothing can be filmed: film(skill, folder, env=…) "
                "films an environment of gymnasium"
            )
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

    # Where it goes

    def save(self, folder: str | Path) -> Path:
        """Write a new checkpoint folder with model, sample of states, learned world and model card.

        ``zol.load(folder)`` opens it, here or on another machine.
        """
        with new_folder(Path(folder)) as filling:
            self._write(filling)
        return Path(folder)

    def push_to_hub(
        self, name: str, *, private: bool = False, message: str = "Upload with zol", token: str | None = None
    ) -> str:
        """Upload the checkpoint with its model card to the Hugging Face hub; the address that loads it.

        ``name`` is ``"organisation/name"``; ``zol.load("hf://organisation/name")`` opens it anywhere. Needs
        the extra ``hub`` and a token of the hub (``hf auth login``, or ``token``).
        """
        return push(self._write, name, private=private, message=message, token=token)

    def _write(self, folder: Path) -> None:
        facts = {k: v for k, v in self.facts.items() if k not in checkpoint.OWN_FACTS}
        checkpoint.save(self.model, folder, prompt=self.checkpoint.prompt or None, facts=facts)
        if self.dynamics is not None:
            self.dynamics.save(folder / checkpoint.DYNAMICS)

    def export(self, folder: str | Path, skills: Skill | Sequence[Skill] = (), **options: Any) -> Exported:
        """The policy as ONNX with these skills' latents and a contract (``options`` as in zol.export)."""
        chosen = [skills] if isinstance(skills, Skill) else list(skills)
        return export(self.model, folder, [skill.single_latent() for skill in chosen], **options)
