"""The words with which a client logs in, for each mechanism of SASL. SCRAM is that of the package ``scramp``."""

from __future__ import annotations

import re
from collections.abc import Generator
from typing import Final

from kfuzz.errors import UsageError, needs

PLAIN: Final = "PLAIN"
OAUTHBEARER: Final = "OAUTHBEARER"
MECHANISMS: Final = (PLAIN, "SCRAM-SHA-256", "SCRAM-SHA-512", OAUTHBEARER)
# A broker says how often the password is hashed; Kafka's default is 4096.
ITERATIONS: Final = re.compile(r",i=\d{1,7}(,|$)")
# These mechanisms send the password or the token itself, which anyone on the way can read without TLS.
CLEAR: Final = (PLAIN, OAUTHBEARER)


def dialogue(mechanism: str, user: str, password: str) -> Generator[bytes, bytes, None]:
    """Yields what to send, and takes the answers. ``UsageError`` if the broker does not know the password itself."""
    if mechanism == PLAIN:
        # Python keeps the bytes of a word that is not UTF-8 as surrogates.
        yield f"\0{user}\0{password}".encode("utf-8", "surrogateescape")
    elif mechanism == OAUTHBEARER:
        if (yield f"n,,\1auth=Bearer {password}\1\1".encode("utf-8", "surrogateescape")):
            # The answer says what is wrong with the token. The broker refuses it after this.
            yield b"\1"
    else:
        with needs("SCRAM needs scramp, which is not installed; pip install 'kfuzz[scram]'"):
            from scramp import ScramClient, ScramException
        client = ScramClient([mechanism], user, password)
        try:
            first = (yield client.get_client_first().encode()).decode()
            if not ITERATIONS.search(first):
                raise UsageError(f"the login of {user} by {mechanism} would take more than 9,999,999 rounds of hashing")
            client.set_server_first(first)
            client.set_server_final((yield client.get_client_final().encode()).decode())
        except (ScramException, ValueError) as error:
            raise UsageError(f"the login of {user} by {mechanism} does not succeed: {error}") from None
