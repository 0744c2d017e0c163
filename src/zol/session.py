"""The library in the words of a user: load an agent, ask it for a skill, act, and see what that earns.

    agent = zol.load("walker")                                  # a name of the zoo, a folder, or hf://org/name
    skill = agent.adapt(lambda s: s["torso_height"] > 1.2)      # a function of states, a Task or its name
    action = skill.act(observation)                             # NumPy in, NumPy out; batches, too
    print(agent.evaluate(skill, episodes=20))                   # beside random actions, with an interval

An :class:`Agent` is a checkpoint, the world that it names (if it names one) and a sample of states that
rewards are applied to. Command line, benchmark and users share what is here: opening a checkpoint, turning
wishes into tasks, labelling the sample, and running a method of the registry (zol.adapt.METHODS).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from inspect import getdoc
from pathlib import Path
from typing import Any, overload

import numpy as np
import torch
from numpy.typing import NDArray
from rich.progress import Progress
from torch import Tensor

from zol import checkpoint, report
from zol.adapt import Adapted, Behaviour, Problem, find_method, solve
from zol.checkpoint import Checkpoint, zoo
from zol.common.config import Config
from zol.common.errors import CheckpointError, DataError, unknown_name
from zol.data import Dataset
from zol.evidence import Evidence
from zol.export import Exported, export
from zol.fields import Layout, States
from zol.imagination.learned_world import LearnedWorld
from zol.models.base import Latent, Model, identity
from zol.rollout import Policy, evaluate, random_returns
from zol.tasks import Task
from zol.tasks.task import Reward
from zol.worlds import make
from zol.worlds.base import World, find_task

Wish = str | Task | Reward
"""What a user may ask for: the name of a task of the world, a task, or a function of states."""

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
        named = loaded.facts.get("world")
        self.world = world if world is not None or not named else make(str(named))

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

    def resolve(self, wishes: "Wish | Sequence[Wish] | Mapping[str, Wish] | None" = None) -> list[Task]:
        """Tasks from names, tasks and functions of states; all tasks of the world if nothing is named."""
        if wishes is None:
            if self.world is None:
                raise self._no_named_tasks()
            return list(self.tasks.values())
        named = _named(wishes)
        tasks = [self._resolve(name, wish) for name, wish in named]
        names = [task.name for task in tasks]
        if len(set(names)) < len(names):
            raise DataError(f"rewards need names of their own, got {', '.join(names)}")
        return tasks

    def _resolve(self, name: str, wish: Wish) -> Task:
        if isinstance(wish, str):
            if self.world is None:
                raise self._no_named_tasks()
            return find_task(self.world, wish)
        task = wish if isinstance(wish, Task) else Task(name, as_reward(wish), _first_line(wish))
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
        wishes: "Wish | Sequence[Wish] | Mapping[str, Wish] | None" = None,
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
    def adapt(self, wishes: Wish, method: str = AUTO, **settings: Any) -> "Skill": ...
    @overload
    def adapt(
        self, wishes: Sequence[Wish] | Mapping[str, Wish] | None = None, method: str = AUTO, **settings: Any
    ) -> "Skills": ...
    def adapt(
        self,
        wishes: "Wish | Sequence[Wish] | Mapping[str, Wish] | None" = None,
        method: str = AUTO,
        *,
        settings: Config | None = None,
        starts: int = STARTS,
        seed: int = 0,
        progress: Progress | None = None,
        **changes: Any,
    ) -> "Skill | Skills":
        """The skill for one task or reward; for several (or with none named, all tasks of the world) skills.

        ``method`` is a name of the registry (zol.adapt.METHODS); its settings may be changed by name,
        ``agent.adapt("run", "zol", learning_rate=1e-3)``, or given whole as ``settings``. ``starts`` is the
        number of start states that density ratios average over, ``seed`` that of its randomness.
        """
        name = self.method(method)
        chosen = settings or find_method(name).settings
        chosen = chosen.but(**changes) if changes else chosen
        tasks = self.resolve(wishes)
        world = None if find_method(name).offline else self._environment(name)
        problem = self.problem(tasks, starts=starts, seed=seed, world=world, progress=progress)
        unrewarded = [task.name for task in tasks if task.name not in problem.tasks]
        if not problem.tasks:
            count = len(self.checkpoint.prompt.get("obs", ())) or "the"
            raise DataError(
                f"no reward on any of {count} sampled states, left out: {', '.join(unrewarded)}; "
                "nothing is left to adapt to"
            )
        behaviour = solve(name, problem, chosen)
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
        """A fresh world to act in while adapting."""
        named = self.facts.get("world")
        if named:
            return make(str(named))
        if self.world is None:
            raise CheckpointError(
                f"{method} acts in the environment, and {self.path} does not name its world"
            )
        return self.world

    def skill(self, path: str | Path, task: Wish | None = None) -> "Skill":
        """A skill that was saved; ``task`` says what it is scored by, if that is no task of the world."""
        latent = Latent.load(path)
        latent.require(identity(self.model))
        known = self._resolve(latent.task, task) if task is not None else self.tasks.get(latent.task)
        return Skill(self.model, latent, known)

    # What it is worth

    def evaluate(
        self,
        skills: "Skill | Sequence[Skill]",
        episodes: int = 20,
        *,
        seed: int = 0,
        progress: Progress | None = None,
    ) -> "Evaluation":
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
        for rows in _played_together(chosen):
            played = evaluate(
                self.world,
                self.model,
                [chosen[k].latent for k in rows],
                tasks=[tasks[k] for k in rows],
                policy=_joint_policy([chosen[k] for k in rows]),
                episodes=episodes,
                # of the same seed for each group: all of them start from the same states
                generator=torch.Generator().manual_seed(seed),
                progress=progress,
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

    def film(
        self,
        skills: "Skill | Sequence[Skill]",
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
        latents = [skill.single_latent() for skill in ([skills] if isinstance(skills, Skill) else skills)]
        generator = torch.Generator().manual_seed(seed)
        return film(
            self.world, self.model, latents, folder, generator=generator, steps=steps, progress=progress
        )

    def export(self, folder: str | Path, skills: "Skill | Sequence[Skill]" = (), **options: Any) -> Exported:
        """The policy as ONNX with these skills' latents and a contract (``options`` as in zol.export)."""
        chosen = [skills] if isinstance(skills, Skill) else list(skills)
        return export(self.model, folder, [skill.single_latent() for skill in chosen], **options)


