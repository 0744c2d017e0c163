"""``zol play``: a page on which a model is asked for behaviour, and shows it."""

import time
import webbrowser
from pathlib import Path
from typing import Annotated

import tyro

from zol import session
from zol.common.outputs import require_place
from zol.common.terminal import terminal
from zol.data import Dataset
from zol.play.gate import require_token
from zol.play.server import PlayServer
from zol.session.wishes import own_reward
from zol.worlds import make


def play(
    model: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")],
    reward: str | None = None,
    world: str | None = None,
    data: Path | None = None,
    host: str = "127.0.0.1",
    port: int = 8017,
    token: str | None = None,
    out: Path = Path("zol-play"),
    seed: int = 0,
    browser: bool = False,
) -> None:
    """Open a page in which the body moves and follows the rewards that you slide, type or point at.

    The plain prompt is followed at once; a search (rehearse, zol, …) refines it in the background, and both
    bodies are shown side by side with what they earn. Ctrl-C ends it. See docs/play.md.

    Args:
        model: checkpoint folder, a name of the zoo (zol zoo list), or hf://org/name
        reward: to begin with: a task, an expression (docs/rewards.md), or FILE.py:NAME, which is run
        world: where it lives, for a checkpoint that does not say
        data: states to apply rewards to, for a checkpoint that carries none (zol data import)
        host: address to listen on; another than this machine's own asks for a token
        port: port to listen on; the next free one if it is taken
        token: what others have to know; needed for every address that they can reach
        out: folder for latents, graphs and films that are written on the page
        seed: of start states
        browser: open the page in a browser of this machine
    """
    require_token(host, token)
    require_place(out)
    agent = session.load(model, data=None if data is None else Dataset.open(data))
    if world is not None:
        agent = session.Agent(agent.checkpoint, world=make(world), data=agent.data, path=agent.path)
    task = None
    if reward is not None:
        known = agent.tasks.get(reward)
        task = (known or own_reward(reward, agent.layout, agent.tasks), reward)
    server = PlayServer(agent, model, host=host, port=port, token=token, reward=task, out=out, seed=seed)
    terminal().print(f"{model} plays at {server.address} (Ctrl-C ends it)", soft_wrap=True)
    if browser:
        webbrowser.open(server.address)
    try:
        while True:
            time.sleep(3600)
    except KeyboardInterrupt:
        terminal().print("\nthe page is closed")
    finally:
        server.close()
