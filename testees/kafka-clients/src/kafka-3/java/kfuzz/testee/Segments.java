package kfuzz.testee;

import java.io.IOException;
import java.util.Optional;
import org.apache.kafka.storage.internals.epoch.LeaderEpochFileCache;
import org.apache.kafka.storage.internals.log.LogSegment;
import org.apache.kafka.storage.internals.log.ProducerStateManager;

/** Kafka 3's LogSegment, which takes the cache of leader epochs as an Optional. */
final class Segments {
    private Segments() {}

    static void recover(LogSegment segment, ProducerStateManager producers, LeaderEpochFileCache epochs)
            throws IOException {
        segment.recover(producers, Optional.of(epochs));
    }
}