@dataclass(frozen=True)
class Skill:
    """Behaviour for one task: a latent of a frozen model, or several to choose from in every state."""

    model: Model
    latent: Latent
    task: Task | None = None  # what it is scored by
    behaviour: Behaviour | None = None  # the adaptation that it came from,
    row: int = 0  # and its place there

    @property
    def estimate(self) -> float | None:
        """The method's offline estimate of the mean reward per step; not a measured return."""
        return self.latent.estimate

    @overload
    def act(self, observation: NDArray[Any]) -> NDArray[np.float32]: ...
    @overload
    def act(self, observation: Tensor) -> Tensor: ...
    @torch.no_grad()
    def act(self, observation: NDArray[Any] | Tensor) -> NDArray[np.float32] | Tensor:
        """Actions ``[..., A]`` in [−1, 1] for raw observations ``[..., D]``: NumPy for NumPy, or torch."""
        given = observation if isinstance(observation, Tensor) else torch.as_tensor(np.asarray(observation))
        if given.ndim == 0 or given.shape[-1] != self.model.obs_dim:
            raise DataError(
                f"an observation has {self.model.obs_dim} columns, got shape {tuple(given.shape)}: expected "
                f"[{self.model.obs_dim}] or [batch, {self.model.obs_dim}]"
            )
        obs = given.to(self.latent.z.device, self.latent.z.dtype)
        policy = _joint_policy([self])
        if policy is None:
            action = self.model.act(obs, self.latent.z.expand(*obs.shape[:-1], -1))
        else:
            action = policy(obs.reshape(1, -1, obs.shape[-1])).reshape(*obs.shape[:-1], -1)
        return action if isinstance(observation, Tensor) else action.cpu().numpy()

    def save(self, path: str | Path) -> None:
        """Write the skill as one JSON file; ``agent.skill(path)`` reads it."""
        self.single_latent().save(path)

    def single_latent(self) -> Latent:
        """Its latent, where that is all there is to it."""
        if self.behaviour is not None and self.behaviour.policy is not None:
            raise DataError(
                f"{self.latent.method} chooses among several latents in every state, so one latent is not "
                "all of it: save, film or export a skill of another method"
            )
        return self.latent

    def require_task(self) -> Task:
        """The task that it is scored by."""
        if self.task is None:
            raise DataError(
                f"this skill is for '{self.latent.task}', which is no task of the world: say what it is "
                "scored by, agent.skill(path, task=reward)"
            )
        return self.task

    def __repr__(self) -> str:
        estimate = (
            "" if self.estimate is None else f", expected reward per step {self.estimate:.3g} (offline)"
        )
        return f"Skill({self.latent.task} by {self.latent.method}{estimate}); skill.act(observation) acts"


