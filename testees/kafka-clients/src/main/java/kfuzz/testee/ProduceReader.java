package kfuzz.testee;

import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import java.nio.ByteBuffer;
import org.apache.kafka.common.InvalidRecordException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.errors.CorruptRecordException;
import org.apache.kafka.common.errors.RecordTooLargeException;
import org.apache.kafka.common.network.InvalidReceiveException;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.record.internal.SimpleRecord;
import org.apache.kafka.common.requests.ProduceRequest;
import org.apache.kafka.common.utils.internals.BufferSupplier;
import org.apache.kafka.storage.internals.log.RecordValidationException;

/**
 * Handles the records of a Produce request like a broker, up to the write to disk: the check of NetworkReceive, then
 * ProduceRequest.validateRecords, then the checks of UnifiedLog.analyzeAndValidateRecords, then LogValidator, which
 * assigns offsets and timestamps.
 */
final class ProduceReader {
    private static final TopicPartition PARTITION = new TopicPartition("kfuzz", 0);

    /** Reuses buffers for the next request, like a broker's request thread. */
    private final BufferSupplier buffers = BufferSupplier.create();

    ProduceReader() {
        // Load Kafka's classes now, so that the first request's allocations do not include them.
        MemoryRecords records = MemoryRecords.withRecords(Compression.gzip().build(), new SimpleRecord(new byte[0]));
        append(records.buffer().array(), Topic.of(JsonNodeFactory.instance.objectNode()));
    }

    /**
     * The result for the records.
     *
     * @param stored the bytes for the log, or null if the request is refused
     * @param consumed the size of the whole batches in the given bytes
     */
    record Append(byte[] stored, int consumed, long lastOffset, long maxTimestamp, Throwable failure) {}

    Append append(byte[] bytes, Topic topic) {
        try {
            return appendOrThrow(bytes, topic);
        } catch (RecordValidationException failure) {  // A broker answers with the inner exception.
            return new Append(null, 0, -1, -1, failure.invalidException());
        } catch (Throwable failure) {
            return new Append(null, 0, -1, -1, failure);
        }
    }

    private Append appendOrThrow(byte[] bytes, Topic topic) {
        receive(bytes, topic);
        MemoryRecords records = MemoryRecords.readableRecords(ByteBuffer.wrap(bytes));
        // Messages of an older magic arrive in older versions of Produce, which do not have this rule.
        if (topic.magic() >= RecordBatch.MAGIC_VALUE_V2)
            ProduceRequest.validateRecords(ApiKeys.PRODUCE.latestVersion(), records);
        CompressionType source = CompressionType.NONE;
        int consumed = 0;
        for (RecordBatch batch : records.batches()) {
            CompressionType codec = requireSound(batch, topic);
            if (codec != CompressionType.NONE)
                source = codec;
            consumed += batch.sizeInBytes();
        }
        if (consumed < bytes.length)
            records = MemoryRecords.readableRecords(ByteBuffer.wrap(bytes, 0, consumed).slice());
        Compression target = Compression.of(topic.codec() == null ? source : topic.codec()).build();
        Validators.Validated validated = Validators.validate(records, PARTITION, source, target, topic, buffers);
        if (validated.sizeMayHaveChanged())
            for (RecordBatch batch : validated.records().batches())
                requireSize(batch, topic);
        ByteBuffer buffer = validated.records().buffer();
        byte[] stored = new byte[buffer.remaining()];
        buffer.get(stored);
        return new Append(stored, consumed, validated.lastOffset(), validated.maxTimestamp(), null);
    }

    /** The check of NetworkReceive. It only counts the records here, not the rest of the request. */
    private static void receive(byte[] bytes, Topic topic) {
        if (bytes.length > topic.maxRequestBytes())
            throw new InvalidReceiveException("Invalid receive (size = " + bytes.length + " larger than "
                + topic.maxRequestBytes() + ")");
    }

    /** The checks of UnifiedLog.analyzeAndValidateRecords for batches from a client. */
    private static CompressionType requireSound(RecordBatch batch, Topic topic) {
        if (batch.magic() >= RecordBatch.MAGIC_VALUE_V2 && batch.baseOffset() != 0)
            throw new InvalidRecordException("The baseOffset of the record batch should be 0, but it is "
                + batch.baseOffset());
        requireSize(batch, topic);
        if (!batch.isValid())
            throw new CorruptRecordException("Record is corrupt (stored crc = " + batch.checksum() + ")");
        return CompressionType.forId(batch.compressionType().id);
    }

    private static void requireSize(RecordBatch batch, Topic topic) {
        if (batch.sizeInBytes() > topic.maxMessageBytes())
            throw new RecordTooLargeException("The record batch size is " + batch.sizeInBytes()
                + " bytes which exceeds the maximum configured value of " + topic.maxMessageBytes());
    }
}
