package kfuzz.testee;

import com.fasterxml.jackson.core.JsonGenerator;
import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.HexFormat;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;

/**
 * The contents of a record as a consumer sees them, and their JSON form in the testee protocol.
 *
 * @param timestamp milliseconds since the epoch, or null in magic 0, which has no timestamps
 */
record RecordContents(long offset, Long timestamp, ByteBuffer key, ByteBuffer value, Header[] headers) {

    /** For a longer value the answer has its digest and size, so that a large vector does not fill the pipe. */
    private static final int LARGEST_HEX_VALUE_BYTES = 64 * 1024;

    private static final HexFormat HEX = HexFormat.of();

    /** Accesses every field that a consumer accesses. Kafka reads header keys, and legacy keys and values, lazily. */
    static RecordContents of(Record record) {
        Header[] headers = record.headers();
        for (Header header : headers) {
            header.key();
            header.value();
        }
        Long timestamp = record.hasMagic(RecordBatch.MAGIC_VALUE_V0) ? null : record.timestamp();
        return new RecordContents(record.offset(), timestamp, record.key(), record.value(), headers);
    }

    static RecordContents of(JsonNode json) {
        JsonNode headers = Json.array(json, "headers");
        Header[] read = new Header[headers.size()];
        for (int i = 0; i < read.length; i++) {
            JsonNode header = headers.get(i);
            if (!header.isArray() || header.size() != 2)
                throw new BadRequestException("a header is a pair of key and value, not " + header);
            if (header.get(0).isObject())
                throw new UnsupportedRequestException("Kafka writes header keys from text, never from other bytes");
            byte[] value = Json.hex(header.get(1), "header value");
            read[i] = new RecordHeader(Json.text(header.get(0), "header key"), value);
        }
        return new RecordContents(Json.int64(json, "offset", null), Json.optionalInt64(json, "timestamp"),
            wrap(Json.hex(json.get("key"), "key")), wrap(Json.hex(json.get("value"), "value")), read);
    }

    void writeTo(JsonGenerator json) throws IOException {
        json.writeStartObject();
        json.writeStringField("offset", Long.toString(offset));
        Json.writeOptionalInt64(json, "timestamp", timestamp);
        json.writeFieldName("key");
        writeHex(json, key);
        json.writeFieldName("value");
        if (value != null && value.remaining() > LARGEST_HEX_VALUE_BYTES)
            writeDigest(json, value);
        else
            writeHex(json, value);
        json.writeArrayFieldStart("headers");
        for (Header header : headers) {
            json.writeStartArray();
            json.writeString(header.key());
            writeHex(json, wrap(header.value()));
            json.writeEndArray();
        }
        json.writeEndArray();
        json.writeEndObject();
    }

    private static void writeHex(JsonGenerator json, ByteBuffer bytes) throws IOException {
        if (bytes == null) {
            json.writeNull();
            return;
        }
        int start = bytes.arrayOffset() + bytes.position();
        json.writeString(HEX.formatHex(bytes.array(), start, start + bytes.remaining()));
    }

    private static void writeDigest(JsonGenerator json, ByteBuffer bytes) throws IOException {
        MessageDigest digest;
        try {
            digest = MessageDigest.getInstance("SHA-256");
        } catch (NoSuchAlgorithmException e) {
            throw new IllegalStateException("every Java platform has SHA-256", e);
        }
        digest.update(bytes.duplicate());
        json.writeStartObject();
        json.writeStringField("sha256", HEX.formatHex(digest.digest()));
        json.writeNumberField("size", bytes.remaining());
        json.writeEndObject();
    }

    private static ByteBuffer wrap(byte[] bytes) {
        return bytes == null ? null : ByteBuffer.wrap(bytes);
    }
}
