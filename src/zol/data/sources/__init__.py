"""Other people's data: one file per foreign format, and :func:`import_dataset`, which tells them apart."""

from collections.abc import Sequence
from pathlib import Path

from rich.progress import Progress

from zol.common.errors import DataError
from zol.common.outputs import require_place
from zol.data.dataset import Dataset


def import_dataset(
    source: str,
    out: str | Path,
    *,
    world: str | None = None,
    episodes: int | None = None,
    from_dir: Path | None = None,
    cache: Path = Path("downloads"),
    sha256: str | None = None,
    unverified: bool = False,
    mirrors: Sequence[str] = (),
    progress: Progress | None = None,
) -> Dataset:
    """Convert a foreign dataset into one of ours at ``out``, which appears whole or not at all.

    ``source`` is ``exorl/DOMAIN/ALGORITHM``, ``ogbench/NAME`` (or ``NAME-val``), ``minari:NAME``, an npz or
    HDF5 file, or a zip or folder of ExORL episodes. ``world`` is kept in the provenance. The other settings
    are for ExORL and OGBench: how many episodes to take, a folder with downloads, where to keep them, their
    checksum (or that there is none), and further addresses, https all of them.
    """
    require_place(out)
    if Path(out).exists():
        raise DataError(f"{out} already exists: choose another folder, or remove it first")
    if source.startswith("minari:"):
        from zol.data.sources.minari import import_minari

        name = source.removeprefix("minari:")
        return import_minari(name, out, world=world, fetch=True, progress=progress)
    if source.startswith("ogbench/") and not Path(source).exists():
        from zol.data.sources import ogbench

        name, file = ogbench.parse(source)
        known = ogbench.world_of(name)
        if world not in (None, known):
            raise DataError(f"{source} holds data of {known}, and --world {world} was asked for")
        if from_dir is not None:
            path, proof = ogbench.find_local(from_dir, file), None
        else:
            from zol.data.sources.download import download

            path = download(
                [ogbench.URL.format(file=file), *mirrors],
                cache / file,
                sha256=sha256,
                unverified=unverified,
                progress=progress,
            )
            proof = sha256 or "unverified"
        return ogbench.import_ogbench(
            path, out, name=name, episodes=episodes, sha256=proof, progress=progress
        )
    if source.endswith((".npz", ".h5", ".hdf5")):
        from zol.data.sources.arrays import import_arrays

        return import_arrays(source, out, world=world, progress=progress)
    from zol.data.sources import exorl
    from zol.data.sources.download import download

    domain = None
    path, proof = Path(source), None
    if source.startswith("exorl/") and not path.exists():
        domain, algorithm = exorl.parse(source)
        if from_dir is not None:
            path = exorl.find_local(from_dir, domain, algorithm)
        else:
            urls = [exorl.URL.format(domain=domain, algorithm=algorithm), *mirrors]
            path = download(
                urls,
                cache / f"{domain}_{algorithm}.zip",
                sha256=sha256,
                unverified=unverified,
                progress=progress,
            )
            proof = sha256 or "unverified"
    return exorl.import_exorl(
        path, out, world=world or domain, episodes=episodes, sha256=proof, progress=progress
    )
