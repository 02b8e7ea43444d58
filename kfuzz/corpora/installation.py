"""Puts a corpus into the log directory of a stopped broker. docs/corpora.md has the steps.

The topics must exist before: in KRaft, a broker sets aside each partition directory whose topic id it does not know.
So the directories and their ``partition.metadata`` are the broker's, and only the files of the log are replaced.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kfuzz.corpora.manifest import Row
from kfuzz.corpora.verification import Corpus, check_whole
from kfuzz.corpora.workload import MIB
from kfuzz.errors import UsageError
from kfuzz.files import (
    ELSEWHERE,
    cannot_write,
    local_path,
    open_regular,
    read_small,
    require_no_link,
    sync_directory,
    write_whole,
    writing,
)
from kfuzz.logs.snapshot import LEADER_EPOCH_CHECKPOINT
from kfuzz.logs.stored import CLEAN_SHUTDOWN, META_PROPERTIES, METADATA_NAME
from kfuzz.storage import LocalTarget
from kfuzz.units import date, show_size
from kfuzz.wire.io.checksum import crc32c

LOCK: Final = ".lock"
# A name that Kafka does not look at, in the directory where the file belongs.
STAGED: Final = ".kfuzz-install"
FIRST_LOG: Final = f"{0:020d}.log"
# The metadata of a cluster must be there before its first start.
CLUSTER, CLUSTER_FOLDER = "__cluster_metadata", "__cluster_metadata-0"
# Kafka's default for segment.index.bytes, and the least that Kafka 4 takes for segment.bytes.
INDEX_BYTES_DEFAULT: Final = 10 * MIB
SEGMENT_BYTES_MIN: Final = MIB
CHUNK_BYTES: Final = 4 * MIB
# The most that a broker has beside an empty log: the indexes, which it makes as large as they may become.
UNDO_BYTES_MAX: Final = 64 * MIB


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """A topic as the broker must have it: ``config`` by Kafka's names."""

    name: str
    partitions: int
    config: dict[str, str]


@dataclass(frozen=True, slots=True)
class Installed:
    """The result of an installation or a plan: bytes that were copied or linked; ``absent`` partitions were left out.

    ``present`` partitions already held exactly this corpus and were left as they are.
    """

    partitions: int
    segments: int
    copied_bytes: int
    linked_bytes: int
    absent: list[str]
    present: list[str]


@dataclass(slots=True)
class _Partition:
    """One partition: its directories, and the manifest's rows of its segments in order."""

    name: str
    source: Path
    target: Path
    rows: list[Row] = field(default_factory=list)

    def files(self) -> Iterator[tuple[str, bool, int | None]]:
        """The files to install, by name, whether the broker never writes to them, and their CRC-32C. The logs are last.

        The checkpoint has no CRC in the manifest: :func:`open_finished` has compared it with the plan.
        """
        yield LEADER_EPOCH_CHECKPOINT, False, None
        names = [(name, row, crc) for row in self.rows for name, crc in row.sums().items()]
        # Nor has a snapshot of the cluster's metadata.
        for path in sorted(self.source.glob("*.checkpoint")):
            yield path.name, False, None
        for name, row, crc in sorted(names, key=lambda one: (one[0].endswith(".log"), one[0])):
            # A broker appends to the last segment, and maps the indexes of all for writing.
            yield name, name.endswith(".log") and row is not self.rows[-1], crc

    def is_present(self) -> bool:
        """Whether the broker's directory already holds exactly this partition's logs; ``UsageError`` if it holds more.

        A log of the same name counts only if it has the same bytes: another corpus may have logs of the same sizes.
        """
        ours = {Path(row.path).name: row for row in self.rows}
        held = set()
        for path in sorted(self.target.glob("*.log")):
            size = _size_of(path)
            if size == 0 and path.name == FIRST_LOG:
                continue
            row = ours.get(path.name)
            if row is None or size != row.bytes or _crc_of(path) != row.crc32c:
                remedy = "delete the topic, create it again, and stop the broker"
                if self.name == CLUSTER_FOLDER:
                    remedy = "format a new log directory"
                raise UsageError(f"{self.target} is not a new partition ({path.name} is there); {remedy}")
            held.add(path.name)
        return held == set(ours) and all((self.target / name).is_file() for name, _, _ in self.files())


