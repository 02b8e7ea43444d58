"""The options that several verbs have: each is defined here once, with one meaning and one sentence of help.

Verbs use them as decorators, ``@options.role``. Those that `_varied` makes are called: the verb says what its option is
about, what happens without it, and what else there is to know.

This module imports little, because each verb imports it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from kfuzz.cli.completion import complete_globs, complete_targets, complete_testees
from kfuzz.cli.console import PATH, Word, complain
from kfuzz.client.address import PORT_MAX, Address
from kfuzz.client.sasl import MECHANISMS, OAUTHBEARER
from kfuzz.errors import UsageError
from kfuzz.kafka import INTERNAL_TOPICS, LATEST, RELEASES
from kfuzz.text import foreign_text
from kfuzz.units import parse_duration, parse_size

if TYPE_CHECKING:
    from kfuzz.records import Limits
    from kfuzz.schemas import Schemas

F = TypeVar("F", bound=Callable[..., Any])

# The system waits for at most 2³¹ milliseconds, which are 24.8 days.
TIME_S_MAX = 24 * 86_400
# The value of --records-of that decodes nothing.
AS_THEY_ARE = "none"


def _time(text: str) -> float:
    if (seconds := parse_duration(text)) > TIME_S_MAX:
        raise UsageError(f"{text!r} is longer than {TIME_S_MAX // 86_400}d")
    return seconds


def _size(text: str) -> int:
    if not (size := parse_size(text)):
        raise UsageError(f'{text!r} is not a size; give one like "64MiB"')
    return size


def _listen(text: str) -> tuple[str, int]:
    """``HOST:PORT``, ``:PORT`` or ``PORT``; port 0 is any free one."""
    host, _, port = text.rpartition(":")
    if not (port.isascii() and port.isdigit() and len(port) <= len(str(PORT_MAX)) and int(port) <= PORT_MAX):
        raise UsageError(f"{text!r} is no place to listen at; give HOST:PORT or a port, such as 127.0.0.1:19092, or 0")
    return host.removeprefix("[").removesuffix("]") or "127.0.0.1", int(port)


def _limits(ctx: click.Context, param: click.Parameter, limit_bytes: int | None) -> Limits:
    from kfuzz.records import Limits

    return Limits() if limit_bytes is None else Limits(limit_bytes)


COUNT = click.IntRange(1)
SIZE = Word("size", _size)
LISTEN = Word("host:port", _listen)
# Seconds, and milliseconds.
TIME = Word("time", _time)
TIME_MS = Word("time", lambda text: max(1, round(_time(text) * 1000)))


def _varied(*names: str, help: str, **settings: Any) -> Callable[..., Callable[[F], F]]:
    """An option whose sentence has a place (``{}``) for what the verb says about it.

    ``note`` is one more sentence, ``usual`` says what happens without the option, and more settings are click's.
    """

    def option(about: str = "", *, note: str = "", usual: str = "", **more: Any) -> Callable[[F], F]:
        text = help.format(about) + (note and f" {note}") + (usual and f"  [default: {usual}]")
        return click.option(*names, help=text, **{"show_default": not settings.get("is_flag"), **settings, **more})

    return option


def together(*options: Callable[[F], F]) -> Callable[[F], F]:
    """One decorator for several options, in this order."""

    def add(command: F) -> F:
        for option in reversed(options):
            command = option(command)
        return command

    return add


# ------------------------------------------------------------------------------------------------- what is read


globs = click.argument("globs", nargs=-1, metavar="[GLOB]...", shell_complete=complete_globs)
vectors = click.option(
    "--vectors", "root", type=PATH, metavar="DIR", help="Use the suite in DIR instead of kfuzz's own."
)
topics = click.option("--topics", default="*", metavar="GLOB", help="Only the topics that match.  [default: all]")
role = _varied(
    "--role",
    type=click.Choice(["consumer", "broker", "log"]),
    default="consumer",
    help="Who judges the bytes: a consumer that reads a fetch, a broker that gets a Produce request, or a broker that "
    "loads a segment (log).",
)
profile = click.option(
    "--profile",
    type=click.Choice(["kafka", "strict"]),
    default="kafka",
    show_default=True,
    help="kafka accepts what Apache Kafka's reader accepts; strict refuses every deviation from the documents.",
)
limits = click.option(
    "--limit-bytes",
    "limits",
    type=click.IntRange(1, (1 << 31) - 2),
    callback=_limits,
    help="Upper limit for one batch's decompressed payload.  [default: 64 MiB]",
)
records_of = click.option(
    "--records-of",
    type=click.Choice((*INTERNAL_TOPICS, AS_THEY_ARE)),
    help="Decode keys and values as those of this topic of Kafka's own, such as __consumer_offsets; none decodes "
    "nothing.  [default: by the name of the folder]",
)


# The options that say where schemas come from. The verb gets ``places`` and ``registry``; see ``schemas_of``.
schemas = together(
    click.option(
        "--schema",
        "places",
        multiple=True,
        metavar="FILE|DIR",
        help="Where schemas are: a file (.avsc, .proto, .schema.json) for all values, then the files that it needs; a "
        "folder of schemas named by their ids; a log directory with _schemas-0; or none.  [default: _schemas-0 beside "
        "the data]",
    ),
    click.option("--registry", metavar="URL", help="Ask this schema registry; a login may be in the URL."),
)
message = click.option(
    "--message",
    metavar="MESSAGE",
    help="The bytes are this message, without a header; needs --version.  [default: record batches]",
)
frames = click.option(
    "--frames", "as_frames", is_flag=True, help="The bytes are what a client sent over a connection: requests."
)
version = _varied("--version", type=int, metavar="N", help="Version of the message.")
definitions = click.option(
    "--definitions",
    "source",
    metavar="SOURCE",
    default=LATEST,
    show_default=True,
    help=f"Where definitions come from: a built-in catalogue ({', '.join(RELEASES)}; with records- before it, that of "
    "the records in a broker's logs), a jar, a folder or a file.",
)
all_of = _varied("--all", "take_all", is_flag=True, help="Take all {}.")
records = _varied("-n", "--records", "records_max", type=COUNT, metavar="N", help="At most this many records{}.")
count = _varied("--count", type=COUNT, metavar="N", help="How many inputs{}.")
seed = click.option(
    "--seed", type=click.IntRange(1, 2**32 - 1), default=1, show_default=True, help="Seed of the random inputs."
)
size = _varied("--size", type=SIZE, help='Uncompressed size of the corpus, like "64MiB".')


def given(*parameters: str) -> list[str]:
    """The options of these parameters that the user gave, as they are written: ``--version``, not its value."""
    context = click.get_current_context()
    return [
        option.opts[0]
        for option in context.command.params
        if option.name in parameters and context.get_parameter_source(option.name) is not ParameterSource.DEFAULT
    ]


def internal_topic(path: str, records_of: str | None) -> str | None:
    """The topic of Kafka's own whose records the file has, by the option or by the folder; None for all others."""
    if records_of is None and path != "-":
        from kfuzz.messages.internal import topic_of_path

        return topic_of_path(path)
    return None if records_of == AS_THEY_ARE else records_of


