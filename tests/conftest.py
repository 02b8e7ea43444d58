"""Fixtures and rules shared by all tests; tests/README.md is the map."""

from __future__ import annotations

import os
import shutil
from typing import NoReturn

import pytest


def missing(what: str, remedy: str) -> NoReturn:
    """Skip for want of a toolchain, with the reason; a failure with CI=true, so that it is not unseen."""
    text = f"{what} is missing; {remedy}"
    if os.environ.get("CI") == "true":
        pytest.fail(text)
    pytest.skip(text)


def require_tool(name: str, remedy: str) -> str:
    """The path of the program ``name``, or a skip (a failure with CI=true) that says how to get it."""
    path = shutil.which(name)
    return path if path else missing(name, remedy)