def open_finished(out: str | Path) -> Corpus:
    """Open the corpus in ``out``; ``UsageError`` if it is not finished, or a file is missing or has another size."""
    corpus = Corpus.open(out)
    root = _root(corpus)
    for planned in corpus.plan.topics:
        if planned.topic.adversarial.share:
            raise UsageError(
                f"{corpus.out} has hostile batches in topic {planned.topic.name}, and a broker would cut its log "
                "there; install a corpus without adversarial.share"
            )
    problems = [str(problem) for problem in check_whole(corpus)]
    if not problems:
        sizes = ((row.path, row.bytes, _size_of(root / row.path)) for row in corpus.rows)
        problems = [f"{path}: has {found} bytes instead of {size}" for path, size, found in sizes if size != found]
    if problems:
        raise UsageError(f"{corpus.out} is not a whole corpus ({problems[0]}); generate it again")
    return corpus


def _root(corpus: Corpus) -> Path:
    if not isinstance(corpus.out, LocalTarget):
        raise UsageError(f"{corpus.out} is not on this machine; copy the corpus to a directory first")
    return corpus.out.root


# --- the topics -----------------------------------------------------------------------------------------------------


def topic_settings(corpus: Corpus) -> list[TopicSettings]:
    """The topics of ``corpus`` with the settings under which a broker keeps all its records as they are."""
    workload, largest = corpus.workload, _largest_indexes(corpus)
    settings = []
    for planned in corpus.plan.topics:
        topic = planned.topic
        if topic.name == CLUSTER:
            continue
        config = {
            # Even a corpus of a compacted topic must stay as it is.
            "cleanup.policy": "delete",
            "retention.ms": "-1",
            "retention.bytes": "-1",
            "segment.bytes": str(max(workload.segment_bytes, SEGMENT_BYTES_MIN)),
            "index.interval.bytes": str(workload.index_interval_bytes),
            "message.timestamp.type": "LogAppendTime" if topic.timestamps.type == "log-append" else "CreateTime",
        }
        if largest.get(topic.name, 0) > INDEX_BYTES_DEFAULT:
            # A broker cuts the indexes of the last segment to this size.
            config["segment.index.bytes"] = str(largest[topic.name])
        settings.append(TopicSettings(topic.name, topic.partitions, config))
    return settings


def _largest_indexes(corpus: Corpus) -> dict[str, int]:
    """The bytes of the largest index of each topic."""
    largest: dict[str, int] = {}
    for row in corpus.rows:
        topic, log = row.path.rpartition("/")[0].rpartition("-")[0], _root(corpus) / row.path
        sizes = [log.with_suffix(suffix).stat().st_size for suffix in (".index", ".timeindex")]
        largest[topic] = max(largest.get(topic, 0), *sizes)
    return largest


def notes(corpus: Corpus, log_dir: Path | None = None, *, now_ms: int | None = None) -> list[str]:
    """Sentences about what may surprise a person who installs ``corpus``. ``now_ms`` is the time, for tests."""
    # It needs pyarrow.
    from kfuzz.logs.metadata import topic_configs

    now_ms = int(time.time() * 1000) if now_ms is None else now_ms
    configs = None if log_dir is None else topic_configs(log_dir)
    found = []
    first_ms, last_ms = corpus.rows.ends("min_timestamp", "max_timestamp")
    if first_ms is not None and last_ms is not None:
        if configs is None:
            found.append(
                f"timestamps run from {date(first_ms)} to {date(last_ms)}: the topics need retention.ms=-1, as "
                "`kfuzz corpus install --bootstrap` sets it, or the broker deletes what is older than its retention "
                "(default: 7 days)"
            )
        if last_ms > now_ms:
            found.append(
                f"timestamps reach {date(last_ms)}, which is in the future: retention by time begins then, and a "
                "broker refuses new records that are more than message.timestamp.after.max.ms ahead (default: 1 hour)"
            )
    if configs is not None:
        found += [note for topic in topic_settings(corpus) for note in _topic_notes(topic, configs)]
    if log_dir is not None and not (log_dir / CLEAN_SHUTDOWN).is_file():
        found.append(
            f"{log_dir} has no {CLEAN_SHUTDOWN}: the broker was not stopped cleanly, so its next start reads the whole "
            "corpus and makes its indexes again"
        )
    return found


