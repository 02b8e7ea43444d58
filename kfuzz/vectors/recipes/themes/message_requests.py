"""Every request in its newest version; each field has a distinct value."""

from __future__ import annotations

from kfuzz.vectors.recipes.making.message import Body, body, definitions
from kfuzz.vectors.recipes.theme import Theme


def theme() -> Theme:
    """The recipes of ``vectors/messages/requests.json``."""
    made = Theme(
        "messages/requests", "Every request, with a value in each field and one element in each array.", "message"
    )
    add_full(made, "request")
    return made


def add_full(made: Theme, kind: str) -> None:
    """Add a vector for each definition of ``kind``."""
    for definition in definitions(kind):
        whole = body(definition.name)
        made.message(
            whole.slug, f"{whole.title}, with a value in every field", whole, requirements=requirements_of(whole)
        )


def requirements_of(whole: Body) -> list[str]:
    """The requirements that a reader needs to read the message."""
    parts = {place.part for place in whole.places}
    flexible = whole.version in whole.definition.flexible_versions
    asked = {
        "MSG-FIELDS-1": True,
        "MSG-COMPACT-1": flexible,
        "MSG-BYTES-1": "length" in parts and not flexible,
        "MSG-ARRAY-1": "count" in parts,
        "MSG-TAG-1": "tag" in parts,
    }
    return [name for name, there in asked.items() if there]
