"""An agent: a checkpoint, its world and a sample of states; from wishes to skills, and what they earn."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, overload

import torch
from rich.progress import Progress

from zol import checkpoint
from zol.adapt import estimator_of, find_method, solve
from zol.adapt.prompts import prompt_name
from zol.checkpoint import zoo
from zol.checkpoint.publishing import push
from zol.common.config import Config
from zol.common.errors import CheckpointError, DataError
from zol.common.files import new_folder
from zol.common.progress import shown
from zol.data import Dataset
from zol.export import Exported, export
from zol.models.base import Latent, identity
from zol.session.appraisal import Appraisal
from zol.session.environment import evaluate_in, film_in
from zol.session.evaluation import Evaluation
from zol.session.opened import STARTS, OpenedModel
from zol.session.playing import evaluate_skills
from zol.session.skill import Skill, Skills, each_acting
from zol.session.valuing import value
from zol.session.wishes import Wish, Wishes
from zol.tasks import Task
from zol.value import ValueEstimate
from zol.worlds.gym_env import GymEnvironment

AUTO = "auto"  # the method that fits the checkpoint
PLAIN = "plain"  # the model's own prompt, by whatever name the registry knows that


def load(path: str | Path, *, discount: float | None = None, data: Dataset | None = None) -> "Agent":
    """Open a pretrained model: a name of the zoo, a checkpoint folder, or ``hf://org/name``.

    ``discount`` is for other projects' models that do not record the one they were trained with. ``data`` are
    states to apply rewards to, for checkpoints that carry no sample of their own.
    """
    where = str(path) if str(path).startswith("hf://") else str(zoo.find(path))
    return Agent(checkpoint.load(where, discount=discount), path=where, data=data)


class Agent(OpenedModel):
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

    # From a wish to a skill

    def method(self, name: str = AUTO) -> str:
        """The method's name; ``auto`` is what fits the checkpoint.

        Without a learned world that is the model's own prompt. With one, latents are played in it: through
        whole episodes where the model practised, or where an episode is longer than what rehearsal looks
        ahead, so that it could give up later rewards for nearer ones (docs/episodes.md); else by rehearsal.
        """
        if name == AUTO:
            name = PLAIN if self.dynamics is None else self._searched()
        if name == PLAIN:
            return prompt_name(self.checkpoint.default_prompt)
        find_method(name)
        return name

    def _searched(self) -> str:
        """The method that plays latents in the learned world."""
        length = 0 if self.world is None else self.world.episode_length
        ahead: int = find_method("rehearse").settings.horizon
        return "episodes" if "practice" in self.facts or length > ahead else "rehearse"

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
        found = find_method(name)
        chosen = settings or found.settings
        chosen = chosen.updated(**changes) if changes else chosen
        tasks = self.resolve(wishes)
        world = None if found.offline else self.environment(name)
        problem = self.problem(tasks, starts=starts, seed=seed, samples=found.samples, world=world)
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
                Skill(self.model, latent, task, behaviour, t, self.judged_in(estimator_of(name)))
                for t, (latent, task) in enumerate(
                    zip(behaviour.found.latents(), problem.ordered_tasks, strict=True)
                )
            ],
            behaviour.found,
            tuple(unrewarded),
        )
        return skills[0] if isinstance(wishes, str | Task) or callable(wishes) else skills

    def skill(self, path: str | Path, task: Wish | None = None) -> Skill:
        """A skill that was saved; ``task`` says what it is scored by, if that is no task of the world."""
        latent = Latent.load(path)
        latent.require(identity(self.model), self.model.z_dim)
        known = self._resolve(latent.task, task) if task is not None else self._known_task(latent.task)
        return Skill(self.model, latent, known, domain=self.judged_in(estimator_of(latent.method)))

    # What it is worth

    def evaluate(
        self,
        skills: Skill | Sequence[Skill],
        episodes: int = 20,
        *,
        env: Any = None,
        seed: int = 0,
        steps: int | None = None,
        sampled: bool = False,
        progress: Progress | None = None,
    ) -> Evaluation:
        """What skills earn in the world, each by its own task, beside random actions from the same states.

        ``env`` is an environment of gymnasium to play in instead, or its id: ``"Pendulum-v1"``. Its own
        reward is what counts then, and the reward that each skill was asked for stands beside it; ``steps``
        cuts its episodes short. ``sampled`` draws actions from the policies instead of taking their means.
        """
        chosen = [skills] if isinstance(skills, Skill) else list(skills)
        if not chosen:
            raise DataError("there are no skills to evaluate")
        if env is not None:
            with GymEnvironment(env) as environment, shown(progress) as display:
                return evaluate_in(
                    environment,
                    self.layout,
                    chosen,
                    episodes,
                    seed=seed,
                    steps=steps,
                    sampled=sampled,
                    progress=display,
                )
        if self.world is None:
            raise CheckpointError(
                f"{self.path} does not name its world, so nothing can be tested: evaluate needs a world or "
                'an environment (evaluate(skill, env="Pendulum-v1")); skill.act(obs) works without one'
            )
        if steps is not None:
            raise DataError(f"episodes of {self.world.name} are played whole: steps= is for env=")
        return evaluate_skills(
            self.world, self.model, chosen, episodes, seed=seed, sampled=sampled, progress=progress
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
        found = value(self, chosen, by, starts=starts, seed=seed, settings=settings, progress=progress)
        return found[0] if isinstance(skills, Skill) and isinstance(found, list) else found

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
        or an environment that was made with ``render_mode="rgb_array"``. Skills that are more than one latent
        are filmed like any other.
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
            [skill.latent for skill in chosen],
            folder,
            generator=torch.Generator().manual_seed(seed),
            tasks=[skill.task for skill in chosen],
            policy=each_acting(chosen),
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