def _topic_notes(topic: TopicSettings, configs: dict[str, dict[str, str]]) -> Iterator[str]:
    """The faults of a topic as the broker has it."""
    if topic.name not in configs:
        yield (
            f"the broker's metadata has no topic {topic.name}, so it sets the directories of its partitions aside; "
            "create the topic and install again"
        )
        return
    config = configs[topic.name]
    why = {
        "retention.ms": "the broker deletes older segments",
        "segment.index.bytes": "the broker cuts larger indexes",
    }
    wrong = [name for name in why if name in topic.config and config.get(name) != topic.config[name]]
    reasons = [f"{name} is {config.get(name, 'not set')}: {why[name]}" for name in wrong]
    if "compact" in config.get("cleanup.policy", ""):
        wrong.append("cleanup.policy")
        reasons.append(f"cleanup.policy is {config['cleanup.policy']}: the log cleaner changes the log")
    if wrong:
        setting = ",".join(f"{name}={topic.config[name]}" for name in wrong)
        yield (
            f"topic {topic.name}: {', and '.join(reasons)}; set it within 30 s of the start with `kafka-configs.sh "
            f"--alter --entity-type topics --entity-name {topic.name} --add-config {setting}`"
        )


# --- the files ------------------------------------------------------------------------------------------------------


def install(
    corpus: Corpus,
    log_dir: str | Path,
    *,
    link: bool = False,
    present_only: bool = False,
    dry_run: bool = False,
    set_done: Callable[[int], None] = lambda done: None,
) -> Installed:
    """Put the partitions of ``corpus`` into ``log_dir``, where the broker made empty ones; :func:`open_finished` first.

    ``link`` makes hard links for the logs of full segments, and copies the rest. ``present_only`` leaves out
    partitions that ``log_dir`` lacks; without it they are an error. ``dry_run`` checks everything and changes nothing.
    ``set_done`` is called with the number of partitions whose files are ready.

    Raises ``UsageError`` if a broker uses ``log_dir``, if it is no log directory, if a partition holds other records,
    or if a file cannot be written. After an error, every partition is as it was.
    """
    log_dir = local_path(log_dir)
    if not (log_dir / META_PROPERTIES).is_file():
        raise UsageError(
            f"{log_dir} is not a broker's log directory ({META_PROPERTIES} is missing); name a directory of log.dirs"
        )
    with _unused(log_dir, make=not dry_run):
        partitions, absent = _find_partitions(corpus, log_dir, present_only)
        present = [one for one in partitions if one.is_present()]
        fresh = [one for one in partitions if one not in present]
        copied, linked = _sizes(fresh, link)
        _check_place(corpus, fresh, log_dir, copied, link)
        if not dry_run:
            _install(fresh, link, set_done)
    return Installed(
        partitions=len(fresh),
        segments=sum(len(one.rows) for one in fresh),
        copied_bytes=copied,
        linked_bytes=linked,
        absent=absent,
        present=[one.name for one in present],
    )


@contextlib.contextmanager
def _unused(log_dir: Path, *, make: bool) -> Iterator[None]:
    """Hold the lock that a running broker holds, so that none starts meanwhile; ``UsageError`` if one runs."""
    path = log_dir / LOCK
    # A broker removes the file when it stops.
    made = not path.exists()
    if made and not make:
        yield
        return
    with writing(path):
        # Somebody may have put a link or a pipe there.
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o644)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise UsageError(f"{path} is no regular file, as a broker's lock is; remove it")
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EAGAIN):
                raise
            raise UsageError(f"a broker is using {log_dir} ({LOCK} is held); stop it first") from None
        try:
            yield
        finally:
            if made:
                path.unlink(missing_ok=True)
    finally:
        os.close(descriptor)


def _find_partitions(corpus: Corpus, log_dir: Path, present_only: bool) -> tuple[list[_Partition], list[str]]:
    """The partitions that ``log_dir`` has, and the names of the others."""
    names = corpus.plan.directories()
    absent = [name for name in names if name != CLUSTER_FOLDER and not (log_dir / name / METADATA_NAME).is_file()]
    if absent and (len(absent) == len(names) or not present_only):
        others = "" if len(absent) == len(names) else ", or add --present-only if other directories hold the rest"
        raise UsageError(
            f"{log_dir} lacks {len(absent)} of the corpus' {len(names)} partitions (first: {absent[0]}); "
            f"start the broker, run `kfuzz corpus install {corpus.out} --bootstrap HOST:PORT`, stop the broker{others}"
        )
    for name in names:
        require_no_link(log_dir, name)
    partitions = {
        name: _Partition(name, _root(corpus) / name, log_dir / name) for name in names if name not in set(absent)
    }
    for row in sorted(corpus.rows, key=lambda row: row.segment_id):
        if one := partitions.get(row.path.rpartition("/")[0]):
            one.rows.append(row)
    return list(partitions.values()), absent


