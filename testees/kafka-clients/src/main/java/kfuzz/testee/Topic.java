package kfuzz.testee;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.Iterator;
import java.util.Set;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.RecordBatch;

/**
 * The partition that gets a Produce request: its settings in the broker's configuration, and the state of its log.
 *
 * @param codec the topic's compression.type; null for {@code producer}, which keeps the client's codec
 * @param nowMs the broker's clock, in milliseconds since the epoch
 * @param firstOffset the log's end offset, which becomes the first record's offset
 */
record Topic(CompressionType codec, TimestampType timestampType, long nowMs, boolean compacted, byte magic,
             long firstOffset, int leaderEpoch, int maxMessageBytes, int maxRequestBytes,
             long timestampBeforeMaxMs, long timestampAfterMaxMs) {

    /** An arbitrary fixed time. Answers must not depend on the machine's clock. */
    private static final long NOW_MS = 1_700_000_000_000L;
    private static final int MAX_MESSAGE_BYTES = 1_048_588;
    private static final int MAX_REQUEST_BYTES = 104_857_600;
    private static final Set<String> FIELDS = Set.of("compression", "timestamp_type", "now", "compacted", "magic",
        "first_offset", "leader_epoch", "max_message_bytes", "max_request_bytes", "timestamp_before_max_ms",
        "timestamp_after_max_ms");

    /** The partition in the request's {@code topic}. Missing fields have defaults. */
    static Topic of(JsonNode json) {
        for (Iterator<String> names = json.fieldNames(); names.hasNext();) {
            String name = names.next();
            if (!FIELDS.contains(name))
                throw new BadRequestException("topic has no field " + name + "; known are " + FIELDS);
        }
        String codec = Json.text(json, "compression", "producer");
        return new Topic(codec.equals("producer") ? null : CompressionType.forName(codec),
            timestampType(Json.text(json, "timestamp_type", "create")), Json.int64(json, "now", NOW_MS),
            Json.bool(json, "compacted"), Json.int8(json, "magic", RecordBatch.CURRENT_MAGIC_VALUE),
            Json.int64(json, "first_offset", 0L), Json.int32(json, "leader_epoch", 0),
            Json.int32(json, "max_message_bytes", MAX_MESSAGE_BYTES),
            Json.int32(json, "max_request_bytes", MAX_REQUEST_BYTES),
            Json.int64(json, "timestamp_before_max_ms", Long.MAX_VALUE),
            Json.int64(json, "timestamp_after_max_ms", Long.MAX_VALUE));
    }

    private static TimestampType timestampType(String name) {
        return switch (name) {
            case "create" -> TimestampType.CREATE_TIME;
            case "log-append" -> TimestampType.LOG_APPEND_TIME;
            default -> throw new BadRequestException("topic.timestamp_type must be create or log-append, not " + name);
        };
    }
}
