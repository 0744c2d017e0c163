"""Pretraining: one loop for every learner, resumable bit for bit."""

from zol.data.prompting import prompt_sample
from zol.train.loop import TrainConfig, fit
from zol.train.online import pretrain_online
from zol.train.practice import pretrain_by_practice
from zol.train.pretraining import pretrain

__all__ = ["TrainConfig", "fit", "pretrain", "pretrain_by_practice", "pretrain_online", "prompt_sample"]
