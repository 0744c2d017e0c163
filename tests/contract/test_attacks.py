"""What strangers' files did to earlier versions: each attack ends in a sentence, soon and in little room."""

import io
import json
import os
import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
import whole_files as files
from fuzzing import READ, REFUSED, Worker
from mutations import DEEP
from whole_files import ARRAYS, EPISODE, npz_bytes

from zol import checkpoint
from zol.checkpoint.integrity import PROVEN, UNPROVEN
from zol.common.errors import ZolError
from zol.common.tensors import read_tensors, write_tensors
from zol.data import Dataset
from zol.data.disk import episode_digest, record
from zol.data.sources.expansion import SMALL
from zol.evidence import Evidence
from zol.export import export
from zol.models.base import Latent, model_hash, tensors_hash
from zol.models.fb import FBConfig, fb_network
from zol.tasks import Task

NAN, INF = float("nan"), float("inf")


def edit(path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    facts = json.loads(path.read_text())
    change(facts)
    path.write_text(json.dumps(facts))


def refused(worker: Worker, reader: str, folder: Path) -> str:
    outcome, text = worker.check(reader, folder)
    assert outcome == REFUSED, "it was read"
    return text


@pytest.mark.parametrize(
    "change",
    [
        {"schema": "2"},
        {"schema": None},
        {"schema": True},
        {"schema": [1]},
        {"kind": ["fb"]},
        {"kind": {"a": 1}},
        {"config": []},
        {"weights": 7},
        {"config.hidden": 30_000},
        {"config.hidden": 10**400},
        {"config.members": 10**6},
        {"config.hidden_layers": 10**5},
        {"config.fourier": 10**6, "config.normalise_obs": True},
        {"config.obs_dim": 10**9},
        {"config.discount": NAN},
        {"measure": {"offset": NAN}},
    ],
    ids=str,
)
def test_configurations_that_cannot_be(worker: Worker, tmp_path: Path, change: dict[str, Any]) -> None:
    files.first_format(tmp_path)

    def apply(facts: dict[str, Any]) -> None:
        for name, value in change.items():
            *sections, last = name.split(".")
            owner = facts[sections[0]] if sections else facts
            owner[last] = value

    edit(tmp_path / "config.json", apply)
    refused(worker, "native", tmp_path)


def test_observations_of_a_hundred_thousand_fields(worker: Worker, tmp_path: Path) -> None:
    files.native(tmp_path)
    fields = [{"name": str(k), "size": 1} for k in range(100_000)]
    edit(tmp_path / "config.json", lambda facts: facts["network"].update(observation=fields))
    assert "1000" in refused(worker, "native", tmp_path)


@pytest.mark.parametrize(
    "name", ["config.json", "model.safetensors", "prompt.safetensors", "dynamics.safetensors"]
)
@pytest.mark.parametrize("what", ["pipe", "endless", "folder"])
def test_only_regular_files_are_opened(worker: Worker, tmp_path: Path, name: str, what: str) -> None:
    files.native(tmp_path)
    (tmp_path / name).unlink()
    if what == "pipe":
        os.mkfifo(tmp_path / name)
    elif what == "endless":
        (tmp_path / name).symlink_to("/dev/zero")
    else:
        (tmp_path / name).mkdir()
    assert "expected a regular file" in refused(worker, "native", tmp_path)


def test_links_to_regular_files_are_fine(worker: Worker, tmp_path: Path) -> None:
    files.native(tmp_path)
    (tmp_path / "config.json").rename(tmp_path / "elsewhere")
    (tmp_path / "config.json").symlink_to(tmp_path / "elsewhere")
    assert worker.check("native", tmp_path)[0] == READ


@pytest.mark.parametrize(
    ("reader", "name"), [("native", "config.json"), ("latent", "z.json"), ("set", "dataset.json")]
)
@pytest.mark.parametrize(
    "content", [DEEP, b'{"z": [1' + b"0" * 400 + b"]}", b'{"z": [1' + b"0" * 9000 + b"]}"]
)
def test_json_that_nests_or_counts_too_far(
    worker: Worker, tmp_path: Path, reader: str, name: str, content: bytes
) -> None:
    (tmp_path / name).write_bytes(content)
    refused(worker, reader, tmp_path)


def _updating(change: dict[str, Any], section: str | None = None) -> Callable[[dict[str, Any]], None]:
    return lambda facts: (facts if section is None else facts[section]).update(change)


def with_nan(tensor: torch.Tensor, value: float) -> torch.Tensor:
    changed = tensor.clone()
    changed.reshape(-1)[0] = value
    return changed


@pytest.mark.parametrize("value", [NAN, INF])
@pytest.mark.parametrize("name", ["model", "prompt", "dynamics"])
def test_nan_stops_at_the_door(worker: Worker, tmp_path: Path, name: str, value: float) -> None:
    """Also where every digest fits, and in every tensor of numbers."""
    files.first_format(tmp_path)
    path = tmp_path / f"{name}.safetensors"
    header = {} if name != "dynamics" else _metadata(path)
    tensors = read_tensors(path)
    for changed in tensors:
        damaged = tensors | {changed: with_nan(tensors[changed], value)}
        write_tensors(path, damaged, header)
        if name == "model":
            own = {"weights": tensors_hash(damaged)}
            edit(tmp_path / "config.json", _updating(own))
        assert f"'{changed}'" in refused(worker, "native", tmp_path)


def _metadata(path: Path) -> dict[str, str]:
    data = path.read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    found: dict[str, str] = json.loads(data[8 : 8 + size])["__metadata__"]
    return found


SAMPLE = {"obs": torch.zeros(6, 3), "starts": torch.zeros(2, 3), "action": torch.zeros(6, 2)}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"starts": None}, "lacks 'starts'"),
        ({"obs": None}, "lacks 'obs'"),
        ({"obs": torch.zeros(6, 4)}, "'obs' has shape [6, 4]"),
        ({"obs": torch.zeros(0, 3)}, "'obs' has shape [0, 3]"),
        ({"starts": torch.zeros(3)}, "'starts' has shape [3]"),
        ({"action": torch.zeros(5, 2)}, "'action' has shape [5, 2]"),
        ({"obs": torch.zeros(6, 3, dtype=torch.int64)}, "torch.int64"),
        ({"terminated": torch.zeros(6)}, "torch.float32"),
    ],
)
def test_samples_that_do_not_fit_the_model(
    worker: Worker, tmp_path: Path, change: dict[str, torch.Tensor | None], words: str
) -> None:
    files.first_format(tmp_path)
    changed = {name: value for name, value in (SAMPLE | change).items() if value is not None}
    write_tensors(tmp_path / "prompt.safetensors", changed)
    assert words in refused(worker, "native", tmp_path)


