package kfuzz.testee;

import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.utils.internals.BufferSupplier;
import org.apache.kafka.common.utils.internals.PrimitiveRef;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.LogValidator;

/** Kafka 4's LogValidator, which returns a Java record. */
final class Validators {
    private Validators() {}

    /** The records as LogValidator leaves them, with offsets and timestamps assigned. */
    record Validated(MemoryRecords records, long lastOffset, long maxTimestamp, boolean sizeMayHaveChanged) {}

    private static final LogValidator.MetricsRecorder NO_METRICS = new LogValidator.MetricsRecorder() {
        @Override
        public void recordInvalidMagic() {}

        @Override
        public void recordInvalidOffset() {}

        @Override
        public void recordInvalidSequence() {}

        @Override
        public void recordInvalidChecksums() {}

        @Override
        public void recordNoKeyCompactedTopic() {}
    };

    /** Validates records that a client appends. */
    static Validated validate(MemoryRecords records, TopicPartition partition, CompressionType source,
                              Compression target, Topic topic, BufferSupplier buffers) {
        LogValidator validator = new LogValidator(records, partition, new FixedTime(topic.nowMs()), source, target,
            topic.compacted(), topic.magic(), topic.timestampType(), topic.timestampBeforeMaxMs(),
            topic.timestampAfterMaxMs(), topic.leaderEpoch(), AppendOrigin.CLIENT);
        PrimitiveRef.LongRef offset = PrimitiveRef.ofLong(topic.firstOffset());
        LogValidator.ValidationResult result = validator.validateMessagesAndAssignOffsets(offset, NO_METRICS, buffers);
        return new Validated(result.validatedRecords(), offset.value - 1, result.maxTimestampMs(),
            result.messageSizeMaybeChanged());
    }
}
