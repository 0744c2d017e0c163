"""What the groups of controls share: how handlers are registered, and what happens when one fails."""

from collections.abc import Callable
from typing import Any

from zol.common.errors import ZolError
from zol.play.session import PlaySession

Handler = Callable[[Any], None]


def on(register: Any) -> Callable[[Handler], Handler]:
    """Register a handler with a control: ``@on(button.on_click)``."""

    def registered(handler: Handler) -> Handler:
        register(handler)
        return handler

    return registered


def attempt(session: PlaySession, action: Callable[[], object]) -> None:
    """Do what was asked for; if it cannot be done, the session says why and goes on as before."""
    try:
        action()
    except ZolError as error:
        session.message = str(error)
