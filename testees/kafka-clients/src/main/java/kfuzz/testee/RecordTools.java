package kfuzz.testee;

import com.fasterxml.jackson.core.JsonGenerator;
import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.HashSet;
import java.util.HexFormat;
import java.util.Locale;
import java.util.Set;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecords.FilterResult;
import org.apache.kafka.common.record.internal.MemoryRecords.RecordFilter;
import org.apache.kafka.common.record.internal.MemoryRecords.RecordFilter.BatchRetention;
import org.apache.kafka.common.record.internal.MemoryRecords.RecordFilter.BatchRetentionResult;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.utils.internals.BufferSupplier;
import org.apache.kafka.storage.internals.log.RecordValidationException;

/**
 * Other operations of Kafka on records, for the tests of kfuzz: conversion between the formats, one pass of the log
 * cleaner, and the contents of control records.
 */
final class RecordTools {
    private static final TopicPartition PARTITION = new TopicPartition("kfuzz", 0);
    private static final HexFormat HEX = HexFormat.of();
    private static final int AMPLE_BUFFER_BYTES = 1 << 22;

    private final BufferSupplier buffers = BufferSupplier.create();

    /** Writes the fields of an answer. Called only after everything that can fail has succeeded. */
    interface Fields {
        void writeTo(JsonGenerator json) throws IOException;
    }

    /** LogValidator has an exception of its own. Kafka's builder and cleaner refuse with the last two. */
    static boolean isRefusal(Throwable failure) {
        return failure instanceof KafkaException || failure instanceof RecordValidationException
            || failure instanceof IllegalArgumentException || failure instanceof IllegalStateException;
    }

    /**
     * Converts records. With {@code topic}, uses LogValidator for a topic of that magic. Without it, uses
     * MemoryRecords.downConvert to {@code magic}, for uncompressed batches from {@code first_offset} on.
     */
    Fields convert(JsonNode request) {
        MemoryRecords records = records(request);
        byte[] converted = request.has("topic") ? append(records, Topic.of(request.get("topic")))
            : bytes(VersionedTools.downConvert(records, Json.int8(request, "magic", RecordBatch.CURRENT_MAGIC_VALUE),
                Json.int64(request, "first_offset", 0L)));
        return json -> json.writeStringField("hex", HEX.formatHex(converted));
    }

    private byte[] append(MemoryRecords records, Topic topic) {
        CompressionType source = CompressionType.NONE;
        for (RecordBatch batch : records.batches())
            if (batch.isCompressed())
                source = batch.compressionType();
        Compression target = Compression.of(topic.codec() == null ? source : topic.codec()).build();
        return bytes(Validators.validate(records, PARTITION, source, target, topic, buffers).records().buffer());
    }

    /** One pass of MemoryRecords.filterTo with the {@link Filter} that the request describes. */
    Fields filter(JsonNode request) {
        MemoryRecords records = records(request);
        ByteBuffer destination = ByteBuffer.allocate(Json.int32(request, "buffer_bytes", AMPLE_BUFFER_BYTES));
        FilterResult result = VersionedTools.filterTo(records, new Filter(request), destination, buffers);
        byte[] retained = bytes(result.outputBuffer().flip());
        return json -> {
            json.writeStringField("hex", HEX.formatHex(retained));
            json.writeNumberField("bytes_read", result.bytesRead());
            json.writeNumberField("records_read", result.messagesRead());
            json.writeNumberField("records_retained", result.messagesRetained());
            json.writeStringField("max_offset", Long.toString(result.maxOffset()));
            json.writeStringField("max_timestamp", Long.toString(result.maxTimestamp()));
            json.writeStringField("offset_of_max_timestamp", Long.toString(result.shallowOffsetOfMaxTimestamp()));
        };
    }

    private static MemoryRecords records(JsonNode request) {
        byte[] bytes = Json.hex(request.get("hex"), "hex");
        if (bytes == null)
            throw new BadRequestException("hex is missing");
        return MemoryRecords.readableRecords(ByteBuffer.wrap(bytes));
    }

    private static byte[] bytes(ByteBuffer buffer) {
        byte[] bytes = new byte[buffer.remaining()];
        buffer.duplicate().get(bytes);
        return bytes;
    }

    /** A cleaner's decisions, read from the request. It names batches by last offset and records by offset. */
    private static final class Filter extends RecordFilter {
        private final JsonNode retention;
        private final Set<Long> emptyTransactions;
        private final Set<Long> droppedOffsets;
        private final boolean dropNullValues;
        private final byte[] droppedKeyPrefix;

        Filter(JsonNode request) {
            super(Json.int64(request, "now", 0L), Json.int64(request, "delete_retention", 0L));
            retention = request.get("batch_retention");
            emptyTransactions = offsets(request, "empty_transactions");
            droppedOffsets = offsets(request, "drop_offsets");
            dropNullValues = Json.bool(request, "drop_null_values");
            droppedKeyPrefix = Json.hex(request.get("drop_key_prefix"), "drop_key_prefix");
        }

        private static Set<Long> offsets(JsonNode request, String field) {
            Set<Long> offsets = new HashSet<>();
            if (request.has(field))
                for (JsonNode offset : Json.array(request, field))
                    offsets.add(Long.parseLong(Json.text(offset, field)));
            return offsets;
        }

        @Override
        protected BatchRetentionResult checkBatchRetention(RecordBatch batch) {
            String name = retention == null ? "delete-empty"
                : Json.text(retention, Long.toString(batch.lastOffset()), "delete-empty");
            BatchRetention kind = BatchRetention.valueOf(name.toUpperCase(Locale.ROOT).replace('-', '_'));
            return new BatchRetentionResult(kind, emptyTransactions.contains(batch.lastOffset()));
        }

        @Override
        protected boolean shouldRetainRecord(RecordBatch batch, Record record) {
            if (droppedOffsets.contains(record.offset()) || dropNullValues && !record.hasValue())
                return false;
            return droppedKeyPrefix == null || !record.hasKey() || !startsWith(bytes(record.key()), droppedKeyPrefix);
        }

        private static boolean startsWith(byte[] bytes, byte[] prefix) {
            return bytes.length >= prefix.length && Arrays.equals(bytes, 0, prefix.length, prefix, 0, prefix.length);
        }
    }
}
