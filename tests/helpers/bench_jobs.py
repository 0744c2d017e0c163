"""Jobs for executor tests: they know how to die, and they leave a mark each time they run."""

import os
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from zol.bench.store import Key, Result
from zol.common.errors import ZolError


def cell(number: int, task: str = "walk") -> Key:
    return Key("test", "walker", task, "fb", f'{{"n":{number}}}', "abc", 0, 1)


@dataclass(frozen=True)
class Sleeper:
    """Fills two cells after a while; a mark says that it has begun, and on which process."""

    number: int
    marks: Path
    seconds: float = 0.0
    fault: str = ""

    @property
    def name(self) -> str:
        return f"sleeper {self.number}"

    @property
    def keys(self) -> tuple[Key, ...]:
        return cell(self.number), cell(self.number, "run")

    def run(self, threads: int) -> list[Result]:
        begun = len(list(self.marks.glob(f"{self.number}-*")))
        (self.marks / f"{self.number}-{begun}-{os.getpid()}").touch()
        if self.fault == "raise":
            raise ZolError(f"sleeper {self.number} does not want to")
        if self.fault == "die" or (self.fault == "die once" and begun == 0):
            os.kill(os.getpid(), 9)
        time.sleep(self.seconds)
        return [Result(key, np.full(3, float(self.number))) for key in self.keys]