def test_learned_worlds_that_cannot_be(worker: Worker, tmp_path: Path) -> None:
    files.native(tmp_path)
    path = tmp_path / "dynamics.safetensors"
    tensors, header = read_tensors(path), _metadata(path)

    def says(changed: dict[str, Any], facts: dict[str, str]) -> str:
        write_tensors(path, {n: v for n, v in changed.items() if v is not None}, facts)
        return refused(worker, "native", tmp_path)

    assert "lacks 'config'" in says(tensors, {})
    assert "not valid JSON" in says(tensors, {"config": "{"})
    config = json.loads(header["config"])
    for name, value in {"members": 10**6, "hidden": 30_000, "layers": 10**5, "hidden_fields": 3}.items():
        says(tensors, {"config": json.dumps(config | {name: value})})
    assert "'net.mean' is missing" in says(tensors | {"net.mean": None}, header)
    assert "has shape" in says(tensors | {"actions": torch.zeros(2, 2, 2)}, header)
    assert "no start states" in says(tensors | {"states": torch.zeros(2, 3)}, header)
    write_tensors(path, tensors, header)
    assert worker.check("native", tmp_path)[0] == READ


def test_the_digests_cover_configuration_settings_and_sample(tmp_path: Path) -> None:
    folder = tmp_path / "new"
    files.native(folder)
    assert checkpoint.load(folder).facts["integrity"] == PROVEN
    whole = (folder / "config.json").read_text()
    for section, change in (("network", {"discount": 0.5}), ("settings", {"x": 1})):
        edit(folder / "config.json", _updating(change, section))
        with pytest.raises(ZolError, match=f"'{section}' in config.json is not what was saved"):
            checkpoint.load(folder)
        (folder / "config.json").write_text(whole)
    write_tensors(folder / "prompt.safetensors", SAMPLE)
    with pytest.raises(ZolError, match=r"prompt\.safetensors is not what was saved"):
        checkpoint.load(folder)
    files.first_format(tmp_path / "old")
    old = checkpoint.load(tmp_path / "old")
    assert old.facts["integrity"] == UNPROVEN
    assert old.facts["weights"] == model_hash(old.model)
    again = checkpoint.load(
        checkpoint.save(old.model, tmp_path / "again", prompt=old.prompt, facts=old.facts)
    )
    assert again.facts["integrity"] == PROVEN


