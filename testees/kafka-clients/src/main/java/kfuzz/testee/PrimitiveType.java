package kfuzz.testee;

import com.fasterxml.jackson.core.JsonGenerator;
import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.nio.BufferUnderflowException;
import java.nio.ByteBuffer;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.protocol.types.ArrayOf;
import org.apache.kafka.common.protocol.types.CompactArrayOf;
import org.apache.kafka.common.protocol.types.Type;
import org.apache.kafka.common.utils.internals.ByteUtils;

/** A single primitive of the protocol. Kafka's own type reads and writes it. */
record PrimitiveType(Type kafka, ValueType json) {
    private static final Map<String, PrimitiveType> TYPES = new LinkedHashMap<>();

    static {
        add("bool", Type.BOOLEAN, "bool");
        add("int8", Type.INT8, "int8");
        add("int16", Type.INT16, "int16");
        add("uint16", Type.UINT16, "uint16");
        add("int32", Type.INT32, "int32");
        add("uint32", Type.UNSIGNED_INT32, "uint32");
        add("int64", Type.INT64, "int64");
        add("float64", Type.FLOAT64, "float64");
        add("uuid", Type.UUID, "uuid");
        add("varint", Type.VARINT, "int32");
        add("varlong", Type.VARLONG, "int64");
        add("unsigned-varint", new UnsignedVarint(), "int32");
        add("string", Type.STRING, "string");
        add("nullable-string", Type.NULLABLE_STRING, "string");
        add("compact-string", Type.COMPACT_STRING, "string");
        add("compact-nullable-string", Type.COMPACT_NULLABLE_STRING, "string");
        add("bytes", Type.BYTES, "bytes");
        add("nullable-bytes", Type.NULLABLE_BYTES, "bytes");
        add("compact-bytes", Type.COMPACT_BYTES, "bytes");
        add("compact-nullable-bytes", Type.COMPACT_NULLABLE_BYTES, "bytes");
        TYPES.put("array", new PrimitiveType(new ArrayOf(Type.INT32), new Elements()));
        TYPES.put("nullable-array", new PrimitiveType(ArrayOf.nullable(Type.INT32), new Elements()));
        TYPES.put("compact-array", new PrimitiveType(new CompactArrayOf(Type.INT32), new Elements()));
        TYPES.put("compact-nullable-array", new PrimitiveType(CompactArrayOf.nullable(Type.INT32), new Elements()));
    }

    private static void add(String name, Type kafka, String json) {
        TYPES.put(name, new PrimitiveType(kafka, ValueType.scalar(json, ByteBuffer.class)));
    }

    static String[] names() {
        return TYPES.keySet().toArray(String[]::new);
    }

    /** The primitive that a request names. */
    static PrimitiveType of(JsonNode request) {
        String name = Json.text(request.get("primitive"), "primitive");
        PrimitiveType type = TYPES.get(name);
        if (type == null)
            throw new UnsupportedRequestException("no primitive " + name);
        return type;
    }

    Object decode(ByteBuffer buffer) {
        return kafka.read(buffer);
    }

    /** Validates and computes the size first, as a Schema does for its fields. */
    byte[] encode(JsonNode value) {
        Object given = kafka.validate(json.readOrNull(value));
        ByteBuffer buffer = ByteBuffer.allocate(kafka.sizeOf(given));
        kafka.write(buffer, given);
        return buffer.array();
    }

    void writeJson(JsonGenerator generator, Object value) throws IOException {
        json.writeOrNull(generator, value, (short) 0);
    }

    /** SchemaException is a KafkaException. ByteBuffer and ByteUtils throw the others, as in {@link MessageType}. */
    static boolean isRefusal(Throwable failure) {
        return failure instanceof KafkaException || failure instanceof BadMessageException
            || failure instanceof BufferUnderflowException || failure.getClass() == IllegalArgumentException.class;
    }

    /** Kafka has no type for it. Its compact types call these methods of ByteUtils. */
    private static final class UnsignedVarint extends Type {
        @Override
        public void write(ByteBuffer buffer, Object value) {
            ByteUtils.writeUnsignedVarint((Integer) value, buffer);
        }

        @Override
        public Object read(ByteBuffer buffer) {
            return ByteUtils.readUnsignedVarint(buffer);
        }

        @Override
        public Object validate(Object value) {
            return value;
        }

        @Override
        public int sizeOf(Object value) {
            return ByteUtils.sizeOfUnsignedVarint((Integer) value);
        }
    }

    /** Arrays of int32. Kafka's types represent them as Object[]. */
    private record Elements() implements ValueType {
        private static final ValueType INT32 = ValueType.scalar("int32", Integer.class);

        @Override
        public void write(JsonGenerator json, Object value, short version) throws IOException {
            json.writeStartArray();
            for (Object element : (Object[]) value)
                INT32.write(json, element, version);
            json.writeEndArray();
        }

        @Override
        public Object read(JsonNode json) {
            if (!json.isArray())
                throw new BadMessageException("must be a list, not " + json);
            Object[] elements = new Object[json.size()];
            for (int i = 0; i < elements.length; i++)
                elements[i] = INT32.read(json.get(i));
            return elements;
        }
    }
}
