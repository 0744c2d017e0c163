"""The one training loop: sample → update → log → test → save, resumable bit for bit. It knows no model.

A run is a folder (zol.train.run_folder). Called again with the same settings, the loop continues from the
last good state and takes the very steps that an uninterrupted run would have taken. With torchrun every
process runs this loop on its share of each batch (zol.common.parallel), and the first one writes the files.
"""

import math
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol

import torch
from pydantic import Field
from rich.progress import Progress
from torch import Tensor
from tyro.conf import arg

from zol import checkpoint
from zol.common import interrupts, parallel
from zol.common.config import Config
from zol.common.errors import CheckpointError, DataError
from zol.common.memory import keep_freed_memory
from zol.common.outputs import require_place
from zol.common.progress import progress_bar
from zol.common.tensors import assign
from zol.data import Batch, BatchSpec, Dataset
from zol.data.prompting import prompt_sample
from zol.data.sampling import Sampler
from zol.models.base import Learner
from zol.models.optimisation import restore_generator
from zol.train.checks import check_data, check_episodes
from zol.train.health import HealthSample, check_health
from zol.train.log_lines import Clock, format_evaluation, format_progress
from zol.train.run_folder import Line, RunFolder, require_same
from zol.train.tensorboard import MetricsWriter, require_tensorboard
from zol.train.time_to_score import curve, tested_tasks
from zol.train.wandb import WandbWriter, require_wandb

Hook = Callable[[int], Mapping[str, float]]


class Diverged(DataError):
    """A number of the training became NaN or infinite."""


class Feed(Protocol):
    """Where batches come from if not from a fixed set: something that collects while training goes on."""

    @property
    def settings(self) -> Mapping[str, Any]:
        """What decides its batches, as JSON values by name."""

    def draw(self, spec: BatchSpec, n: int, generator: torch.Generator) -> Batch:
        """The batch of the next step."""

    @property
    def facts(self) -> Mapping[str, Any]:
        """What the checkpoint says about the data."""

    def prompt_sample(self, seed: int) -> dict[str, Tensor]:
        """What the checkpoint keeps to be prompted with (zol.data.prompting)."""

    def state_dict(self) -> dict[str, Tensor]:
        """Everything that an exact resume needs, as tensors."""

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """The inverse of :meth:`state_dict`."""


class TrainConfig(Config):
    """How long and how to train; what to train is the learner's business."""

    steps: int = Field(default=20_000, ge=1)
    """gradient steps"""
    batch_size: int = Field(default=512, ge=2)
    """transitions per step, over all processes together"""
    seed: int = Field(default=0, ge=0)
    """of sampling, training latents and action noise"""
    log_every: int = Field(default=100, ge=1)
    """steps between losses and health checks in metrics.jsonl"""
    eval_every: int = Field(default=5_000, ge=1)
    """steps between tests of the returns, if there is a test"""
    save_every: int = Field(default=2_000, ge=1)
    """steps between saves of the training state"""
    keep_every: int = Field(default=0, ge=0)
    """steps between checkpoints that are kept beside the last one, in OUT/kept/STEP; 0 keeps none"""
    anneal: float = Field(default=0.0, ge=0, le=1)
    """last share of the steps over which learning rates fall to zero; FB returns jitter without it"""
    precision: Literal["float32", "bfloat16"] = "float32"
    """what networks compute in; bfloat16 is for GPUs, and 16 times slower on CPUs without it"""
    compiled: bool = False
    """fuse networks with torch.compile; pays on GPUs at most"""
    tensorboard: bool = False
    """write event files for TensorBoard, too"""
    wandb: Annotated[str, arg(metavar="PROJECT")] = ""
    """project of Weights & Biases that metrics are sent to, too"""

    @property
    def autocast(self) -> torch.dtype | None:
        """The type that networks compute in, if it is not that of their weights."""
        return torch.bfloat16 if self.precision == "bfloat16" else None

    def learning_scale(self, step: int) -> float:
        """The share of the learning rates in force at a step."""
        tail = self.anneal * self.steps
        return 1.0 if tail == 0 else min(1.0, (self.steps - step) / tail)

    def progress(self, step: int) -> float:
        """The share of all steps that has been taken before this one."""
        return step / self.steps

    def first_step(self, share: float, end: int) -> int:
        """The first step before which this share has been taken; ``end`` if that is not earlier."""
        return next((step for step in range(end) if self.progress(step) >= share), end)


# Settings that may change on resume: none of them touches the weights (of steps, see below).
FREE = {"steps", "log_every", "eval_every", "save_every", "keep_every", "tensorboard", "wandb"}
KEPT = "kept"  # subfolder of checkpoints from the middle of a run


def require_outputs(out: str | Path | None, config: TrainConfig) -> None:
    """Say what a run could not write before any time is spent: its folder, or the writers of its metrics."""
    if out is not None:
        require_place(out)
    if config.tensorboard:
        require_tensorboard()
    if config.wandb:
        require_wandb()


