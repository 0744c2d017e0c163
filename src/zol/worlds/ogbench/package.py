"""Where the models of OGBench are: data files of the installed package, which is not imported."""

from functools import cache
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from zol.common.errors import MissingExtra, WorldError


def model_file(name: str) -> Path:
    """Path of a model that the package ``ogbench`` ships, such as ``locomaze/assets/ant.xml``."""
    path = package_folder() / name
    if not path.is_file():
        raise WorldError(
            f"the installed package 'ogbench' has no {name}: its models have moved, or it is another package "
            "of that name; install the version that zol was tested with, pip install 'ogbench==1.2.2'"
        )
    return path


@cache
def package_folder() -> Path:
    """The folder of the installed package, after checking that MuJoCo can step many models at once."""
    spec = find_spec("ogbench")
    if spec is None or not spec.submodule_search_locations:
        raise MissingExtra("ogbench", "ogbench", "the worlds of OGBench")
    check_mujoco()
    return Path(spec.submodule_search_locations[0])


def check_mujoco() -> None:
    """Refuse a MuJoCo without batched stepping: older ones have none, and newer ones were not tested."""
    try:
        version = metadata.version("mujoco")
    except metadata.PackageNotFoundError:
        raise MissingExtra("mujoco", "ogbench", "the worlds of OGBench") from None
    major, minor = (int(part) for part in version.split(".")[:2])
    if (major, minor) < (3, 17) or major >= 4:
        raise WorldError(
            f"mujoco {version} is installed, and the worlds of OGBench need 3.17 to 3.x (they step "
            "all environments in one call, which older versions cannot): pip install 'mujoco>=3.17,<4'"
        )
