"""Files nobody vouches for: thousands of damaged checkpoints end in our own errors, quickly and small."""

import json
import random
import resource
import struct
import time

import foreign_files as files
import pytest

from zol.common.errors import ZolError
from zol.models.foreign import load_foreign

MUTATIONS = {"metamotivo": 600, "td_jepa_fb": 600, "td_jepa_hilp": 600, "bfm_zero": 300}
NUMBERS = [0, 1, -1, 2, 3, 63, 65, 10**6, 10**9, 2**31, 2**63, 10**30, -(10**30), 0.5, 1e308]
WORDS = ["", "x", "simple", "residual", "batch", "FBModel", "HilpModel", "../../etc/passwd", "\x00"]
TREES = [None, True, False, [], [1], [[]], [10**9], {}, {"name": "Identity"}, {"name": 3}]
WEIRD = [*NUMBERS, *WORDS, *TREES, float("inf"), float("-inf")]


def nodes(tree, path=()):
    """Every place in a JSON tree where something can be put."""
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in list(items)[:12]:
        yield (tree, key)
        yield from nodes(value, (*path, key))


def mutate_json(text: str, rng: random.Random) -> str:
    kind = rng.random()
    if kind < 0.75:
        tree = json.loads(text)
        for _ in range(rng.choice([1, 1, 1, 2, 4])):
            owner, key = rng.choice(list(nodes(tree)) or [({}, "x")])
            action = rng.random()
            if action < 0.2:
                del owner[key]
                break
            value = rng.choice(WEIRD)
            if action > 0.9 and isinstance(owner[key], list | dict):
                value = [owner[key]]
            owner[key] = value
        return json.dumps(tree)
    data = list(text)
    for _ in range(rng.choice([1, 3, 20])):
        data[rng.randrange(len(data))] = chr(rng.randrange(1, 300))
    return "".join(data[: rng.randrange(len(data))] if rng.random() < 0.3 else data)


def mutate_weights(data: bytes, rng: random.Random) -> bytes:
    kind = rng.random()
    (size,) = struct.unpack("<Q", data[:8])
    if kind < 0.1:
        return data[: rng.randrange(len(data))]
    if kind < 0.2:
        return struct.pack("<Q", rng.choice([0, 1, size - 1, size + 1, 2**40, 2**63, 2**64 - 1])) + data[8:]
    if kind < 0.5:
        header = bytearray(data[8 : 8 + size])
        for _ in range(rng.choice([1, 2, 8])):
            header[rng.randrange(size)] = rng.randrange(256)
        return data[:8] + bytes(header) + data[8 + size :]
    if kind < 0.9:
        header = json.loads(data[8 : 8 + size])
        name = rng.choice([n for n in header if n != "__metadata__"])
        entry = header[name]
        change = rng.randrange(5)
        if change == 0:
            entry["shape"] = rng.choice([[10**12], [2**62, 8], [0], [], [-1], entry["shape"][::-1], "x"])
        elif change == 1:
            entry["data_offsets"] = rng.choice([[0, 2**62], [8, 4], [0, 0], [0], ["a", "b"], [-4, 0]])
        elif change == 2:
            entry["dtype"] = rng.choice(["F16", "F64", "BOOL", "U8", "I64", "F8_E4M3", "object", 7])
        elif change == 3:
            header[name + "x"] = header.pop(name)
        else:
            del header[name]
        text = json.dumps(header).encode()
        return struct.pack("<Q", len(text)) + text + data[8 + size :]
    body = bytearray(data)
    for _ in range(rng.choice([1, 50])):
        body[rng.randrange(8 + size, len(body))] = rng.randrange(256)
    return bytes(body)


@pytest.mark.parametrize("name", MUTATIONS)
def test_damaged_checkpoints_end_in_our_errors(tmp_path, name):
    config, stored = getattr(files, name)()
    kwargs = files.BFM_KWARGS if name == "bfm_zero" else files.KWARGS
    folder = files.write(tmp_path, config, stored, kwargs)
    paths = {p.name: p for p in folder.iterdir()}
    originals = {n: p.read_bytes() for n, p in paths.items()}
    rng = random.Random(name)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    outcomes = {"loaded": 0, "refused": 0}
    for _ in range(MUTATIONS[name]):
        victim = rng.choice(["config.json", "config.json", "model.safetensors", "init_kwargs.json"])
        if victim == "model.safetensors":
            paths[victim].write_bytes(mutate_weights(originals[victim], rng))
        else:
            paths[victim].write_text(mutate_json(originals[victim].decode(), rng), encoding="utf-8")
        begin = time.monotonic()
        try:
            load_foreign(folder, discount=0.98)
            outcomes["loaded"] += 1
        except ZolError:
            outcomes["refused"] += 1
        assert time.monotonic() - begin < 10
        paths[victim].write_bytes(originals[victim])
    assert outcomes["refused"] > MUTATIONS[name] // 3
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory
    assert grown < 300_000, f"peak memory grew by {grown} kB"
    load_foreign(folder, discount=0.98)  # the undamaged files still load