def fit(
    learner: Learner,
    dataset: Dataset,
    config: TrainConfig,
    out: str | Path | None = None,
    *,
    facts: Mapping[str, Any] | None = None,
    on_eval: Hook | None = None,
    progress: Progress | None = None,
    feed: Feed | None = None,
) -> list[Line]:
    """Train until ``config.steps``; a learner that trains a model leaves its checkpoint in ``out``.

    An unfinished run in ``out`` is continued. Returns the metrics. ``on_eval`` tests the model: its numbers
    join the metrics before the first step, every ``eval_every`` steps and at the end. ``facts`` are noted in
    the run and the checkpoint. Ctrl-C (or SIGTERM) lets the current step finish and saves it. With a ``feed``
    batches come from there, and ``dataset`` is what it had before the first step.
    """
    check_data(learner.model, dataset, config.batch_size)
    check_episodes(learner.batches, dataset)
    keep_freed_memory()
    with ExitStack() as stack:
        folder = None
        if out is not None and parallel.is_main():
            folder = stack.enter_context(RunFolder(out))
        run = _Run(learner, dataset, config, folder, facts or {}, feed)
        run.resume(Path(out) if out is not None else None)
        if config.tensorboard and folder is not None:
            run.writers.append(MetricsWriter(folder.path, run.step))
        if config.wandb and folder is not None:
            run.writers.append(WandbWriter(config.wandb, folder.path, run.settings))
        for writer in run.writers:
            stack.callback(writer.close)
        bar = progress or stack.enter_context(progress_bar(quiet=not parallel.is_main()))
        run.loop(stack.enter_context(interrupts.noticed()), on_eval, bar)
        if folder is not None:
            run.ship(folder.path)
    return run.history


