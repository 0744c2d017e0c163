"""Checkpoints are data, never code: a folder of safetensors and JSON."""

from zol.checkpoint.folder import DYNAMICS, OWN_FACTS, Checkpoint, description, load, save

__all__ = ["DYNAMICS", "OWN_FACTS", "Checkpoint", "description", "load", "save"]
