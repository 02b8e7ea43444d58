package kfuzz.testee;

import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.LogValidator;

/** Kafka 4's LogValidator: it has lost the inter-broker protocol version. */
final class Validators {
    private Validators() {}

    /** For what a client appends to a topic of the given magic, at any time before and after the broker's clock. */
    static LogValidator create(MemoryRecords records, TopicPartition partition, Time time, CompressionType source,
                               Compression target, boolean compacted, byte magic, TimestampType timestampType,
                               long beforeMaxMs, long afterMaxMs, int leaderEpoch) {
        return new LogValidator(records, partition, time, source, target, compacted, magic, timestampType, beforeMaxMs,
            afterMaxMs, leaderEpoch, AppendOrigin.CLIENT);
    }
}
