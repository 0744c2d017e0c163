"""Ways to damage a file that know its format: hypothesis strategies from whole bytes to broken ones."""

import json
import sqlite3
import struct
from collections.abc import Iterator
from contextlib import closing, suppress
from typing import Any

from hypothesis import strategies as st

NUMBERS = [0, 1, -1, 2, 63, 65, 30_000, 10**5, 10**6, 10**9, 2**31, 2**63, 10**30, 10**400, 0.5, 1e308]
WORDS = ["", "x", "2", "simple", "batch", "FBModel", "../../etc/passwd", "\x00", "\ud800", "ü" * 300]
TREES: list[Any] = [None, True, [], [1], [[]], [10**9], [None], {}, {"name": 3}, {"obs": []}, [0.5] * 50]
NOT_NUMBERS = [float("nan"), float("inf"), float("-inf")]
VALUES = st.one_of(
    st.sampled_from([*NUMBERS, *WORDS, *TREES, *NOT_NUMBERS]),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
    st.lists(st.integers(-3, 3), max_size=3),
)
STORED = [
    *("null", "''", "'x'", "x''", "x'00ff'", "0", "1", "-1", "1.5", "9e999", "-9e999", "9223372036854775807"),
    *("x'000000000000f87f'", "cast(x'ff41' as text)", "zeroblob(100000)", "char(0)", "'[]'", "'null'"),
    *("char(55296)", "'{\"revision\": []}'", "'{\"revision\": 1e999}'", "'[1]'", "'{\"a\": NaN}'"),
]
DEEP = b'{"a": ' + b"[" * 200_000 + b"]" * 200_000 + b"}"


def nodes(tree: Any) -> Iterator[tuple[Any, Any]]:
    """Every place in a JSON tree where something can be put."""
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in list(items)[:40]:
        yield (tree, key)
        yield from nodes(value)


@st.composite
def damaged_bytes(draw: st.DrawFn, data: bytes) -> bytes:
    """Cut short, or with a few bytes changed."""
    if draw(st.integers(0, 3)) == 0:
        return data[: draw(st.integers(0, len(data) - 1))]
    changed = bytearray(data)
    places = st.tuples(st.integers(0, len(data) - 1), st.integers(0, 255))
    for place, value in draw(st.lists(places, min_size=1, max_size=8)):
        changed[place] = value
    return bytes(changed)


@st.composite
def damaged_json(draw: st.DrawFn, data: bytes) -> bytes:
    """Values replaced, removed, wrapped or renamed; now and then no JSON at all."""
    kind = draw(st.integers(0, 9))
    if kind == 0:
        return draw(st.sampled_from([DEEP, b"", b"null", b"[]", b"{}", b'{"schema": 1e999}', b"\xff\xfe{}"]))
    if kind == 1:
        return draw(damaged_bytes(data))
    tree = json.loads(data)
    for _ in range(draw(st.integers(1, 3))):
        places = list(nodes(tree))
        if not places:
            break
        owner, key = draw(st.sampled_from(places))
        action = draw(st.sampled_from(["replace", "replace", "replace", "remove", "wrap", "rename"]))
        if action == "replace":
            owner[key] = draw(VALUES)
        elif action == "wrap":
            owner[key] = [owner[key]]
        elif action == "remove" or isinstance(owner, list):
            del owner[key]
        else:
            owner[draw(st.text(max_size=8))] = owner.pop(key)
    return json.dumps(tree).encode("utf-8", "surrogatepass")