def schemas_of(
    path: str, places: tuple[str, ...], registry: str | None, *, topics: str = "*", validate: bool = False
) -> Schemas | None:
    """The schemas for the data at ``path``, or for those of its topics that match a glob; None without any."""
    if AS_THEY_ARE in places:
        return None
    try:
        from kfuzz.logs.schemas import beside, open_schemas
    except ImportError:
        if not places and registry is None:
            return None
        raise UsageError("values with schemas need pyarrow and numpy; pip install 'kfuzz[corpus]'") from None
    if places or registry is not None:
        return open_schemas(places, registry, checks=validate)
    try:
        if (found := beside(path)) is not None:
            return open_schemas([str(found)], checks=validate)
        with suppress(ImportError):
            from kfuzz.corpora.resolution import held_schemas
            from kfuzz.schemas import Schemas

            held, left = held_schemas(path, topics)
            if left:
                complain(
                    f"the values of {foreign_text(', '.join(left), bytes_max=300)} have a schema but no id, and stay "
                    "as they are; choose one topic by --topics"
                )
            return Schemas(held, checks=validate) if held else None
        return None
    except UsageError as error:
        # Nobody asked for them.
        complain(f"keys and values are not decoded: {error}")
        return None


# ------------------------------------------------------------------------------------------------- who is asked


testee = _varied(
    "--testee",
    "names",
    multiple=True,
    metavar="NAME[@VERSION]",
    shell_complete=complete_testees,
    help="Ask this testee{}.",
)
testee_command = _varied(
    "--command", "commands", multiple=True, metavar="CMD", help="Ask the testee that this command starts{}."
)
start_timeout = click.option(
    "--start-timeout",
    "start_timeout_ms",
    type=TIME_MS,
    help="How long to wait for a testee's handshake: 30s, 2m.  [default: 60s; 10s for --command]",
)
target = _varied(
    "--target",
    metavar="TARGET",
    shell_complete=complete_targets,
    help="The fuzz target {}; `kfuzz fuzz --targets` lists them.",
)
timeout = _varied("--timeout", "timeout_ms", type=TIME_MS, help="How long an answer may take: 10s, 2m.")
bootstrap = _varied("--bootstrap", type=Word("host:port", Address.parse), help="A broker of the cluster{}.")
yes = click.option(
    "--yes",
    "open_to_others",
    is_flag=True,
    help="Also use an address of another machine, or that others can reach.",
)
replication = click.option(
    "--replication",
    type=COUNT,
    callback=lambda ctx, param, value: value or -1,
    metavar="N",
    help="Replicas of created topics.  [default: the broker's]",
)


