"""The one training loop: sample → update → log → save, resumable bit for bit.

A run is a folder. ``training.safetensors`` holds everything an exact resume needs in one file that is
replaced atomically: weights, targets, optimiser moments, the generator and the step. ``metrics.jsonl`` has
one line per log interval. The checkpoint that travels (see zol.checkpoint) is written beside them.
"""

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from pydantic import Field
from rich.progress import Progress
from torch import Tensor

from zol import checkpoint, files
from zol.config import Config
from zol.data import Dataset
from zol.errors import CheckpointError, DataError
from zol.models.base import Learner
from zol.progress import progress_bar

Hook = Callable[[int], Mapping[str, float]]


class TrainConfig(Config):
    """How long and how to train; what to train is the learner's business."""

    steps: int = Field(default=20_000, ge=1)
    """gradient steps"""
    batch_size: int = Field(default=512, ge=2)
    """transitions per step"""
    seed: int = Field(default=0, ge=0)
    """of sampling, training latents and action noise"""
    log_every: int = Field(default=100, ge=1)
    """steps between lines of metrics.jsonl"""
    save_every: int = Field(default=2_000, ge=1)
    """steps between saves"""
    anneal: float = Field(default=0.0, ge=0, le=1)
    """last share of the steps over which learning rates fall to zero; FB returns jitter without it"""

    def learning_scale(self, step: int) -> float:
        """The share of the learning rates in force at a step."""
        tail = self.anneal * self.steps
        return 1.0 if tail == 0 else min(1.0, (self.steps - step) / tail)


def pretrain(
    learner: Learner,
    dataset: Dataset,
    config: TrainConfig,
    out: str | Path | None = None,
    *,
    facts: Mapping[str, Any] | None = None,
    on_log: Hook | None = None,
    progress: Progress | None = None,
) -> list[dict[str, float]]:
    """Train until ``config.steps``; continue where ``out`` stopped, if it holds an unfinished run.

    Returns the logged metrics. ``on_log`` may add numbers to each logged line (an evaluation, say).
    Interrupted by Ctrl-C, the run is saved before the interrupt goes on.
    """
    _check(learner, dataset, config)
    run = _Run(learner, config, Path(out) if out is not None else None)
    run.resume()
    own_bar = progress is None
    bar = progress or progress_bar()
    if own_bar:
        bar.start()
    task = bar.add_task("training", total=config.steps, completed=run.step)
    try:
        while run.step < config.steps:
            learner.scale_learning_rates(config.learning_scale(run.step))
            batch = dataset.sample(config.batch_size, run.generator, physics=False)
            metrics = learner.update(batch, run.generator)
            run.step += 1
            if run.step % config.log_every == 0 or run.step == config.steps:
                line = run.log(metrics, on_log)
                bar.update(task, completed=run.step, note=f"loss {line['loss']:.2f}")
            if run.step % config.save_every == 0:
                run.save()
    finally:
        run.save()
        if own_bar:
            bar.stop()
    if out is not None:
        details = {"data": dataset.fingerprint(), "steps": config.steps, "seed": config.seed, **(facts or {})}
        checkpoint.save(learner.model, out, prompt=prompt_sample(dataset, config.seed), facts=details)
    return run.history


def prompt_sample(
    dataset: Dataset, seed: int, samples: int = 10_000, starts: int = 1024
) -> dict[str, Tensor]:
    """What a checkpoint needs to be prompted on its own: next states, the actions that led there, starts."""
    generator = torch.Generator().manual_seed(seed)
    batch = dataset.sample(min(len(dataset), samples), generator)
    found = {"obs": batch.next_obs, "action": batch.action, "starts": dataset.starts(starts, generator)}
    return found if batch.next_physics is None else found | {"physics": batch.next_physics}


class _Run:
    """The mutable part of a training run and its files."""

    def __init__(self, learner: Learner, config: TrainConfig, out: Path | None) -> None:
        self.learner, self.config, self.out = learner, config, out
        self.generator = torch.Generator().manual_seed(config.seed)
        self.step = 0
        self.history: list[dict[str, float]] = []
        self.began = time.perf_counter()
        self.began_at = 0

    def log(self, metrics: Mapping[str, Tensor], on_log: Hook | None) -> dict[str, float]:
        speed = (self.step - self.began_at) / (time.perf_counter() - self.began)
        line = {"step": self.step, "steps_per_second": round(speed, 2)}
        line |= {name: float(value) for name, value in metrics.items()}
        bad = [name for name, value in line.items() if value != value]
        if bad:
            raise DataError(
                f"training diverged at step {self.step}: {', '.join(bad)} became NaN; "
                "lower the learning rate, or look for extreme values in the data"
            )
        line |= on_log(self.step) if on_log else {}
        self.history.append(line)
        if self.out is not None:
            self.out.mkdir(parents=True, exist_ok=True)
            with (self.out / "metrics.jsonl").open("a") as file:
                file.write(json.dumps(line) + "\n")
        return line

    def save(self) -> None:
        if self.out is None or self.step == 0:
            return
        state = {f"model.{k}": v for k, v in self.learner.model.state_dict().items()}
        state |= {f"learner.{k}": v for k, v in self.learner.state_dict().items()}
        state["generator"] = self.generator.get_state()
        facts = {"step": str(self.step), "config": self.config.model_dump_json()}
        files.write_tensors(self.out / "training.safetensors", state, facts)

    def resume(self) -> None:
        path = None if self.out is None else self.out / "training.safetensors"
        if path is None or not path.exists():
            return
        facts = files.read_metadata(path)
        before = json.loads(facts["config"])
        now = json.loads(self.config.model_dump_json())
        for name in ("batch_size", "seed"):
            if before[name] != now[name]:
                raise CheckpointError(
                    f"{path} was trained with {name}={before[name]}, now {now[name]} is asked for: "
                    "resume with the same value, or choose another folder"
                )
        state = files.read_tensors(path)
        own = {k.removeprefix("model."): v for k, v in state.items() if k.startswith("model.")}
        checkpoint.assign(self.learner.model, own, path)
        self.learner.load_state_dict(
            {k.removeprefix("learner."): v for k, v in state.items() if k.startswith("learner.")}
        )
        self.generator.set_state(state["generator"])
        self.step = self.began_at = int(facts["step"])
        self._rewind_metrics()

    def _rewind_metrics(self) -> None:
        """Lines logged after the last save would be logged again: drop them."""
        assert self.out is not None
        path = self.out / "metrics.jsonl"
        lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        self.history = [line for line in lines if line["step"] <= self.step]
        text = "".join(json.dumps(line) + "\n" for line in self.history)
        files.write_bytes(path, text.encode())


def _check(learner: Learner, dataset: Dataset, config: TrainConfig) -> None:
    model = learner.model
    if (dataset.obs_dim, dataset.action_dim) != (model.obs_dim, model.action_dim):
        raise DataError(
            f"the data have {dataset.obs_dim} observation and {dataset.action_dim} action columns, the model "
            f"expects {model.obs_dim} and {model.action_dim}: was it made for another world?"
        )
    if len(dataset) < config.batch_size:
        raise DataError(
            f"{len(dataset)} transitions are fewer than one batch of {config.batch_size}: "
            "collect more data or lower batch_size"
        )
