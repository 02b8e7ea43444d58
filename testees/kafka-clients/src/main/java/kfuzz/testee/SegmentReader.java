package kfuzz.testee;

import java.io.File;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Iterator;
import java.util.List;
import java.util.Optional;
import java.util.stream.Stream;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.OffsetOutOfRangeException;
import org.apache.kafka.common.record.internal.FileRecords;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.storage.internals.checkpoint.LeaderEpochCheckpointFile;
import org.apache.kafka.storage.internals.epoch.LeaderEpochFileCache;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.LazyIndex;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogSegment;
import org.apache.kafka.storage.internals.log.ProducerAppendInfo;
import org.apache.kafka.storage.internals.log.ProducerStateManager;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.TransactionIndex;

/**
 * Checks whether bytes are a valid log segment. A broker that starts after a crash must keep all of them
 * (LogSegment.recover) and rebuild its producer state from them (UnifiedLog.rebuildProducerState). The segment begins
 * at its first batch's offset. A partial tail is cut off and is not an error.
 */
final class SegmentReader {
    private static final TopicPartition PARTITION = new TopicPartition("kfuzz", 0);
    private static final int INDEX_BYTES = 1 << 16;
    /** The broker's defaults: index.interval.bytes, transaction.max.timeout.ms, producer.id.expiration.ms. */
    private static final int INDEX_INTERVAL_BYTES = 4096;
    private static final int MAX_TRANSACTION_TIMEOUT_MS = 900_000;
    private static final int PRODUCER_EXPIRATION_MS = 86_400_000;
    private static final FixedTime CLOCK = new FixedTime(1_700_000_000_000L);

    private final FetchReader reader;
    private final Path folder;

    SegmentReader(FetchReader reader) {
        this.reader = reader;
        try {
            folder = Files.createTempDirectory("kfuzz-segment-");
        } catch (IOException e) {
            throw new IllegalStateException("no folder for a segment: " + e.getMessage(), e);
        }
        Runtime.getRuntime().addShutdownHook(new Thread(this::deleteFolder));
        recover(new byte[0]);  // Load Kafka's classes now, so that the first request's allocations do not include them.
    }

    /** The batches that a broker keeps, their size in bytes, and why it does not keep the rest, or null. */
    record Recovery(List<BatchContents> batches, int kept, Throwable failure) {}

    Recovery recover(byte[] bytes) {
        List<BatchContents> batches = List.of();
        int kept = 0;
        try {
            clear();
            try (LogSegment segment = open(baseOffset(bytes))) {
                FileRecords file = segment.log();
                file.append(MemoryRecords.readableRecords(ByteBuffer.wrap(bytes)));
                Segments.recover(segment, producers(), epochs());
                kept = file.sizeInBytes();
                // Recovery stops at an invalid control record but keeps it. The broker aborts right after that.
                rebuildProducers(file);
                batches = reader.readStored(file);
                if (kept < bytes.length)
                    requirePartial(bytes, kept);
                requireStart(segment);
            }
            return new Recovery(batches, kept, null);
        } catch (Throwable failure) {
            return new Recovery(batches, kept, failure);
        }
    }

    private static long baseOffset(byte[] bytes) {
        return bytes.length < Long.BYTES ? 0 : Math.max(0, ByteBuffer.wrap(bytes).getLong());
    }

    private LogSegment open(long baseOffset) throws IOException {
        return new LogSegment(FileRecords.open(file("segment.log")),
            LazyIndex.forOffset(file("segment.index"), baseOffset, INDEX_BYTES),
            LazyIndex.forTime(file("segment.timeindex"), baseOffset, INDEX_BYTES),
            new TransactionIndex(baseOffset, file("segment.txnindex")), baseOffset, INDEX_INTERVAL_BYTES, 0, CLOCK);
    }

    private ProducerStateManager producers() throws IOException {
        return new ProducerStateManager(PARTITION, folder.toFile(), MAX_TRANSACTION_TIMEOUT_MS,
            new ProducerStateManagerConfig(PRODUCER_EXPIRATION_MS, false), CLOCK);
    }

    private LeaderEpochFileCache epochs() throws IOException {
        return new LeaderEpochFileCache(PARTITION,
            new LeaderEpochCheckpointFile(LeaderEpochCheckpointFile.newFile(folder.toFile()),
                new LogDirFailureChannel(1)), new NoScheduler());
    }

    private void rebuildProducers(FileRecords file) throws IOException {
        ProducerStateManager producers = producers();
        for (RecordBatch batch : file.batches()) {
            if (batch.hasProducerId()) {
                ProducerAppendInfo append = producers.prepareUpdate(batch.producerId(), AppendOrigin.REPLICATION);
                append.append(batch, Optional.empty()).ifPresent(producers::completeTxn);
                producers.update(append);
            }
        }
    }

    /**
     * Does what UnifiedLog does with a recovered log: LogLoader deletes a log that ends before it starts, and then the
     * broker looks up where the log starts.
     */
    private static void requireStart(LogSegment segment) throws IOException {
        long end = segment.readNextOffset();
        if (end < segment.baseOffset())
            throw new OffsetOutOfRangeException("the log ends at " + end + " and starts at " + segment.baseOffset());
        segment.read(segment.baseOffset(), 1);
    }

    /** Recovery does not say why it cut off bytes. Reading the first batch that it cut off shows the reason. */
    private void requirePartial(byte[] bytes, int kept) throws IOException {
        try (FileRecords file = FileRecords.open(file("whole.log"))) {
            file.append(MemoryRecords.readableRecords(ByteBuffer.wrap(bytes)));
            Iterator<? extends RecordBatch> rest = file.batchesFrom(kept).iterator();
            if (rest.hasNext()) {
                rest.next().ensureValid();
                throw new IllegalStateException("recovery cut off a valid batch at byte " + kept);
            }
        }
    }

    private File file(String name) {
        return folder.resolve(name).toFile();
    }

    private void clear() throws IOException {
        for (Path path : contents())
            Files.delete(path);
    }

    private List<Path> contents() throws IOException {
        try (Stream<Path> paths = Files.list(folder)) {
            return paths.toList();
        }
    }

    private void deleteFolder() {
        try {
            Utils.delete(folder.toFile());
        } catch (IOException e) {
            System.err.println("cannot delete " + folder + ": " + e.getMessage());
        }
    }
}
