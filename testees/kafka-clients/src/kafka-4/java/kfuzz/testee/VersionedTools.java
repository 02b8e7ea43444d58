package kfuzz.testee;

import com.fasterxml.jackson.databind.JsonNode;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import org.apache.kafka.common.message.EndTxnMarker;
import org.apache.kafka.common.message.EndTxnMarkerJsonConverter;
import org.apache.kafka.common.message.KRaftVersionRecord;
import org.apache.kafka.common.message.KRaftVersionRecordJsonConverter;
import org.apache.kafka.common.message.LeaderChangeMessage;
import org.apache.kafka.common.message.LeaderChangeMessageJsonConverter;
import org.apache.kafka.common.message.SnapshotFooterRecord;
import org.apache.kafka.common.message.SnapshotFooterRecordJsonConverter;
import org.apache.kafka.common.message.SnapshotHeaderRecord;
import org.apache.kafka.common.message.SnapshotHeaderRecordJsonConverter;
import org.apache.kafka.common.message.VotersRecord;
import org.apache.kafka.common.message.VotersRecordJsonConverter;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.Records;
import org.apache.kafka.common.utils.internals.BufferSupplier;

/** The parts of {@link RecordTools} that depend on the version: Kafka 4, which does not convert to older formats. */
final class VersionedTools {
    private static final HexFormat HEX = HexFormat.of();

    private VersionedTools() {}

    static ByteBuffer downConvert(MemoryRecords records, byte magic, long firstOffset) {
        throw new UnsupportedRequestException("Kafka 4 does not convert to older formats");
    }

    static MemoryRecords.FilterResult filterTo(MemoryRecords records, MemoryRecords.RecordFilter filter,
                                               ByteBuffer destination, BufferSupplier buffers) {
        return records.filterTo(filter, destination, buffers, Records.SOFT_MAX_ARRAY_LENGTH);
    }

    /**
     * Reads the key and the value of a control record. Answers with the type in the key, the value in the JSON of
     * Kafka's converters, and both written again. The written value is null if Kafka can read but not write it.
     * {@code layout} is the version of the value's layout; Kafka's own readers always use 0.
     */
    static RecordTools.Fields control(JsonNode request) {
        ByteBuffer key = ByteBuffer.wrap(Json.hex(request.get("key"), "key"));
        ByteBuffer value = ByteBuffer.wrap(Json.hex(request.get("value"), "value"));
        short layout = Json.int16(request, "layout", (short) 0);
        ControlRecordType type = ControlRecordType.parse(key);
        boolean marker = type == ControlRecordType.ABORT || type == ControlRecordType.COMMIT;
        short version = value.getShort(0);
        if (marker) {
            if (version < 0)
                throw new IllegalArgumentException("version " + version);
            value.getShort();
        }
        Message message = message(type, new ByteBufferAccessor(value), layout);
        JsonNode contents = contents(message, layout);
        String written = written(message, layout, marker);
        return json -> {
            json.writeStringField("type", type.name());
            json.writeObjectField("message", contents);
            json.writeNumberField("left", value.remaining());
            json.writeStringField("key", hex(type.recordKey()));
            json.writeStringField("value", written);
        };
    }

    private static String written(Message message, short layout, boolean marker) {
        try {
            return hex(marker ? MessageUtil.toVersionPrefixedByteBuffer((short) 0, message)
                : MessageUtil.toByteBufferAccessor(message, layout).buffer());
        } catch (RuntimeException e) {  // The generated classes can read some tagged fields that they cannot write.
            return null;
        }
    }

    private static Message message(ControlRecordType type, ByteBufferAccessor value, short layout) {
        return switch (type) {
            case ABORT, COMMIT -> new EndTxnMarker(value, layout);
            case LEADER_CHANGE -> new LeaderChangeMessage(value, layout);
            case SNAPSHOT_HEADER -> new SnapshotHeaderRecord(value, layout);
            case SNAPSHOT_FOOTER -> new SnapshotFooterRecord(value, layout);
            case KRAFT_VERSION -> new KRaftVersionRecord(value, layout);
            case KRAFT_VOTERS -> new VotersRecord(value, layout);
            case UNKNOWN -> throw new IllegalArgumentException("unknown control record type");
        };
    }

    private static JsonNode contents(Message message, short layout) {
        if (message instanceof EndTxnMarker marker)
            return EndTxnMarkerJsonConverter.write(marker, layout);
        if (message instanceof LeaderChangeMessage change)
            return LeaderChangeMessageJsonConverter.write(change, layout);
        if (message instanceof SnapshotHeaderRecord header)
            return SnapshotHeaderRecordJsonConverter.write(header, layout);
        if (message instanceof SnapshotFooterRecord footer)
            return SnapshotFooterRecordJsonConverter.write(footer, layout);
        if (message instanceof KRaftVersionRecord version)
            return KRaftVersionRecordJsonConverter.write(version, layout);
        return VotersRecordJsonConverter.write((VotersRecord) message, layout);
    }

    private static String hex(ByteBuffer buffer) {
        byte[] bytes = new byte[buffer.remaining()];
        buffer.duplicate().get(bytes);
        return HEX.formatHex(bytes);
    }
}
