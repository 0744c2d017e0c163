"""Pretraining: one loop for every learner, resumable bit for bit."""

from zol.train.loop import TrainConfig, fit, pretrain, prompt_sample

__all__ = ["TrainConfig", "fit", "pretrain", "prompt_sample"]
