"""Rewards as text: their values are exact, their mistakes are pointed at, and nothing else is ever run."""

import math
import random
import sys
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from zol.common.errors import DataError, ZolError
from zol.fields import Field, Layout, States
from zol.tasks import Task, tolerance
from zol.tasks.expression import ExpressionError, is_expression, scalar_fields, typed_task

LAYOUT = Layout(
    6,
    (Field("height", 0), Field("speed", 1), Field("velocity", 2, 3), Field("angle", 5)),
    {"radius": lambda s: s["velocity"].norm(dim=-1), "hidden": lambda s: s.need_physics()[..., 0]},
)
TASKS = {"stand": Task("stand", lambda s: s["height"].clamp(0, 1))}
STATES = States(
    torch.randn(7, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64),
    LAYOUT,
    action=torch.linspace(-1, 1, 14, dtype=torch.float64).reshape(7, 2),
)
H, S, V, ANGLE = STATES["height"], STATES["speed"], STATES["velocity"], STATES["angle"]
A = STATES.need_action()


def value(text: str, states: States = STATES) -> Tensor:
    return typed_task(text, LAYOUT, TASKS)(states)


CASES: dict[str, Callable[[], Tensor]] = {
    "height": lambda: H,
    " 2.5e-1 ": lambda: torch.full_like(H, 0.25),
    "1.2 * (height > 0.1) - 0.1 * norm(velocity)": lambda: 1.2 * (H > 0.1) - 0.1 * V.norm(dim=-1),
    "1 - 2 - 3": lambda: torch.full_like(H, -4),
    "12 / 2 / 3": lambda: torch.full_like(H, 2),
    "-height**2": lambda: -(H**2),
    "(-height)**2": lambda: H**2,
    "2 * -speed + +1": lambda: 1 - 2 * S,
    "height ** -1": lambda: 1 / H,
    "1 + 2 * 3 > 6 and 2 > 1": lambda: torch.ones_like(H),
    "0 < height < 1": lambda: ((H > 0) & (H < 1)).double(),
    "height > 0 or speed > 0 and not height": lambda: (H > 0).double(),
    "not (height > 0)": lambda: (H <= 0).double(),
    "height == speed": lambda: torch.zeros_like(H),
    "height != speed": lambda: torch.ones_like(H),
    "(height >= 0) + (height <= 0)": lambda: torch.ones_like(H),
    "velocity[1]": lambda: V[:, 1],
    "norm(velocity - 1)": lambda: (V - 1).norm(dim=-1),
    "norm(height)": lambda: H.abs(),
    "abs(speed)": lambda: S.abs(),
    "max(velocity)": lambda: V.amax(-1),
    "min(height, speed, 0)": lambda: torch.minimum(H, S).clamp_max(0),
    "mean(velocity * height)": lambda: (V * H[:, None]).mean(-1),
    "sum(velocity ** 2)": lambda: V.square().sum(-1),
    "clip(height, -0.5, 0.5)": lambda: H.clamp(-0.5, 0.5),
    "exp(height) + sin(angle) * cos(angle)": lambda: H.exp() + ANGLE.sin() * ANGLE.cos(),
    "sqrt(abs(height))": lambda: H.abs().sqrt(),
    "cos(pi)": lambda: -torch.ones_like(H),
    "between(height, 0.2, 0.4)": lambda: tolerance(H, 0.2, 0.4),
    "between(height, 1, inf, 0.5)": lambda: tolerance(H, 1.0, margin=0.5),
    "between(height, 1 - 0.5, 2 * 0.5, 1 / 2)": lambda: tolerance(H, 0.5, 1.0, margin=0.5),
    "stand + radius": lambda: H.clamp(0, 1) + V.norm(dim=-1),
    "1 - mean(action ** 2)": lambda: 1 - A.square().mean(-1),
    "norm(ctrl)": lambda: A.norm(dim=-1),
}


@pytest.mark.parametrize("text", CASES)
def test_values(text: str) -> None:
    torch.testing.assert_close(value(text), CASES[text]())


def test_it_works_on_one_state_on_many_and_in_single_precision() -> None:
    text = "between(height, 1, inf, 0.5) - 0.1 * norm(velocity) + 0 * velocity[0]"
    expected = value(text)
    assert value(text, STATES.rows(slice(0, 1))).shape == (1,)
    one = States(STATES.obs[0], LAYOUT)
    torch.testing.assert_close(value(text, one), expected[0])
    block = States(STATES.obs.expand(2, 3, 7, 6).float(), LAYOUT)
    found = value(text, block)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found[1, 2], expected.float())
    assert value("1", block).shape == (2, 3, 7)


