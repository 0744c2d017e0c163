"""Other people's packages add models, methods, worlds, estimators and benchmarks through entry points."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from zol.common.errors import MissingExtra, ZolError
from zol.common.registry import Entry, Registry

PYPROJECT = """
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"

[project]
name = "tiny-zol-plugin"
version = "0.1"

[tool.setuptools]
py-modules = ["tiny_plugin"]

[project.entry-points."zol.methods"]
fortune = "tiny_plugin:METHOD"

[project.entry-points."zol.worlds"]
still = "tiny_plugin:Still"

[project.entry-points."zol.models"]
broken = "tiny_plugin:does_not_exist"
"""

PLUGIN = '''
"""A method that draws latents at random, and a world in which nothing happens."""

import torch

from zol.adapt.controls import score
from zol.adapt.problem import Method
from zol.common.config import Config
from zol.fields import Field, Layout, States
from zol.tasks import Task


class Settings(Config):
    """Settings of the draw."""

    scale: float = 1.0
    """size of the draw"""


def fortune(problem, settings):
    noise = torch.randn(problem.start.shape, generator=problem.generator("fortune"))
    return score(problem.model, problem.evidence, problem.model.project(settings.scale * noise))


METHOD = Method(fortune, Settings(), "a random latent")


class Still:
    name = "still"
    layout = Layout(1, (Field("place", 0),))
    action_dim = 1
    episode_length = 3
    discount = 0.9
    tasks = {"here": Task("here", lambda s: s["place"])}
'''

USE = """
import sys
from zol.adapt import METHODS
from zol.cli import main
from zol.common.errors import ZolError
from zol.models import MODELS
from zol.worlds import WORLDS, make

assert "fortune" in METHODS and "still" in WORLDS
assert make("still").tasks["here"].name == "here"
try:
    MODELS["broken"]
except ZolError as error:
    assert "tiny-zol-plugin" in str(error), error
else:
    raise AssertionError("a broken plugin loaded")
main(["adapt", sys.argv[1], "--task", "cross", "--method", "fortune", "--scale", "2.0"])
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that a tiny package was installed into."""
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("site")
    (source / "pyproject.toml").write_text(PYPROJECT)
    (source / "tiny_plugin.py").write_text(PLUGIN)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "--no-index", "--target", str(target), str(source)], check=True)
    return target


def test_an_installed_package_is_used_by_name(installed: Path, tiny_checkpoint: Path) -> None:
    paths = [str(installed), *filter(None, [os.environ.get("PYTHONPATH")])]
    done = subprocess.run(
        [sys.executable, "-c", USE, str(tiny_checkpoint)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "fortune" in done.stdout


def registry(**entries: Entry) -> Registry[object]:
    return Registry("thing", "zol.nobody-registers-here", entries)


def test_a_value_is_imported_when_it_is_used_and_only_once() -> None:
    things = registry(path=Entry("pathlib:Path", "a path"), typo=Entry("pathlib:Pth"))
    assert list(things) == ["path", "typo"]
    assert things.summaries() == {"path": "a path", "typo": ""}
    assert things["path"] is Path
    with pytest.raises(AttributeError):
        things["typo"]


def test_a_near_miss_is_suggested() -> None:
    with pytest.raises(ZolError, match="no thing called 'pth'; did you mean 'path'"):
        registry(path=Entry("pathlib:Path"))["pth"]


def test_a_missing_extra_is_named() -> None:
    with pytest.raises(MissingExtra, match=r"the thing 'far' needs no_such_module.*\[far\]"):
        registry(far=Entry("no_such_module:x", extra="far"))["far"]


def test_a_name_cannot_be_taken_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    from importlib.metadata import EntryPoint

    from zol.common import registry as module

    point = EntryPoint("path", "pathlib:Path", "zol.nobody-registers-here")
    monkeypatch.setattr(module, "entry_points", lambda group: [point])
    with pytest.raises(ZolError, match="registers the thing 'path', which is taken already"):
        list(registry(path=Entry("pathlib:Path")))


def test_a_notebook_adds_its_own() -> None:
    things = registry(path=Entry("pathlib:Path"))
    things.add("mine", 3)
    assert things["mine"] == 3
    assert list(things) == ["path", "mine"]
    with pytest.raises(ZolError, match="there is a thing called 'path' already"):
        things.add("path", 4)