def connection(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of a verb that connects to a broker: encryption, and who logs in. The verb gets ``security``."""

    @functools.wraps(command)
    def with_security(
        *,
        tls: bool,
        tls_ca: Any,
        client_cert: Any,
        client_key: Any,
        user: str | None,
        mechanism: str,
        plain: Any,
        password: str,
        **others: Any,
    ) -> Any:
        from kfuzz.client.address import Security

        if client_key and not client_cert:
            raise UsageError("--client-key is the key of a certificate; add --client-cert")
        # The token says who logs in.
        user = user or (mechanism if mechanism == OAUTHBEARER else None)
        files = [one and str(one) for one in (tls_ca, client_cert, client_key)]
        tls = tls or any(files)
        security = Security(tls, files[0], user, password, plain, mechanism, *files[1:])
        return command(security=security, **others)

    return together(
        click.option("--tls", is_flag=True, help="Encrypt, and check the broker's certificate."),
        click.option("--tls-ca", type=PATH, help="A file of certificates to trust, instead of the system's."),
        click.option("--client-cert", type=PATH, help="A file of certificates that says who you are."),
        click.option("--client-key", type=PATH, help="Its key.  [default: in the same file]"),
        click.option("--user", help="Log in by SASL; the password is taken from KFUZZ_PASSWORD."),
        click.option(
            "--sasl",
            "mechanism",
            type=click.Choice(MECHANISMS),
            default=MECHANISMS[0],
            show_default=True,
            help="How to log in. For OAUTHBEARER, the token is taken from KFUZZ_PASSWORD.",
        ),
        click.option(
            "--allow-plain",
            "plain",
            multiple=True,
            metavar="HOST",
            help="Send the password to this host even without --tls; may be repeated.",
        ),
        click.option("--password", envvar="KFUZZ_PASSWORD", hidden=True, default=""),
    )(with_security)


def live(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of a verb that reads logs, also those of a cluster: with ``opening.log_at``, which takes ``live``."""

    @functools.wraps(command)
    def with_live(*, bootstrap: Any, live_bytes: int, security: Any, timeout_ms: int, **others: Any) -> Any:
        if bootstrap is None:
            return command(live=None, **others)
        from kfuzz.client.address import Access
        from kfuzz.client.copying import Live

        access = Access(bootstrap, security, timeout_ms=timeout_ms, again_ms=2 * timeout_ms, on_wait=complain)
        return command(live=Live(access, live_bytes), **others)

    return together(
        bootstrap("; its topics are read instead of files, up to the high watermark"),
        click.option(
            "--bytes",
            "live_bytes",
            type=SIZE,
            default="1GiB",
            show_default=True,
            help="With --bootstrap, the most that is read of each partition.",
        ),
        timeout(default="30s"),
    )(connection(with_live))


# ------------------------------------------------------------------------------------------------- how long, how many


duration = _varied("--duration", "duration_s", type=TIME, help="End {} after this time: 90s, 5m, 1h.")
seconds = _varied("--seconds", help="How many seconds to fuzz each target.")
jobs = _varied("--jobs", type=click.IntRange(1, 1024), help="How many {} at a time.")


# ------------------------------------------------------------------------------------------------- what is written


as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
json_file = click.option(
    "--json", "json_file", metavar="FILE", help="Write the report as JSON; - prints it instead of text."
)
html_file = click.option(
    "--html", "html_file", metavar="FILE", help="Write the report as one self-contained HTML page."
)
junit_file = click.option("--junit", "junit_file", metavar="FILE", help="Write the report as JUnit XML.")
outcomes = together(
    click.option(
        "--causes", "causes_shown", type=COUNT, default=25, show_default=True, help="How many causes to print."
    ),
    click.option("--only-failures", is_flag=True, help="Print only causes with an outcome that is not as expected."),
    click.option(
        "--publish",
        is_flag=True,
        help="Hide crashes, hangs and memory faults that the expected outcomes do not list publicly.",
    ),
)
expected = together(
    click.option(
        "--expected",
        "expected_file",
        type=PATH,
        metavar="FILE",
        help="Compare with the outcomes in FILE instead of those in vectors/expected/.",
    ),
    click.option(
        "--update-expected", is_flag=True, help="Rewrite the expected outcomes from the outcomes of a whole run."
    ),
)
out = _varied("--out", type=PATH, metavar="DIR", help="Where to write {}.")
overwrite = click.option("--overwrite", is_flag=True, help="Replace what an earlier run has written there.")
dry_run = click.option("--dry-run", is_flag=True, help="Check everything, but write nothing.")