@pytest.mark.parametrize("z", [[], 1.0, [[1.0, 2.0]], [NAN], [INF], [1e39], ["1"], [None], {}, "x"], ids=str)
def test_latents_that_are_none(worker: Worker, tmp_path: Path, z: Any) -> None:
    files.latent(tmp_path)
    edit(tmp_path / "z.json", lambda facts: facts.update(z=z))
    refused(worker, "latent", tmp_path)


def test_nothing_that_is_written_has_nan(tmp_path: Path) -> None:
    model = fb_network(FBConfig(obs_dim=3, action_dim=2, z_dim=4, hidden=8)).freeze()
    good = Latent(torch.ones(4), model_hash(model), "t", "zol", diagnostics={"a": NAN, "b": 1.0})
    for bad in (NAN, INF):
        with pytest.raises(ZolError, match="NaN or infinite"):
            Latent(torch.full((4,), bad), "", "t", "zol").save(tmp_path / "z.json")
        with pytest.raises(ZolError, match="estimate"):
            Latent(torch.ones(4), "", "t", "zol", estimate=bad).save(tmp_path / "z.json")
    assert not (tmp_path / "z.json").exists()
    good.save(tmp_path / "z.json")
    assert Latent.load(tmp_path / "z.json").diagnostics == {"b": 1.0}
    with pytest.raises(ZolError, match="latents of 4 numbers"):
        Latent(torch.ones(3), "x", "t", "zol").require("x", model.z_dim)
    sick = fb_network(FBConfig(obs_dim=3, action_dim=2, z_dim=4, hidden=8)).freeze()
    sick.state_dict()["actor.policy.0.bias"][0] = NAN
    with pytest.raises(ZolError, match="NaN or infinite"):
        checkpoint.save(sick, tmp_path / "sick")
    with pytest.raises(ZolError, match="NaN or infinite"):
        checkpoint.save(model, tmp_path / "sick", prompt=SAMPLE | {"obs": torch.full((6, 3), NAN)})
    assert not (tmp_path / "sick" / "config.json").exists()
    checkpoint.save(model, tmp_path / "noted", facts={"metrics": [{"loss": NAN}]})
    assert checkpoint.load(tmp_path / "noted").facts["metrics"] == [{"loss": None}]


def test_a_policy_that_gives_nan_is_not_exported(tmp_path: Path) -> None:
    pytest.importorskip("onnxscript")
    sick = fb_network(FBConfig(obs_dim=3, action_dim=2, z_dim=4, hidden=8)).freeze()
    sick.state_dict()["actor.policy.0.bias"][:] = NAN
    with pytest.raises(ZolError, match="ONNX is nan away from float64"):
        export(sick, tmp_path)
    assert not list(tmp_path.glob("*.onnx"))
    with pytest.raises(ZolError, match="NaN or infinite"):
        export(sick, tmp_path, [Latent(torch.full((4,), NAN), model_hash(sick), "t", "zol")], fixed=True)