class _Run:
    """The mutable part of a training run."""

    def __init__(
        self,
        learner: Learner,
        dataset: Dataset,
        config: TrainConfig,
        folder: RunFolder | None,
        facts: Mapping[str, Any],
        feed: Feed | None = None,
    ) -> None:
        self.learner, self.config, self.folder, self.feed = learner, config, folder, feed
        self.dataset = dataset
        self.facts = {**learner.facts, **facts}
        self.device = next(learner.model.parameters()).device
        self.generator = torch.Generator(self.device).manual_seed(config.seed)
        self.sampler = feed if feed is not None else Sampler(dataset, self.device, learner.batches)
        self.health_sample: HealthSample | None = None
        if learner.checked is not None:
            sample = HealthSample.draw(dataset, learner.checked.z_dim, config.seed)
            self.health_sample = sample.to(self.device)
        self.writers: list[MetricsWriter | WandbWriter] = []
        self.history: list[Line] = []
        self.step, self.clock = 0, Clock()
        data = {"data": dataset.fingerprint(), "device": self.device.type}
        self.settings = {**config.model_dump(mode="json"), **learner.settings, **data}
        self.settings |= {} if feed is None else feed.settings

    def loop(self, stopped: Callable[[], bool], on_eval: Hook | None, bar: Progress) -> None:
        """From the current step to the last one."""
        config = self.config
        task = bar.add_task("training", total=config.steps, completed=self.step)
        if self.step == 0 and on_eval is not None:
            self.note({}, on_eval, bar)
        while self.step < config.steps:
            metrics = self.update()
            last, interrupted = self.step == config.steps, self.agreed(stopped())
            logged = self.step % config.log_every == 0 or last
            tested = on_eval is not None and (self.step % config.eval_every == 0 or last)
            if logged or tested:
                self.note(metrics if logged else {}, on_eval if tested else None, bar)
                bar.update(task, note=format_progress(self.history, self.learner.shown))
            bar.update(task, completed=self.step)
            if self.step % config.save_every == 0 or last or interrupted:
                self.save()
            if config.keep_every and self.step % config.keep_every == 0 and self.folder is not None:
                self.ship(self.folder.path / KEPT / str(self.step))
            if interrupted:
                raise interrupts.Stopped(self.kept())

    def kept(self) -> str:
        """What is left of this run if it ends now, in words."""
        if self.folder is None and parallel.is_main():
            return f"{self.step:,} steps are lost: a run without a folder (out=…) keeps nothing"
        return f"step {self.step:,} of {self.config.steps:,} is saved, and the same command continues there"

    def update(self) -> Mapping[str, Tensor]:
        """One step on one batch."""
        self.learner.scale_learning_rates(self.config.learning_scale(self.step))
        self.learner.note_progress(self.config.progress(self.step))
        batch = self.sampler.draw(self.learner.batches, self.config.batch_size, self.generator)
        metrics = self.learner.update(batch, self.generator)
        self.step += 1
        return metrics

    def agreed(self, stop: bool) -> bool:
        """Whether any process wants to stop: all of them must do so after the same step."""
        if parallel.size() == 1:
            return stop
        (votes,) = parallel.total(torch.tensor([float(stop)], device=self.device))
        return bool(votes > 0)

    def note(self, metrics: Mapping[str, Tensor], test: Hook | None, bar: Progress) -> None:
        """Write one line of metrics: losses and health if there are losses, returns if there is a test."""
        line: Line = {"step": self.step}
        if metrics:
            line["steps_per_second"] = round(self.clock.speed(self.step), 2)
            line |= {name: float(value) for name, value in metrics.items()}
            if self.health_sample is not None and self.learner.checked is not None:
                health = check_health(self.learner.checked, self.health_sample)
                line |= {f"health/{name}": float(value) for name, value in health.items()}
            bad = [name for name, value in line.items() if not math.isfinite(value)]
            if bad:
                raise Diverged(
                    f"training diverged at step {self.step}: {', '.join(bad)} became NaN or infinite; "
                    "lower the learning rate, or look for extreme values in the data"
                )
        if test is not None and parallel.is_main():
            line |= test(self.step)
            bar.console.print(format_evaluation(line), highlight=False)
        self.clock.restart(self.step)
        self.history.append(line)
        for writer in self.writers:
            writer.write(line)
        if self.folder is not None:
            self.folder.log(line)

    def save(self) -> None:
        """Replace the last good state."""
        if self.folder is None:
            return
        state = {f"model.{k}": v for k, v in self.learner.model.state_dict().items()}
        state |= {f"learner.{k}": v for k, v in self.learner.state_dict().items()}
        if self.feed is not None:
            state |= {f"feed.{k}": v for k, v in self.feed.state_dict().items()}
        state["generator"] = self.generator.get_state()
        self.folder.save(self.step, state, self.settings)

    def ship(self, path: Path) -> None:
        """Write the model as it is now, if the learner trains one, as a checkpoint."""
        model: Any = self.learner.checked
        if self.folder is None or model is None:
            return
        seed = self.config.seed
        with self.folder.saying_what_is_safe():
            sample = prompt_sample(self.dataset, seed) if self.feed is None else self.feed.prompt_sample(seed)
            checkpoint.save(model, path, prompt=sample, facts=self.facts_of_the_model())

    def resume(self, path: Path | None) -> None:
        """Take over the last good state, if there is one that these settings made."""
        reader = self.folder or (RunFolder(path) if path is not None else None)
        before = reader.settings() if reader is not None else None
        if reader is not None and before is not None:
            require_same(before, self.settings, FREE, reader.path)
            assert reader.saved_step is not None
            self._same_schedule(before, reader.saved_step, reader.path)
            state = reader.state()
            own = {k.removeprefix("model."): v for k, v in state.items() if k.startswith("model.")}
            assign(self.learner.model, own, reader.path)
            self.learner.load_state_dict(
                {k.removeprefix("learner."): v for k, v in state.items() if k.startswith("learner.")}
            )
            if self.feed is not None:
                self.feed.load_state_dict(
                    {k.removeprefix("feed."): v for k, v in state.items() if k.startswith("feed.")}
                )
            restore_generator(self.generator, state, reader.path)
            self.step = reader.saved_step
        if self.folder is not None:
            self.history = self.folder.rewind(self.step if before else None)
            shown = {"shown": dict(self.learner.shown)}
            self.folder.open_session(self.settings, self.facts | shown, self.step)
        self.clock.restart(self.step)

    def _same_schedule(self, before: Mapping[str, Any], step: int, path: Path) -> None:
        """More steps may be asked for until rates have begun to fall, or training has changed otherwise."""
        old = TrainConfig(**{name: before[name] for name in TrainConfig.model_fields if name in before})
        if step and old.learning_scale(step - 1) != self.config.learning_scale(step - 1):
            raise CheckpointError(
                f"{path} was annealed towards steps={old.steps} and has reached {step}, now "
                f"steps={self.config.steps} is asked for: keep steps, or choose another folder"
            )
        for share in self.learner.turning_points:
            if old.first_step(share, step) != self.config.first_step(share, step):
                raise CheckpointError(
                    f"{path} has reached step {step}, and at {share:.0%} of its steps={old.steps} training "
                    f"changes; now steps={self.config.steps} is asked for: keep steps, or choose another "
                    "folder"
                )

    def facts_of_the_model(self) -> dict[str, Any]:
        """What the checkpoint and its card say about this run."""
        assert self.folder is not None
        logged = [line for line in self.history if "loss" in line]
        tested = [line for line in self.history if "return/mean" in line]
        training = {name: self.settings[name] for name in TrainConfig.model_fields}
        facts: dict[str, Any] = {"data": self.settings["data"], "steps": self.step, "seed": self.config.seed}
        facts |= {} if self.feed is None else dict(self.feed.facts)
        found = {"training": training, "sessions": self.folder.sessions(), "metrics": logged[-1:]}
        if tested_tasks(self.history):
            found["curve"] = asdict(curve(self.history))
        return facts | found | {"returns": [*tested[:1], *tested[1:][-1:]]} | self.facts
