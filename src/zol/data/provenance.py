"""Where data come from: facts every stored set carries, so that nobody has to guess later."""

import shlex
import sys
from pathlib import Path
from typing import Any

from zol.versions import versions


def provenance(source: str, **facts: Any) -> dict[str, Any]:
    """The source of a set, further ``facts``, the versions installed now and the ``zol`` command, if any."""
    known = {name: value for name, value in facts.items() if value is not None}
    found = {"source": source, **known, "versions": versions()}
    if Path(sys.argv[0]).stem == "zol":
        # The name of the program, not its path: where someone's home folder lies is no property of data.
        found["command"] = shlex.join(["zol", *sys.argv[1:]])
    return found
