"""Small pretrained models that come with the package: one folder per name, each an ordinary checkpoint.

``zol adapt walker --task run`` works right after installation, because a name of the zoo stands wherever a
checkpoint folder does. Every model card says how its model was made, with the exact commands, and its limits.
"""

import re
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from zol import checkpoint
from zol.common.errors import CheckpointError, DataError, unknown_name
from zol.common.files import new_folder
from zol.common.outputs import require_place
from zol.worlds import make

SAMPLES = 5000  # labelled states that travel with a model: the zoo stays small


def _root() -> Path:
    return Path(str(files("zol"))) / "zoo"


def names() -> list[str]:
    """Models of the zoo."""
    return sorted(folder.name for folder in _root().iterdir() if (folder / "config.json").exists())


def find(name_or_path: str | Path) -> Path:
    """The folder of a checkpoint: an existing path, or a name of the zoo."""
    path = Path(name_or_path)
    if path.exists() or len(path.parts) > 1:
        return path
    if str(name_or_path) in names():
        return _root() / str(name_or_path)
    raise CheckpointError(
        f"there is no folder '{name_or_path}' here, and "
        + unknown_name("zoo model", str(name_or_path), names())
    )


def returns(facts: Mapping[str, Any]) -> dict[str, tuple[float, float]]:
    """Mean returns of plain prompts and of random actions, by task, as the facts of a model tell them.

    Those of the model as it is stored count, where it was tested so, else those of its training.
    """
    if "tested" in facts:
        return {task: (cell["mean"], cell["random"]) for task, cell in facts["tested"]["returns"].items()}
    if not facts.get("returns"):
        return {}
    first, last = facts["returns"][0], facts["returns"][-1]
    tasks = [name.removeprefix("return/") for name in last if name.startswith("return/")]
    return {task: (last[f"return/{task}"], first[f"random/{task}"]) for task in tasks if task != "mean"}


def pack(
    source: str | Path,
    out: str | Path,
    samples: int = SAMPLES,
    *,
    facts: Mapping[str, Any] | None = None,
) -> Path:
    """Copy a checkpoint with what test time needs, and no more.

    Of the sample of states the first rows are kept, and simulator states only where a task needs them.
    Folders in recorded commands are shortened to their names. ``facts`` join those of the checkpoint.
    """
    require_place(out)
    if Path(out).exists():
        raise DataError(f"{out} already exists: choose another folder, or remove it first")
    loaded = checkpoint.load(find(source))
    kept = {name: value[:samples] for name, value in loaded.prompt.items() if name != "starts"}
    if "world" in loaded.facts and not make(str(loaded.facts["world"])).layout.hidden:
        kept.pop("physics", None)
    kept["starts"] = loaded.prompt["starts"][:256]
    known = {k: v for k, v in loaded.facts.items() if k not in checkpoint.OWN_FACTS} | dict(facts or {})
    known["sessions"] = [_without_folders(session) for session in loaded.facts.get("sessions", [])]
    if "tested" in known:
        known["tested"] = _without_folders(known["tested"])
    with new_folder(Path(out)) as folder:
        checkpoint.save(loaded.model, folder, prompt=kept, facts=known)
        if loaded.dynamics is not None:
            loaded.dynamics.save(folder / checkpoint.DYNAMICS)
    return Path(out)


def _without_folders(stamped: Mapping[str, Any]) -> dict[str, Any]:
    """The same with only the last part of every path of its command."""
    return dict(stamped) | {"command": re.sub(r"(?<=\s)/\S*/([^\s/]+)", r"\1", stamped["command"])}
