package kfuzz.testee;

import com.fasterxml.jackson.core.JsonGenerator;
import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.RecordBatch;

/**
 * The contents of a record batch as a consumer sees them, and their JSON form in the testee protocol. As in Kafka, a
 * plain message or a wrapper message of magic 0 or 1 is a batch too.
 *
 * @param baseOffset null if the batch has magic 0 or 1 and its records cannot be read
 * @param compression null if the batch names a codec that does not exist
 * @param deleteHorizonMs milliseconds since the epoch, or null if the batch has none
 * @param records null if no reader can read them
 */
record BatchContents(Long baseOffset, long lastOffset, long nextOffset, byte magic, String compression,
                     TimestampType timestampType, boolean transactional, boolean control, long producerId,
                     short producerEpoch, int baseSequence, int partitionLeaderEpoch, Long deleteHorizonMs,
                     List<RecordContents> records) {

    static BatchContents of(RecordBatch batch, List<RecordContents> records) {
        // A legacy batch would read its records again to find its base offset. We have already read them.
        Long baseOffset = null;
        if (batch.magic() >= RecordBatch.MAGIC_VALUE_V2)
            baseOffset = batch.baseOffset();
        else if (records != null)
            baseOffset = records.get(0).offset();
        Long deleteHorizonMs = batch.deleteHorizonMs().isPresent() ? batch.deleteHorizonMs().getAsLong() : null;
        return new BatchContents(baseOffset, batch.lastOffset(), batch.nextOffset(), batch.magic(),
            compression(batch), batch.timestampType(), batch.isTransactional(), batch.isControlBatch(),
            batch.producerId(), batch.producerEpoch(), batch.baseSequence(), batch.partitionLeaderEpoch(),
            deleteHorizonMs, records);
    }

    /** A segment may hold batches with unknown codecs, because recovery does not check the codec. */
    private static String compression(RecordBatch batch) {
        try {
            return batch.compressionType().name;
        } catch (IllegalArgumentException e) {
            return null;
        }
    }

    /** Missing fields of the request get Kafka's defaults. */
    static BatchContents of(JsonNode json) {
        List<RecordContents> records = new ArrayList<>();
        for (JsonNode record : Json.array(json, "records"))
            records.add(RecordContents.of(record));
        long firstOffset = records.isEmpty() ? 0 : records.get(0).offset();
        long baseOffset = Json.int64(json, "base_offset", firstOffset);
        long finalOffset = records.isEmpty() ? baseOffset : records.get(records.size() - 1).offset();
        long lastOffset = Json.int64(json, "last_offset", finalOffset);
        byte magic = Json.int8(json, "magic", RecordBatch.CURRENT_MAGIC_VALUE);
        String usualTimestampType = magic == RecordBatch.MAGIC_VALUE_V0 ? "none" : "create";
        return new BatchContents(baseOffset, lastOffset, lastOffset + 1, magic, Json.text(json, "compression", "none"),
            timestampType(Json.text(json, "timestamp_type", usualTimestampType)),
            Json.bool(json, "transactional"), Json.bool(json, "control"),
            Json.int64(json, "producer_id", RecordBatch.NO_PRODUCER_ID),
            Json.int16(json, "producer_epoch", RecordBatch.NO_PRODUCER_EPOCH),
            Json.int32(json, "base_sequence", RecordBatch.NO_SEQUENCE),
            Json.int32(json, "partition_leader_epoch", RecordBatch.NO_PARTITION_LEADER_EPOCH),
            Json.optionalInt64(json, "delete_horizon"), records);
    }

    void writeTo(JsonGenerator json) throws IOException {
        json.writeStartObject();
        if (baseOffset != null)
            json.writeStringField("base_offset", Long.toString(baseOffset));
        json.writeStringField("last_offset", Long.toString(lastOffset));
        json.writeStringField("next_offset", Long.toString(nextOffset));
        json.writeNumberField("magic", magic);
        if (compression != null)
            json.writeStringField("compression", compression);
        json.writeStringField("timestamp_type", name(timestampType));
        json.writeBooleanField("transactional", transactional);
        json.writeBooleanField("control", control);
        json.writeStringField("producer_id", Long.toString(producerId));
        json.writeNumberField("producer_epoch", producerEpoch);
        json.writeNumberField("base_sequence", baseSequence);
        json.writeNumberField("partition_leader_epoch", partitionLeaderEpoch);
        Json.writeOptionalInt64(json, "delete_horizon", deleteHorizonMs);
        if (records != null) {
            json.writeArrayFieldStart("records");
            for (RecordContents record : records)
                record.writeTo(json);
            json.writeEndArray();
        }
        json.writeEndObject();
    }

    private static String name(TimestampType type) {
        return switch (type) {
            case NO_TIMESTAMP_TYPE -> "none";
            case CREATE_TIME -> "create";
            case LOG_APPEND_TIME -> "log-append";
        };
    }

    private static TimestampType timestampType(String name) {
        return switch (name) {
            case "none" -> TimestampType.NO_TIMESTAMP_TYPE;
            case "create" -> TimestampType.CREATE_TIME;
            case "log-append" -> TimestampType.LOG_APPEND_TIME;
            default -> throw new BadRequestException("timestamp_type must be create, log-append or none, not " + name);
        };
    }
}
