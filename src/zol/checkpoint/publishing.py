"""Publishing a checkpoint on the Hugging Face hub, with its model card.

The folder that is uploaded is an ordinary checkpoint; its card begins with the lines that the hub reads
(library, kind of task, licence) and says how to load it by its address.
"""

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from zol.checkpoint.model_card import model_card
from zol.common.errors import CheckpointError
from zol.common.extras import require
from zol.common.files import write_bytes
from zol.common.reading import read_json

NAME = re.compile(r"[\w.-]+/[\w.-]+")


def push(
    write: Callable[[Path], None],
    name: str,
    *,
    private: bool = False,
    message: str,
    token: str | None = None,
) -> str:
    """Upload the checkpoint that ``write(folder)`` writes; the address, ``hf://organisation/name``."""
    if NAME.fullmatch(name) is None:
        raise CheckpointError(f"'{name}' is no name on the hub: expected organisation/name")
    hub = require("huggingface_hub", "hub", "publishing a model on the hub")
    api = hub.HfApi(token=token)
    with TemporaryDirectory() as temporary:
        folder = Path(temporary) / "model"
        write(folder)
        write_bytes(folder / "README.md", hub_card(read_json(folder / "config.json"), name).encode())
        try:
            api.create_repo(name, private=private, exist_ok=True)
            api.upload_folder(repo_id=name, folder_path=str(folder), commit_message=message)
        except (hub.errors.HfHubHTTPError, OSError, ValueError) as error:
            raise CheckpointError(
                f"could not publish {name}: {error}. Uploading needs a connection and a token "
                "(hf auth login, or token=…)"
            ) from error
    return f"hf://{name}"


def hub_card(facts: Mapping[str, Any], name: str) -> str:
    """The model card with the lines on top that the hub reads."""
    tags = ["zol", "behavioural-foundation-model", "zero-shot-rl", str(facts["model"])]
    head = {
        "library_name": "zol",
        "pipeline_tag": "reinforcement-learning",
        "license": facts.get("license", "other"),
        "tags": [*tags, *([str(facts["world"])] if "world" in facts else [])],
    }
    lines = [f"{key}: {json.dumps(value)}" for key, value in head.items()]  # JSON is YAML
    return "\n".join(["---", *lines, "---", "", model_card(facts, f"hf://{name}")])
