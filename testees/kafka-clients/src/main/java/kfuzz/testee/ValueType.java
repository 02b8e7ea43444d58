package kfuzz.testee;

import com.fasterxml.jackson.core.JsonGenerator;
import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.record.internal.MemoryRecords;

/** A type in Kafka's message definitions. It converts Java values to and from the JSON of a message. */
interface ValueType {
    HexFormat HEX = HexFormat.of();

    /** Writes a value that is not null. */
    void write(JsonGenerator json, Object value, short version) throws IOException;

    /** The Java value for JSON that is not null. Throws {@link BadMessageException} if it does not fit. */
    Object read(JsonNode json);

    /** Whether Kafka's classes accept null in a setter. They check themselves which fields may be null. */
    default boolean hasNull() {
        return true;
    }

    default void writeOrNull(JsonGenerator json, Object value, short version) throws IOException {
        if (value == null)
            json.writeNull();
        else
            write(json, value, version);
    }

    default Object readOrNull(JsonNode json) {
        return json.isNull() && hasNull() ? null : read(json);
    }

    /** The type of a single value. {@code java} is the Java type of the field in the generated class. */
    static ValueType scalar(String name, Class<?> java) {
        return switch (name) {
            case "bool" -> new Bool();
            case "int8" -> new Int(Byte.MIN_VALUE, Byte.MAX_VALUE, value -> (byte) value);
            case "int16" -> new Int(Short.MIN_VALUE, Short.MAX_VALUE, value -> (short) value);
            case "uint16" -> new Int(0, 0xffff, value -> (int) value);
            case "int32" -> new Int(Integer.MIN_VALUE, Integer.MAX_VALUE, value -> (int) value);
            case "uint32" -> new Int(0, 0xffff_ffffL, value -> value);
            case "int64" -> new Int64();
            case "float64" -> new Float64();
            case "uuid" -> new Id();
            case "string" -> new Text();
            case "bytes" -> java == ByteBuffer.class ? new Buffer() : new Bytes();
            case "records" -> new Records();
            default -> throw new IllegalStateException("the definitions of messages have a new type: " + name);
        };
    }

    private static BadMessageException mistyped(String wanted, JsonNode json) {
        String shown = json.toString();
        return new BadMessageException("must be " + wanted + ", not "
            + (shown.length() > 60 ? shown.substring(0, 60) + "…" : shown));
    }

    private static byte[] octets(JsonNode json) {
        try {
            if (json.isTextual())
                return HEX.parseHex(json.textValue());
        } catch (IllegalArgumentException e) {
            throw mistyped("hex", json);
        }
        throw mistyped("hex", json);
    }

    private static void writeHex(JsonGenerator json, ByteBuffer buffer) throws IOException {
        byte[] bytes = new byte[buffer.remaining()];
        buffer.duplicate().get(bytes);
        json.writeString(HEX.formatHex(bytes));
    }

    /** Numbers, booleans and uuids. Kafka's classes use Java primitives for them or do not accept null. */
    interface NeverNull extends ValueType {
        @Override
        default boolean hasNull() {
            return false;
        }
    }

    record Bool() implements NeverNull {
        @Override
        public void write(JsonGenerator json, Object value, short version) throws IOException {
            json.writeBoolean((Boolean) value);
        }

        @Override
        public Object read(JsonNode json) {
            if (!json.isBoolean())
                throw mistyped("true or false", json);
            return json.booleanValue();
        }
    }

    /** An integer that every JSON library reads without loss. */
    record Int(long least, long greatest, Boxing boxing) implements NeverNull {
        /** Boxes a value as the primitive type that the setter takes. */
        interface Boxing {
            Object of(long value);
        }

        @Override
        public void write(JsonGenerator json, Object value, short version) throws IOException {
            json.writeNumber(((Number) value).longValue());
        }

        @Override
        public Object read(JsonNode json) {
            boolean fits = json.isIntegralNumber() && json.canConvertToLong();
            if (!fits || json.longValue() < least || json.longValue() > greatest)
                throw mistyped("an integer in " + least + ".." + greatest, json);
            return boxing.of(json.longValue());
        }
    }

    record Int64() implements NeverNull {
        @Override
        public void write(JsonGenerator json, Object value, short version) throws IOException {
            json.writeString(value.toString());
        }

        @Override
        public Object read(JsonNode json) {
            try {
                if (json.isTextual())
                    return Long.parseLong(json.textValue());
            } catch (NumberFormatException e) {
                throw mistyped("a 64-bit integer as a decimal string", json);
            }
            throw mistyped("a 64-bit integer as a decimal string", json);
        }
    }

    record Float64() implements NeverNull {
        /** The generator writes NaN, Infinity and -Infinity as strings, because JSON has no such numbers. */
        @Override
        public void write(JsonGenerator json, Object value, short version) throws IOException {
            json.writeNumber((double) value);
        }

        @Override
        public Object read(JsonNode json) {
            if (json.isNumber())
                return json.doubleValue();
            return switch (json.asText()) {
                case "NaN" -> Double.NaN;
                case "Infinity" -> Double.POSITIVE_INFINITY;
                case "-Infinity" -> Double.NEGATIVE_INFINITY;
                default -> throw mistyped("a number, NaN, Infinity or -Infinity", json);
            };
        }
    }

    record Id() implements NeverNull {
        @Override
        public void write(JsonGenerator json, Object value, short version) throws IOException {
            json.writeString(value.toString());
        }

        @Override
        public Object read(JsonNode json) {
            try {
                if (json.isTextual())
                    return Uuid.fromString(json.textValue());
            } catch (IllegalArgumentException e) {
                throw mistyped("a uuid in Kafka's text form", json);
            }
            throw mistyped("a uuid in Kafka's text form", json);
        }
    }

    record Text() implements ValueType {
        @Override
        public void write(JsonGenerator json, Object value, short version) throws IOException {
            json.writeString((String) value);
        }

        @Override
        public Object read(JsonNode json) {
            if (!json.isTextual())
                throw mistyped("a string", json);
            return json.textValue();
        }
    }

    record Bytes() implements ValueType {
        @Override
        public void write(JsonGenerator json, Object value, short version) throws IOException {
            json.writeString(HEX.formatHex((byte[]) value));
        }

        @Override
        public Object read(JsonNode json) {
            return octets(json);
        }
    }

    /** The bytes of a field marked zeroCopy. */
    record Buffer() implements ValueType {
        @Override
        public void write(JsonGenerator json, Object value, short version) throws IOException {
            writeHex(json, (ByteBuffer) value);
        }

        @Override
        public Object read(JsonNode json) {
            return ByteBuffer.wrap(octets(json));
        }
    }

    /** Record batches, which are passed on unread. */
    record Records() implements ValueType {
        @Override
        public void write(JsonGenerator json, Object value, short version) throws IOException {
            writeHex(json, ((MemoryRecords) value).buffer());
        }

        @Override
        public Object read(JsonNode json) {
            return MemoryRecords.readableRecords(ByteBuffer.wrap(octets(json)));
        }
    }
}