def test_names() -> None:
    assert typed_task("height  >\n1", LAYOUT).name == "height > 1"
    assert typed_task("tall = height > 1", LAYOUT).name == "tall"
    assert typed_task("tall = height > 1", LAYOUT, name="mine").name == "mine"
    assert scalar_fields(STATES) == ["height", "speed", "angle", "radius"]


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("stand", False),
        ("reach-0-left", False),
        ("heigth", False),
        ("", False),
        ("height", True),
        ("speed-height", True),
        ("height > 1", True),
        ("norm(velocity)", True),
    ],
)
def test_what_is_meant_as_an_expression(text: str, meant: bool) -> None:
    assert is_expression(text, LAYOUT) is meant


@pytest.mark.parametrize(
    ("text", "sentence", "marked"),
    [
        ("1 + heigth", "no field called 'heigth'; did you mean 'height'?", "heigth"),
        ("nrom(velocity)", "no function called 'nrom'; did you mean 'norm'?", "nrom"),
        ("1 + norm", "norm is a function: write norm(vector)", "norm"),
        ("(1 + height", "expected ')' to close this parenthesis", " "),
        ("height height", "an operator is missing", "height"),
        ("height +", "the reward ends here", " "),
        ("", "the reward ends here", " "),
        ("* height", "expected a number, a field or a parenthesis, found '*'", "*"),
        ("height = 1 = 2", "did you mean '=='?", "="),
        ("height ^ 2", "did you mean '**'?", "^"),
        ("height & speed", "did you mean 'and'?", "&"),
        ("height.real", "a field has no attributes", "."),
        ("height 'a'", "means nothing in a reward", "'"),
        ("velocity", "a reward is one number per state, and this is 3", "velocity"),
        ("velocity[3]", "'velocity' has 3 numbers, velocity[0] to velocity[2]", "velocity[3]"),
        ("height[0]", "'height' is a single number", "height[0]"),
        ("velocity[-1]", "takes one whole number, counted from 0", "-"),
        ("velocity[0.5]", "takes one whole number, counted from 0", "0.5"),
        ("velocity[speed]", "takes one whole number, counted from 0", "speed"),
        ("norm(velocity - action)", "vectors of 2 and 3 numbers do not go together", "velocity - action"),
        ("clip(height, 1)", "clip was given 2 arguments: write clip(x, low, high)", "clip(height, 1)"),
        ("between(height, 2, 1)", "between needs low ≤ high", "between(height, 2, 1)"),
        ("between(height, 0, 1, -1)", "the margin of between is 0 or more", "between(height, 0, 1, -1)"),
        ("between(height, speed, 2)", "bounds and margin of between", "speed"),
        ("height ** speed", "the exponent after ** is a number within ±8", "speed"),
        ("9 ** 9 ** 9 ** 9", "the exponent 9 is too large", "9"),
        ("2 ** 2 ** 2", "one ** after another is not allowed", "**"),
        ("height ** -20", "the exponent -20 is too large", "-20"),
        ("1e999", "too large for a number", "1e999"),
        ("(" * 50 + "1" + ")" * 50, "nested more than 40 deep", "("),
        ("-" * 300 + "1", "nested more than 40 deep", "-"),
        ("not " * 300 + "1", "nested more than 40 deep", "not"),
        ("1+" * 300 + "1", "more than 400 numbers, names and signs", "1"),
        ("1" * 3000, "this reward has 3000 characters, 2000 are allowed", "1"),
    ],
)
def test_mistakes_are_pointed_at(text: str, sentence: str, marked: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        value(text)
    said, shown, caret = str(caught.value).split("\n")
    assert sentence in said
    begin, end = caret.index("^"), caret.rindex("^") + 1
    assert shown.ljust(end)[begin:end] == marked


def test_states_that_lack_what_a_reward_reads() -> None:
    bare = States(STATES.obs, LAYOUT)
    with pytest.raises(DataError, match="depends on the action"):
        value("norm(action)", bare)
    with pytest.raises(DataError, match="needs the simulator state"):
        value("hidden", bare)


# What a hostile or a careless user may type.
WORDS = (
    "height speed velocity angle radius stand action ctrl pi inf 1 0 2.5 1e9 .5 9 + - * / ** < <= > >= == != "
    "( ) [ ] , and or not norm abs min max mean sum clip exp sqrt sin cos between [0] [2] **2 **-8 ( ( ) )"
)
PIECES = WORDS.split()
READ = "height speed velocity velocity[0] radius stand action 1 0.5 2e3 pi inf"
BINARY, UNARY = "+ - * / < <= == and or", "norm abs exp sqrt sin max mean"
HOSTILE = (
    "__import__('os').system('true')",
    "().__class__.__bases__[0].__subclasses__()",
    "exec('1')",
    "eval(height)",
    "lambda: 1",
    "[x for x in height]",
    "f'{height}'",
    "open('/etc/passwd')",
    "height.__class__",
    "height if speed else angle",
    "height := 3",
    "import os",
    "print(1)",
    "velocity[0:2]",
    "getattr(height, 'data')",
    "@ $ # ~ ` ; : ? % \\ \x00 \ud800 é 你 ² ½ ١",
    "globals()",
    "norm.__globals__",
    "**" * 20,
    "9**9**9**9",
    "0/0",
    "1" * 500,
    "[" * 200,
    "{'a': 1}",
    "yield height",
)


def grown(rng: random.Random, depth: int = 0) -> str:
    """A sentence of the grammar; the vectors in it may not fit together."""
    if depth > 3 or rng.random() < 0.2:
        return rng.choice(READ.split())
    one, other = grown(rng, depth + 1), grown(rng, depth + 1)
    forms = [f"({one}) {rng.choice(BINARY.split())} {other}", f"-{one}", f"not {one}"]
    forms += [
        f"({one})**{rng.randint(-9, 9)}",
        f"{rng.choice(UNARY.split())}({one})",
    ]
    forms += [f"clip({one}, 0, {other})", f"between({one}, {rng.randint(-2, 1)}, 1, {rng.randint(-1, 2)})"]
    return rng.choice(forms)


def typed_at_random(rng: random.Random) -> str:
    """Some are sentences of the grammar, some heaps of its words, some hostile, some noise."""
    kind = rng.random()
    if kind < 0.3:
        return grown(rng)
    if kind < 0.5:
        return " ".join(rng.choice(PIECES) for _ in range(rng.randint(1, 24)))
    if kind < 0.7:
        return rng.choice(HOSTILE) + rng.choice(["", " ", "+", ")"]) + rng.choice(PIECES)
    if kind < 0.85:
        text = rng.choice([*CASES, *HOSTILE])
        at = rng.randrange(len(text) + 1)
        return text[:at] + chr(rng.choice([rng.randrange(128), rng.randrange(0x11000)])) + text[at + 1 :]
    return "".join(chr(rng.randrange(0x300)) for _ in range(rng.randint(0, 60)))


def test_two_thousand_strings_run_nothing() -> None:
    """Whatever is typed gives one number per state or a ZolError; no code is made, run or imported."""
    touched: list[str] = []
    forbidden = {"exec", "eval", "compile", "import", "open", "os.system", "subprocess.Popen", "code.__new__"}

    def watch(event: str, arguments: Any) -> None:
        if watching and event in forbidden:
            touched.append(f"{event} {arguments}")

    rng = random.Random(0)
    watching = False
    value("norm(velocity)")  # whatever torch imports late, it imports here
    for name in CASES:
        value(name)
    sys.addaudithook(watch)  # it cannot be removed: it listens while ``watching`` is true
    texts = [*HOSTILE, *(typed_at_random(rng) for _ in range(2000))]
    computed = 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for text in texts:
            watching = True
            try:
                found = value(text)
                computed += 1
                assert found.shape == (7,)
                assert found.dtype == torch.float64
            except ZolError as error:
                str(error).encode()  # it can be printed
            finally:
                watching = False
    assert touched == []
    assert 200 < computed < 1000


def test_a_long_reward_within_the_limits_is_computed() -> None:
    text = "+".join(["height"] * 190)
    torch.testing.assert_close(value(text), 190 * H)
    deep = "(" * 39 + "height" + ")" * 39
    torch.testing.assert_close(value(deep), H)
    assert math.isfinite(float(value("8 ** 8").max()))
