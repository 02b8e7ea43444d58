"""Every response in its newest version; each field has a distinct value."""

from __future__ import annotations

from kfuzz.vectors.recipes.theme import Theme
from kfuzz.vectors.recipes.themes.message_requests import add_full

__all__ = ["theme"]


def theme() -> Theme:
    """The recipes of ``vectors/messages/responses.json``."""
    made = Theme(
        "messages/responses", "Every response, with a value in each field and one element in each array.", "message"
    )
    add_full(made, "response")
    return made
