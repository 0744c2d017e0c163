"""Zero-shot off-policy learning: the best behaviour a pretrained model already knows, for any task."""

from importlib import metadata

__version__ = metadata.version("zol")