@st.composite
def damaged_tensors(draw: st.DrawFn, data: bytes) -> bytes:
    """A safetensors file with another header, other metadata, other numbers, or cut short."""
    (size,) = struct.unpack("<Q", data[:8])
    kind = draw(st.sampled_from(["bytes", "length", "entry", "entry", "entry", "metadata", "not a number"]))
    if kind == "bytes":
        return draw(damaged_bytes(data))
    if kind == "length":
        lengths = [0, 1, size - 1, size + 1, 2**40, 2**63, 2**64 - 1]
        return struct.pack("<Q", draw(st.sampled_from(lengths))) + data[8:]
    if kind == "not a number":
        body = bytearray(data)
        place = 8 + size + 4 * draw(st.integers(0, (len(data) - size - 8) // 4 - 1))
        body[place : place + 4] = struct.pack("<f", draw(st.sampled_from(NOT_NUMBERS)))
        return bytes(body)
    header = json.loads(data[8 : 8 + size])
    if kind == "metadata":
        stored = header.pop("__metadata__", None)
        if stored and draw(st.booleans()):
            name = draw(st.sampled_from(sorted(stored)))
            text = draw(damaged_json(stored[name].encode())) if stored[name][:1] == "{" else b"-1x"
            header["__metadata__"] = stored | {name: text.decode(errors="replace")}
    else:
        _damage_entry(draw, header)
    text = json.dumps(header).encode("utf-8", "surrogatepass")
    return struct.pack("<Q", len(text)) + text + data[8 + size :]


def damaged_lines(data: bytes) -> st.SearchStrategy[bytes]:
    """A file of one JSON object per line, with one of them damaged, or its bytes."""

    @st.composite
    def damaged(draw: st.DrawFn) -> bytes:
        if draw(st.integers(0, 4)) == 0:
            return draw(damaged_bytes(data))
        lines = data.splitlines()
        place = draw(st.integers(0, len(lines) - 1))
        lines[place] = draw(damaged_json(lines[place].replace(b"NaN", b"0")))
        return b"\n".join(lines) + draw(st.sampled_from([b"", b"\n"]))

    return damaged()


JOURNAL = slice(18, 20)  # where SQLite says that it keeps a log beside the file, which memory cannot
DEFINITIONS = [
    "create view more as select * from results",
    "create table more (x)",
    "create index more on results (task)",
    "create trigger more after insert on results begin delete from results; end",
    "alter table results add column more",
    "alter table results rename column task to chore",
    "alter table results drop column finished",
    "alter table results rename to more",
    "drop table results",
    "pragma application_id = 0",
    "pragma application_id = 252006674",
    "pragma user_version = 0",
    "pragma user_version = 1",
    "pragma user_version = 3",
    "pragma user_version = -1",
    "delete from results",
    "update sqlite_master set sql = replace(sql, 'text', 'blob')",
    "update sqlite_master set sql = replace(sql, 'not null', '')",
    "update sqlite_master set sql = replace(sql, 'seconds real', 'seconds as (zeroblob(1000000000))')",
    "update sqlite_master set sql = 'create view results as select 1'",
    "update sqlite_master set type = 'view'",
    "update sqlite_master set rootpage = 1",
    "update sqlite_master set rootpage = 999999",
    "update sqlite_master set name = 'x'",
]


@st.composite
def damaged_database(draw: st.DrawFn, data: bytes) -> bytes:
    """A result store with other values, rows, definitions or pages."""
    kind = draw(st.sampled_from(["value", "value", "value", "settings", "definition", "page", "bytes"]))
    if kind == "bytes":
        return draw(damaged_bytes(data))
    if kind == "page":
        size = int.from_bytes(data[16:18], "big")
        pages = [data[k : k + size] for k in range(0, len(data), size)]
        place = draw(st.integers(0, len(pages) - 1))
        pages[place] = draw(st.sampled_from([bytes(size), b"\xff" * size, pages[-1], pages[0], b""]))
        return b"".join(pages)
    with closing(sqlite3.connect(":memory:")) as database:
        calm = bytearray(data)
        calm[JOURNAL] = b"\x01\x01"
        database.deserialize(calm)
        row = draw(st.integers(1, 4))
        if kind == "definition":
            database.execute("pragma writable_schema = on")
            with suppress(sqlite3.Error):
                database.execute(draw(st.sampled_from(DEFINITIONS)))
        elif kind == "settings":
            column = draw(st.sampled_from(["configuration", "diagnostics", "chosen", "versions"]))
            (text,) = database.execute(f"select {column} from results where rowid = ?", (row,)).fetchone()
            changed = draw(damaged_json(text.encode())).decode(errors="replace")
            database.execute(f"update or ignore results set {column} = ? where rowid = ?", (changed, row))
        else:
            columns = [found[1] for found in database.execute("pragma table_info(results)")]
            column = draw(st.sampled_from(columns))
            value = draw(st.sampled_from(STORED))
            database.execute(f'update or ignore results set "{column}" = {value} where rowid = {row}')
        database.commit()
        changed_data = bytearray(database.serialize())
    changed_data[JOURNAL] = data[JOURNAL]
    return bytes(changed_data)


def _damage_entry(draw: st.DrawFn, header: dict[str, Any]) -> None:
    name = draw(st.sampled_from(sorted(set(header) - {"__metadata__"})))
    entry = header[name]
    change = draw(st.sampled_from(["shape", "place", "type", "rename", "remove"]))
    if change == "shape":
        shape = entry["shape"]
        others = [[10**12], [2**62, 8], [0], [], [-1], shape[::-1], [1, *shape], [*shape, 1], "x"]
        entry["shape"] = draw(st.sampled_from(others))
    elif change == "place":
        entry["data_offsets"] = draw(st.sampled_from([[0, 2**62], [8, 4], [0, 0], [0], ["a", "b"], [-4, 0]]))
    elif change == "type":
        types = ["I32", "U32", "F16", "F64", "BOOL", "U8", "I64", "F8_E4M3", "object", 7]
        entry["dtype"] = draw(st.sampled_from(types))
    elif change == "rename":
        header[draw(st.sampled_from([name + "x", "obs", "net.mean", ""]))] = header.pop(name)
    else:
        del header[name]
