"""Schemas of a registry. Imported on first use: the modules for HTTP take time to load."""

from __future__ import annotations

import base64
import http.client
import os
import time
import urllib.error
import urllib.request
from typing import Any, Final
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from kfuzz.documents import load_json
from kfuzz.errors import UsageError
from kfuzz.schemas.store import ANSWER_BYTES_MAX, Schema, Store, schema_of
from kfuzz.text import printable

REGISTRY_S: Final = 10
# Damaged data could claim any number of ids.
QUESTIONS_MAX: Final = 10_000
# The variable with user:password for a registry.
LOGIN: Final = "KFUZZ_REGISTRY_LOGIN"


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *args: Any) -> None:
        # It could lead anywhere, with the password.
        return None


class Registry(Store):
    """A schema registry with Confluent's API. Each question is asked once."""

    def __init__(self, url: str) -> None:
        try:
            parts = urlsplit(url)
        except ValueError:
            parts = urlsplit("")
        host = parts.netloc.rpartition("@")[2]
        if parts.scheme not in ("http", "https") or not host:
            raise UsageError("the address of the registry is wrong; give one such as http://127.0.0.1:8081")
        self.url = urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", ""))
        super().__init__(printable(self.url))
        login = os.environ.get(LOGIN, "")
        if parts.username is not None:
            login = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        self._headers = {"Accept": "application/json"}
        if login:
            self._headers["Authorization"] = f"Basic {base64.b64encode(os.fsencode(login)).decode()}"
        self._answers: dict[str, Schema | None] = {}
        self._opener = urllib.request.build_opener(_NoRedirects)

    def find(self, key: int | str) -> Schema | None:
        return self._ask(f"/schemas/{'ids' if isinstance(key, int) else 'guids'}/{key}")

    def version(self, subject: str, version: int) -> Schema | None:
        return self._ask(f"/subjects/{quote(subject, safe='')}/versions/{version}")

    def _ask(self, path: str) -> Schema | None:
        if path not in self._answers and len(self._answers) < QUESTIONS_MAX:
            self._answers[path] = self._answer(path)
        return self._answers.get(path)

    def _answer(self, path: str) -> Schema | None:
        until = time.monotonic() + REGISTRY_S
        data = b""
        try:
            request = urllib.request.Request(self.url + path, headers=self._headers)
            with self._opener.open(request, timeout=REGISTRY_S) as answer:
                while piece := answer.read1(1 << 16):
                    data += piece
                    if len(data) > ANSWER_BYTES_MAX or time.monotonic() > until:
                        raise UsageError(f"{self.place} answers with too much, or too slowly; is it a registry?")
        except urllib.error.HTTPError as error:
            if error.code == http.client.NOT_FOUND:
                return None
            remedy = f"; give the login in {LOGIN}" if error.code in (401, 403) else ""
            raise UsageError(f"{self.place} answers {error.code} {printable(str(error.reason))}{remedy}") from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            reason = printable(str(getattr(error, "reason", error)))
            raise UsageError(f"{self.place} cannot be asked: {reason}; check the address") from None
        return schema_of(load_json(data, f"{self.place}{path}"))