def _sizes(partitions: list[_Partition], link: bool) -> tuple[int, int]:
    """The bytes to copy, and those to link."""
    sizes = [0, 0]
    for one in partitions:
        for name, is_closed, _ in one.files():
            sizes[link and is_closed] += _size_of(one.source / name)
    return sizes[0], sizes[1]


def _check_place(corpus: Corpus, partitions: list[_Partition], log_dir: Path, copied: int, link: bool) -> None:
    free = shutil.disk_usage(log_dir).free
    if copied > free:
        raise UsageError(
            f"{log_dir}: the corpus takes {show_size(copied)}, but {free} B are free there; free space there"
            + ("" if link else ", or add --link if both are on one file system")
        )
    if link and any(one.source.is_relative_to(folder) for one in partitions for folder in ELSEWHERE):
        raise UsageError(f"{corpus.out} is not on this machine, so nothing can be linked; leave out --link")
    for one in partitions if link else []:
        here, there = one.source.stat(), (one.target if one.target.is_dir() else log_dir).stat()
        if here.st_dev != there.st_dev:
            raise UsageError(f"{corpus.out} and {one.target} are on different file systems; leave out --link")
        if (one.source / Path(one.rows[0].path).name).stat().st_uid != there.st_uid:
            raise UsageError(
                f"{corpus.out} belongs to another user than {one.target}, so the broker could not open linked files; "
                "leave out --link"
            )


def _install(partitions: list[_Partition], link: bool, set_done: Callable[[int], None]) -> None:
    """Make all files ready under other names, then rename them. After an error, undo what was renamed."""
    undo: list[Callable[[], object]] = []
    try:
        for done, one in enumerate(partitions):
            if not one.target.is_dir():
                with writing(one.target):
                    one.target.mkdir()
                    owner = one.target.parent.stat()
                    os.chown(one.target, owner.st_uid, owner.st_gid)
            for name, is_closed, crc in one.files():
                _stage(one.source / name, one.target / f".{name}{STAGED}", link and is_closed, crc)
            set_done(done + 1)
        for one in partitions:
            for name, _, _ in one.files():
                path = one.target / name
                undo.append(_undo_of(path))
                with writing(path):
                    os.replace(one.target / f".{name}{STAGED}", path)
            sync_directory(one.target)
    except BaseException:
        for step in reversed(undo):
            step()
        raise
    finally:
        for one in partitions:
            for path in one.target.glob(f".*{STAGED}"):
                path.unlink(missing_ok=True)


def _undo_of(path: Path) -> Callable[[], object]:
    """A function that restores ``path`` as it is. Only small files of the broker and equal logs are ever replaced."""
    if not os.path.lexists(path):
        return lambda: path.unlink(missing_ok=True)
    if path.suffix == ".log" and _size_of(path) > 0:
        return lambda: None
    data = read_small(path, bytes_max=UNDO_BYTES_MAX)
    return lambda: write_whole(path, data)


def _size_of(path: Path) -> int:
    """The size of a regular file, which is not fetched for that; ``NotRegular`` for a link or anything else."""
    found = path.lstat()
    if not stat.S_ISREG(found.st_mode):
        open_regular(path).close()
    return found.st_size


def _stage(source: Path, staged: Path, link: bool, crc: int | None) -> None:
    """Copy or link ``source`` to ``staged``, for the owner of the directory there.

    ``UsageError`` if what was copied has another CRC-32C than ``crc``.
    """
    staged.unlink(missing_ok=True)
    try:
        if link:
            os.link(source, staged, follow_symlinks=False)
            return
        owner = staged.parent.stat()
        with open_regular(source) as here, open(staged, "xb") as there:
            copied = 0
            while chunk := here.read(CHUNK_BYTES):
                copied = crc32c(chunk, copied)
                there.write(chunk)
            if crc is not None and copied != crc:
                raise UsageError(
                    f"{source} is not what the manifest says (its CRC-32C is {copied}, not {crc}); run `kfuzz corpus "
                    "verify` to see what changed"
                )
            there.flush()
            if (owner.st_uid, owner.st_gid) != (os.geteuid(), os.getegid()):
                os.fchown(there.fileno(), owner.st_uid, owner.st_gid)
            os.fsync(there.fileno())
    except PermissionError:
        raise UsageError(f"{staged.parent} belongs to another user; run kfuzz as that user or as root") from None
    except OSError as error:
        raise cannot_write(staged.parent / source.name, error) from None


def _crc_of(path: Path) -> int:
    with open_regular(path) as file:
        crc = 0
        while chunk := file.read(CHUNK_BYTES):
            crc = crc32c(chunk, crc)
        return crc
