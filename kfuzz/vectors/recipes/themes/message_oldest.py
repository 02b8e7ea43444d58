"""Every request and response in its oldest version, each field at its default."""

from __future__ import annotations

from kfuzz.vectors.recipes.making.message import body, definitions
from kfuzz.vectors.recipes.theme import Theme
from kfuzz.vectors.recipes.themes.message_requests import requirements_of


def theme() -> Theme:
    """The recipes of ``vectors/messages/oldest.json``."""
    made = Theme(
        "messages/oldest",
        "Every request and response in the oldest version of its latest definition, each field at its default.",
        "message",
    )
    for definition in definitions("request", "response"):
        lowest = definition.valid_versions.lowest
        # A message with a single version is already in messages/requests or messages/responses.
        if lowest < definition.valid_versions.highest:
            whole = body(definition.name, lowest, {})
            made.message(
                whole.slug,
                f"{definition.name} in version {lowest}, with every field at its default",
                whole,
                requirements=[*requirements_of(whole), "MSG-DEFAULT-1"],
            )
    return made
