"""``kfuzz redact``: a copy of a segment or a capture that can be shown to others."""

from __future__ import annotations

from hashlib import sha256
from itertools import islice
from pathlib import Path

import click

from kfuzz.cli import options
from kfuzz.cli.console import echo_json, open_buffer, say
from kfuzz.errors import UsageError
from kfuzz.files import local_path, open_whole, require_empty, require_writable, whole_directory
from kfuzz.mapped import mapped, require_whole
from kfuzz.units import counted

# So many places whose findings are others now are listed.
SHOWN_MOST = 20


@click.command()
@click.argument("path", metavar="FILE|DIR")
@options.out("the copy", required=True, metavar="FILE|DIR")
@options.frames
@click.option("--keep-header-keys", is_flag=True, help="Keep the keys of headers; their values are replaced.")
@click.option(
    "--secret", help="Make the other bytes from this text. Those who know it can test guesses.  [default: random]"
)
@options.as_json
def command(path: str, out: Path, as_frames: bool, keep_header_keys: bool, secret: str | None, as_json: bool) -> int:
    """Copy a segment file, or a capture of frames, without its contents, to attach it to a public report. DIR is a
    folder that `kfuzz proxy --record` made.

    Keys, values and headers become other bytes of the same length: equal ones stay equal, text becomes letters, and
    null stays null. In a capture, so do all texts and bytes of messages: names of topics, groups, clients and hosts,
    configurations, errors, log-ins. Bytes without a known meaning become x.

    All else is kept: offsets, timestamps, producer ids, ports, topic ids, attributes and the compression, control
    keys and transaction markers, names of SASL mechanisms, features and client libraries. A wrong CRC or length stays
    wrong. The records of Kafka's own topics are replaced like all others. The name of the file is yours to choose.

    The copy gets its name after its findings were compared with those of the original, for a consumer and for a
    broker's log. Findings that changed are listed.

    Exit code 0: all findings are the same; 1: some are not, and the copy was made; 2: wrong use.

    \b
    Examples:
      kfuzz redact 00000000000000000000.log --out report.log
      kfuzz redact sent.bin --frames --out report.bin
      kfuzz redact recording --out report
    """
    from kfuzz.edit.redacting import Redactor, changed_batches, changed_frames
    from kfuzz.logs.contents import is_capture, require_batches

    redactor = Redactor(keeps_header_keys=keep_header_keys)
    if secret is not None:
        redactor.key = sha256(secret.encode()).digest()
    if out.resolve() == local_path(path).resolve():
        raise UsageError(f"{out} is the original, which is only read; name another file with --out")
    if out.exists() and not out.is_file() and not out.is_dir():
        raise UsageError(f"{out} is no regular file, and kfuzz reads the copy again; name another file with --out")
    if path != "-" and local_path(path).is_dir():
        from kfuzz.relay.recording import CONVERSATION, Recording, redact_recording

        if not (local_path(path) / CONVERSATION).exists():
            raise UsageError(f"{path} holds no recorded conversation; name a segment file instead of a folder")
        recorded = Recording(local_path(path))
        with whole_directory(require_empty(out)) as folder:
            redact_recording(recorded, folder, redactor)
            before, after = (one.frames("kafka") for one in (recorded, Recording(folder)))
            changes = changed_frames((frame for _, frame in before), (frame for _, frame in after))
            changed = list(islice(changes, SHOWN_MOST))
    else:
        from kfuzz.annotate.frames import frames_of

        data = open_buffer(path)
        if is_capture(data):
            raise UsageError(
                f"{path} is a capture of packets; record the connection with `kfuzz proxy --record` instead"
            )
        if not as_frames:
            require_batches(path, data)
        require_writable(out)
        with open_whole(out) as file:
            made = (frame for _, frame in redactor.capture(data, None)[0]) if as_frames else redactor.batches(data)
            for piece in made:
                file.write(piece)
            file.flush()
            # Another program cannot open it yet.
            view = mapped(file, 0, file.tell()) if file.tell() else b""  # type: ignore[arg-type]
            changes = changed_frames(frames_of(data), frames_of(view)) if as_frames else changed_batches(data, view)
            changed = list(islice(changes, SHOWN_MOST))
            require_whole(data)
    if as_json:
        echo_json({"copy": str(out), "changed": changed, "replaced_as_a_whole": dict(redactor.whole)})
    else:
        say(*changed, *(f"replaced as a whole, {counted(n, 'time')}: {what}" for what, n in redactor.whole.items()))
        say(f"{out}: {'some findings are others now' if changed else 'the findings are those of the original'}")
    return 1 if changed else 0
