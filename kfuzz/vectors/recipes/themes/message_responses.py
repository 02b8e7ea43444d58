"""Every response in its newest version; each field has a distinct value."""

from __future__ import annotations

from kfuzz.vectors.recipes.making.message import failed, newest_version
from kfuzz.vectors.recipes.theme import Theme
from kfuzz.vectors.recipes.themes.message_requests import add_full, requirements_of

UNKNOWN_ERROR_CODE = 1000


def theme() -> Theme:
    """The recipes of ``vectors/messages/responses.json``."""
    made = Theme(
        "messages/responses", "Every response, with a value in each field and one element in each array.", "message"
    )
    add_full(made, "response")
    for name in ("ApiVersionsResponse", "FetchResponse", "HeartbeatResponse", "MetadataResponse", "ProduceResponse"):
        version = newest_version(name)
        unknown = failed(name, version, UNKNOWN_ERROR_CODE)
        made.message(
            f"{unknown.slug}-error-code-unknown",
            f"{name} in version {version}, with a value in every field and error codes that no release knows",
            unknown,
            requirements=requirements_of(unknown),
        )
    return made
