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
 * What the records of a Produce request meet in a broker, up to the disk: what NetworkReceive checks, then
 * ProduceRequest.validateRecords, then what UnifiedLog.analyzeAndValidateRecords checks, then LogValidator, which
 * assigns offsets and timestamps.
 */
final class ProduceReader {
    private static final TopicPartition PARTITION = new TopicPartition("kfuzz", 0);

    /** Kept from one request to the next, as a broker's request thread keeps it. */
    private final BufferSupplier buffers = BufferSupplier.create();

    ProduceReader() {
        // Loads Kafka's classes, so that no request's allocations are those of the first.
        MemoryRecords records = MemoryRecords.withRecords(Compression.gzip().build(), new SimpleRecord(new byte[0]));
        append(records.buffer().array(), Topic.of(JsonNodeFactory.instance.objectNode()));
    }

    /**
     * What became of the records.
     *
     * @param stored the bytes for the log, or null where the request is refused
     * @param consumed how many of the given bytes are whole batches
     */
    record Append(byte[] stored, int consumed, long lastOffset, long maxTimestamp, Throwable failure) {}

    Append append(byte[] bytes, Topic topic) {
        try {
            return appendOrThrow(bytes, topic);
        } catch (RecordValidationException failure) {  // A broker answers with what is inside it.
            return new Append(null, 0, -1, -1, failure.invalidException());
        } catch (Throwable failure) {
            return new Append(null, 0, -1, -1, failure);
        }
    }

    private Append appendOrThrow(byte[] bytes, Topic topic) {
        receive(bytes, topic);
        MemoryRecords records = MemoryRecords.readableRecords(ByteBuffer.wrap(bytes));
        // Messages of an older magic reach their topics in Produce requests of versions that had no such rule.
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

    /** The check of NetworkReceive; of the request there are the records alone here. */
    private static void receive(byte[] bytes, Topic topic) {
        if (bytes.length > topic.maxRequestBytes())
            throw new InvalidReceiveException("Invalid receive (size = " + bytes.length + " larger than "
                + topic.maxRequestBytes() + ")");
    }

    /** The checks of UnifiedLog.analyzeAndValidateRecords for what a client appends. */
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