class Skills(Sequence[Skill]):
    """The skills of several tasks that were adapted together."""

    def __init__(self, skills: Sequence[Skill], found: Adapted, unrewarded: tuple[str, ...]) -> None:
        """``found`` is the adaptation with its diagnostics, ``unrewarded`` are tasks that were left out."""
        self._skills, self.found, self.unrewarded = tuple(skills), found, unrewarded

    @overload
    def __getitem__(self, which: int | str) -> Skill: ...
    @overload
    def __getitem__(self, which: slice) -> Sequence[Skill]: ...
    def __getitem__(self, which: int | str | slice) -> Skill | Sequence[Skill]:
        """The skill at a place, or of a task's name."""
        if not isinstance(which, str):
            return self._skills[which]
        for skill in self._skills:
            if skill.latent.task == which:
                return skill
        raise DataError(unknown_name("skill", which, [skill.latent.task for skill in self._skills]))

    def __len__(self) -> int:
        return len(self._skills)

    def __iter__(self) -> Iterator[Skill]:
        return iter(self._skills)

    def __repr__(self) -> str:
        return "\n".join(map(repr, self._skills))


@dataclass(frozen=True)
class Evaluation:
    """Returns of skills in the world, beside those of random actions from the same start states."""

    world: str
    tasks: tuple[str, ...]
    methods: tuple[str, ...]
    returns: NDArray[np.float64]  # [skills, episodes]
    random: NDArray[np.float64]  # [skills, episodes]
    steps: int  # of an episode

    @property
    def intervals(self) -> list[report.Interval]:
        """Mean return of every skill, with its 95 % bootstrap interval over episodes."""
        return [report.bootstrap(earned[None, None]) for earned in self.returns]

    @property
    def mean(self) -> float:
        """Mean return over all skills and episodes."""
        return float(self.returns.mean())

    def __str__(self) -> str:
        episodes = self.returns.shape[1]
        lines = [
            f"{task} by {method}: return {interval}, random actions {report.number(chance)}"
            for task, method, interval, chance in zip(
                self.tasks, self.methods, self.intervals, self.random.mean(1).tolist(), strict=True
            )
        ]
        about = (
            f"{episodes} episodes of {self.steps} steps in {self.world}; mean [95 % interval over episodes]"
        )
        return "\n".join([*lines, about])

    __repr__ = __str__


def as_reward(function: Reward) -> Reward:
    """A user's function of states, whose boolean, integer or NumPy results become float tensors."""

    def reward(states: States) -> Tensor:
        value: Any = function(states)
        if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "fiub":
            value = torch.as_tensor(value)
        if not isinstance(value, Tensor) or value.is_complex():
            raise DataError(
                f"the reward '{_name(function)}' gave a {_kind(value)}: a reward gives one number "
                f"per state, here a tensor or array of shape {tuple(states.obs.shape[:-1])}"
            )
        return value if value.is_floating_point() else value.float()

    return reward


def _named(wishes: "Wish | Sequence[Wish] | Mapping[str, Wish]") -> list[tuple[str, Wish]]:
    """Wishes with the names that nameless ones get."""
    if isinstance(wishes, Mapping):
        return [(name, wish.named(name) if isinstance(wish, Task) else wish) for name, wish in wishes.items()]
    if isinstance(wishes, str | Task) or callable(wishes):
        return [(_name(wishes), wishes)]
    several = list(wishes)
    nameless = [k for k, wish in enumerate(several) if _name(wish) == NAMELESS]
    return [
        (f"{NAMELESS} {nameless.index(k) + 1}" if k in nameless and len(nameless) > 1 else _name(wish), wish)
        for k, wish in enumerate(several)
    ]


NAMELESS = "reward"


def _name(wish: Wish) -> str:
    if isinstance(wish, str):
        return wish
    name = wish.name if isinstance(wish, Task) else getattr(wish, "__name__", "")
    return NAMELESS if name in ("", "<lambda>") else name


def _kind(value: Any) -> str:
    dtype = getattr(value, "dtype", None)
    return type(value).__name__ + (f" of {dtype}" if dtype is not None else "")


def _first_line(function: Reward) -> str:
    return (getdoc(function) or "").partition("\n")[0]


def _played_together(skills: Sequence[Skill]) -> list[list[int]]:
    """Which skills are rolled out as one batch: those of plain latents, and those of each joint policy."""
    groups: dict[int, list[int]] = {}
    for k, skill in enumerate(skills):
        joint = skill.behaviour is not None and skill.behaviour.policy is not None
        groups.setdefault(id(skill.behaviour) if joint else 0, []).append(k)
    return list(groups.values())


def _joint_policy(skills: Sequence[Skill]) -> Policy | None:
    """Actions ``[L, E, A]`` of skills of one adaptation, if its behaviour is more than a latent per task."""
    behaviour, rows = skills[0].behaviour, [skill.row for skill in skills]
    if behaviour is None or behaviour.policy is None:
        return None
    policy, tasks = behaviour.policy, len(behaviour.found.evidence.tasks)

    def act(obs: Tensor) -> Tensor:
        every = obs[:1].repeat(tasks, 1, 1)  # the policy acts for all tasks at once
        every[rows] = obs
        return policy(every)[rows]

    return act
