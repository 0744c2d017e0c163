"""A process that reads damaged files within limits of time and memory, and what is read there.

One process reads many files. It is killed when a file takes too long, and another takes its place.
"""

import os
import resource
import shutil
import sys
import traceback
import warnings
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

from killing import CONTEXT

SECONDS = 10.0
MEMORY = 1 << 30  # bytes of address space beyond what the process has before its first file
RESIDENT = 600 << 20  # bytes that one file may add to its peak

READ, REFUSED = "read", "refused"


def read_native(path: Path) -> None:
    """A checkpoint of ours: opened, and used once."""
    import torch

    from zol import checkpoint

    found = checkpoint.load(path)
    model = found.model
    obs = found.prompt["obs"] if found.prompt else torch.zeros(2, model.obs_dim)
    z = model.project(torch.ones(len(obs), model.z_dim))
    action = model.act(obs, z)
    assert action.shape == (len(obs), model.action_dim)
    assert found.dynamics is None or found.dynamics.replay().ndim == 4


def read_foreign(path: Path) -> None:
    from zol.models.foreign import load_foreign

    load_foreign(path, discount=0.98)


def read_latent(path: Path) -> None:
    import torch

    from zol.models.base import Latent

    latent = Latent.load(path / "z.json")
    assert latent.z.ndim == 1
    assert len(latent.z)
    assert torch.isfinite(latent.z).all()


def read_state(path: Path) -> None:
    """The state of a training run."""
    from zol.train.run_folder import RunFolder

    folder = RunFolder(path)
    folder.settings()
    folder.state()


def read_set(path: Path) -> None:
    """Open, sample and append to a dataset; a flipped bit in a column is for ``zol data check`` to find."""
    import torch

    from zol.data import Dataset, DatasetWriter, coverage

    data = Dataset.open(path)
    data.fingerprint()
    coverage.stored_scale(data.provenance, data.obs_dim)
    if len(data):
        data.sample(8, torch.Generator().manual_seed(0))
        data.starts()
    with DatasetWriter(path):
        pass


def read_source(path: Path) -> None:
    """Import the one file in a folder; nothing is left behind if it is refused."""
    from zol.data.sources import import_dataset

    (source,) = path.iterdir()
    out = path.parent / "imported"
    try:
        import_dataset(str(source), out)
    finally:
        shutil.rmtree(out, ignore_errors=True)
        assert not list(path.parent.glob(".imported*")), "something half-written was left behind"


def read_buffer(path: Path) -> None:
    """HumEnv's inference buffer and motions."""
    from zol.common.errors import DataError
    from zol.data.sources import humenv

    (source,) = path.iterdir()
    try:
        humenv.read_buffer(source)
    except DataError:
        humenv.read_motions(source)


def read_store(path: Path) -> None:
    """A result store: everything is read from it, and a cell is added."""
    from dataclasses import replace

    from zol.bench.results import corrections
    from zol.bench.store import Store

    store = Store(path / "s.sqlite")
    rows = store.results()
    assert len(rows) == len(store) == len(store.keys())
    assert all(row.key in store for row in rows)
    corrections(rows)
    if rows:
        assert store.add([replace(rows[0], key=replace(rows[0].key, task="another"))]) == 1
        assert len(store) == len(rows) + 1


def read_run(path: Path) -> None:
    """The metrics of a run, as they are shown and as a run resumes from them."""
    from zol.cli.train_show import show
    from zol.train.run_folder import RunFolder

    show(path)
    folder = RunFolder(path)
    folder.sessions()
    folder.rewind(30)


def read_minari(path: Path) -> None:
    """A Minari dataset, where Minari looks for it."""
    from zol.data.sources.minari import import_minari

    root, out = path.parent / "minari", path.parent / "imported"
    (root / "toy-v0").mkdir(parents=True)
    (root / "toy-v0" / "data").symlink_to(path)
    os.environ["MINARI_DATASETS_PATH"] = str(root)
    try:
        import_minari("toy-v0", out)
    finally:
        shutil.rmtree(out, ignore_errors=True)
        assert not list(path.parent.glob(".imported*")), "something half-written was left behind"


READERS: dict[str, Callable[[Path], None]] = {
    "native": read_native,
    "foreign": read_foreign,
    "latent": read_latent,
    "state": read_state,
    "set": read_set,
    "source": read_source,
    "buffer": read_buffer,
    "store": read_store,
    "run": read_run,
    "minari": read_minari,
}


class Worker:
    """The process; ``check`` gives what became of a file, or fails if it was anything but our own error."""

    def __init__(self) -> None:
        self._start()

    def _start(self) -> None:
        self._connection, theirs = CONTEXT.Pipe()
        self._process = CONTEXT.Process(target=_serve, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()
        assert self._connection.recv() == "ready"

    def check(self, reader: str, path: Path) -> tuple[str, str]:
        """``READ`` or ``REFUSED``, and the sentence."""
        self._connection.send((reader, str(path)))
        try:
            answered = self._connection.poll(SECONDS)
            outcome, text = self._connection.recv() if answered else ("hung", f"over {SECONDS} s")
        except EOFError:
            outcome, text = "died", "the process ended: out of memory, or a crash in C"
        if outcome in ("hung", "died"):
            self.close()
            self._start()
        assert outcome in (READ, REFUSED), f"{outcome}: {text}"
        assert "\n" not in text, f"more than one line: {text}"
        assert len(text) < 2000, "more than a sentence"
        return outcome, text

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.join()


def _peak() -> int:
    """The largest memory of this process so far, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _serve(connection: Connection) -> None:
    import h5py  # noqa: F401
    import minari  # noqa: F401
    import torch

    import zol.checkpoint
    import zol.cli.train_show
    import zol.data.sources.exorl
    import zol.train  # noqa: F401
    from zol.common.errors import ZolError

    torch.set_num_threads(1)
    torch.ones(8, 8) @ torch.ones(8, 8)
    sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    warnings.simplefilter("ignore")  # NumPy warns of odd headers before it gives up on them
    pages = int(Path("/proc/self/statm").read_text().split()[0]) if Path("/proc/self/statm").exists() else 0
    if pages:
        limit = pages * resource.getpagesize() + MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    connection.send("ready")
    while True:
        reader, path = connection.recv()
        before = _peak()
        try:
            READERS[reader](Path(path))
            answer = (READ, "")
        except ZolError as error:
            answer = (REFUSED, str(error))
        except BaseException:
            answer = ("traceback", traceback.format_exc()[-3000:])
        grown = _peak() - before
        if grown > RESIDENT:
            answer = ("memory", f"{grown >> 20} MB more than before; {answer[1]}")
        connection.send(answer)
