"""Pretraining: one loop for every learner, resumable bit for bit."""

from zol.train.loop import TrainConfig, fit, prompt_sample
from zol.train.pretraining import pretrain

__all__ = ["TrainConfig", "fit", "pretrain", "prompt_sample"]
