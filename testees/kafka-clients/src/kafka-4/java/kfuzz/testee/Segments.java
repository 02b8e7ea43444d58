package kfuzz.testee;

import java.io.IOException;
import org.apache.kafka.storage.internals.epoch.LeaderEpochFileCache;
import org.apache.kafka.storage.internals.log.LogSegment;
import org.apache.kafka.storage.internals.log.ProducerStateManager;

/** Kafka 4's LogSegment, which requires a cache of leader epochs. */
final class Segments {
    private Segments() {}

    static void recover(LogSegment segment, ProducerStateManager producers, LeaderEpochFileCache epochs)
            throws IOException {
        segment.recover(producers, epochs);
    }
}