def bomb(size: int) -> bytes:
    """An npz whose observations are zeros: a thousandth of their size."""
    file = io.BytesIO()
    rows = size // 8 // 2
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("obs.npy", "w") as member:
        np.lib.format.write_array_header_1_0(
            member, {"descr": "<f8", "fortran_order": False, "shape": (rows, 2)}
        )
        for _ in range(size >> 20):
            member.write(bytes(1 << 20))
    return file.getvalue()


def test_archives_that_unpack_to_gigabytes(worker: Worker, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    source = tmp_path / "a" / "x.npz"
    source.write_bytes(bomb(4 * SMALL))
    assert "would unpack" in refused(worker, "source", tmp_path / "a")
    source.unlink()
    for size, count in ((4 * SMALL, 1), (SMALL // 2, 50)):  # one large episode, and fifty that add up
        inner = bomb(size).replace(b"obs.npy", b"xyz.npy")
        with zipfile.ZipFile(tmp_path / "a" / "x.zip", "w", zipfile.ZIP_DEFLATED) as archive:
            for number in range(count):
                archive.writestr(f"episode_{number}_{size // 16 - 1}.npz", inner)
        refused(worker, "source", tmp_path / "a")


def test_an_array_that_claims_more_than_is_there(worker: Worker, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": "<f8", "fortran_order": False, "shape": (10**9, 3)}
    )
    with zipfile.ZipFile(tmp_path / "a" / "x.npz", "w") as archive:
        archive.writestr("obs.npy", header.getvalue())
    assert "claims 24000000000 bytes" in refused(worker, "source", tmp_path / "a")


def hdf5_attacks(file: h5py.File, what: str, secret: Path) -> None:
    for name, values in ARRAYS.items():
        if name != "obs":
            file[name] = values
    if what == "external storage":
        file.create_dataset("obs", (20, 3), "f8", external=[(str(secret), 0, 480)])
    elif what == "virtual storage":
        layout = h5py.VirtualLayout((20, 3), "f8")
        layout[:] = h5py.VirtualSource(str(secret), "obs", (20, 3))
        file.create_virtual_dataset("obs", layout)
    elif what == "external link":
        file["obs"] = h5py.ExternalLink(str(secret), "/obs")
    elif what == "soft link":
        file["elsewhere"] = h5py.ExternalLink(str(secret), "/")
        file["obs"] = h5py.SoftLink("/elsewhere/obs")
    elif what == "fill values":
        file.create_dataset("obs", (1 << 28, 3), "f8", chunks=(1024, 3), compression="gzip")
    elif what == "chunk":
        obs = file.create_dataset("obs", (20, 3), "f8", chunks=(20, 3), compression="gzip")
        packer = zlib.compressobj()
        data = b"".join(packer.compress(bytes(1 << 20)) for _ in range(700)) + packer.flush()
        obs.id.write_direct_chunk((0, 0), data)
    elif what == "words":
        file.create_dataset("obs", data=["a"] * 20)


@pytest.mark.parametrize(
    "what",
    ["external storage", "virtual storage", "external link", "soft link", "fill values", "chunk", "words"],
)
def test_hdf5_files_hold_their_own_numbers_and_no_more(worker: Worker, tmp_path: Path, what: str) -> None:
    secret = tmp_path / "secret"
    with h5py.File(secret, "w") as file:
        file["obs"] = ARRAYS["obs"]
    (tmp_path / "a").mkdir()
    with h5py.File(tmp_path / "a" / "x.h5", "w") as file:
        hdf5_attacks(file, what, secret)
    assert "'obs'" in refused(worker, "source", tmp_path / "a") or what == "soft link"


@pytest.mark.parametrize(
    "arrays",
    [
        {"obs": ARRAYS["obs"], "action": ARRAYS["action"], "truncated": np.zeros((20, 2))},
        {"obs": ARRAYS["obs"], "action": ARRAYS["action"], "truncated": np.zeros(20, dtype="c16")},
        {"obs": ARRAYS["obs"], "action": ARRAYS["action"], "truncated": np.full(20, NAN)},
        ARRAYS | {"reward": np.zeros(20, dtype="c16")},
        ARRAYS | {"terminated": np.zeros(20, dtype=[("a", "f4")])},
    ],
    ids=["two columns", "complex flags", "nan flags", "complex rewards", "structured flags"],
)
@pytest.mark.parametrize("ending", ["npz", "h5"])
def test_flags_and_rewards_of_odd_types(
    worker: Worker, tmp_path: Path, arrays: dict[str, Any], ending: str
) -> None:
    (tmp_path / "a").mkdir()
    write = npz_bytes if ending == "npz" else files.hdf5_bytes
    (tmp_path / "a" / f"x.{ending}").write_bytes(write(arrays))
    refused(worker, "source", tmp_path / "a")


@pytest.mark.parametrize(
    ("name", "dtype"),
    [("discount", [("a", "f4")]), ("discount", "U3"), ("reward", "c16"), ("reward", [("a", "f4")])],
)
def test_exorl_columns_of_odd_types(worker: Worker, tmp_path: Path, name: str, dtype: Any) -> None:
    """In the first episode, or in one after it."""
    odd = EPISODE | {name: np.zeros(6, dtype=np.dtype(dtype))}
    (tmp_path / "a").mkdir()
    for order in ((EPISODE, odd), (odd, EPISODE)):
        with zipfile.ZipFile(tmp_path / "a" / "x.zip", "w") as archive:
            for number, arrays in enumerate(order):
                archive.writestr(f"episode_{number}_5.npz", npz_bytes(arrays))
        refused(worker, "source", tmp_path / "a")


@pytest.mark.parametrize(
    "scale", ["x", [1.0], [1.0, None, 1.0], [1.0, NAN, 1.0], {"a": 1}, [0, 0, 0]], ids=str
)
def test_a_scale_that_is_none(worker: Worker, tmp_path: Path, scale: Any) -> None:
    folder = tmp_path / "set"
    folder.mkdir()
    files.dataset(folder)
    edit(folder / "dataset.json", lambda facts: facts["provenance"]["coverage"].update(scale=scale))
    refused(worker, "set", folder)


@pytest.mark.parametrize("steps", [[2**62, 2**62, 2**62], [2**63 - 1] * 2, [0, 5], [10**12]], ids=str)
def test_an_index_that_counts_too_far(worker: Worker, tmp_path: Path, steps: list[int]) -> None:
    folder = tmp_path / "set"
    folder.mkdir()
    files.dataset(folder)
    content = b"".join(record(number, count, bytes(16)) for number, count in enumerate(steps))
    (folder / "episodes.bin").write_bytes(content)
    refused(worker, "set", folder)


@pytest.mark.parametrize("name", ["dataset.json", "episodes.bin", "obs.bin", "resets.bin"])
def test_sets_consist_of_regular_files(worker: Worker, tmp_path: Path, name: str) -> None:
    folder = tmp_path / "set"
    folder.mkdir()
    files.dataset(folder)
    (folder / name).unlink()
    os.mkfifo(folder / name)
    refused(worker, "set", folder)


def test_nan_in_a_stored_set_is_found(tmp_path: Path) -> None:
    """Even where the digests fit, because whoever wrote it computed them of NaN."""
    folder = tmp_path / "set"
    data = Dataset.from_arrays(**ARRAYS).save(folder)
    rows = {name: np.array(values) for name, values in data.columns.items()}
    rows["obs"][-1, 0] = NAN
    (folder / "obs.bin").write_bytes(rows["obs"].tobytes())
    last = data.episodes - 1
    first = int(data.first_rows[last])
    digest = episode_digest({name: values[first:] for name, values in rows.items()})
    content = (folder / "episodes.bin").read_bytes()[:-32] + record(last, int(data.lengths[last]), digest)
    (folder / "episodes.bin").write_bytes(content)
    with pytest.raises(ZolError, match=f"'obs' of episode {last}.* has NaN"):
        Dataset.open(folder).verify()
    with pytest.raises(ZolError, match="NaN"):
        Evidence.gather(
            Dataset.open(folder), [Task("one", lambda s: s["obs"][:, 1])], generator=torch.Generator()
        )
