package kfuzz.testee;

import com.fasterxml.jackson.core.JsonGenerator;
import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.lang.reflect.Method;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.types.RawTaggedField;

/** A struct of a definition, or the message itself, with the accessors of its generated class. */
final class StructType implements ValueType {
    /** The JSON name for tagged fields that the struct does not know. */
    private static final String UNKNOWN_TAGGED_FIELDS = "_unknownTaggedFields";
    /** In place of a version: the fields of all versions. */
    static final short EVERY_VERSION = -1;
    private static final Int TAG = new Int(0, 0xffff_ffffL, value -> value);

    /** One field, which exists in the versions {@code lowest} to {@code highest}. */
    record Field(String name, int lowest, int highest, ValueType type, Method getter, Method setter) {
        boolean isIn(short version) {
            return version == EVERY_VERSION || lowest <= version && version <= highest;
        }
    }

    private final Class<?> java;
    private final Map<String, Field> fields = new LinkedHashMap<>();

    StructType(Class<?> java) {
        this.java = java;
    }

    void add(Field field) {
        fields.put(field.name(), field);
    }

    /** Writes all fields of the version. Kafka's converters omit tagged fields with default values. */
    @Override
    public void write(JsonGenerator json, Object value, short version) throws IOException {
        json.writeStartObject();
        for (Field field : fields.values()) {
            if (field.isIn(version)) {
                json.writeFieldName(field.name());
                field.type().writeOrNull(json, Reflection.call(field.getter(), value), version);
            }
        }
        writeUnknown(json, (Message) value);
        json.writeEndObject();
    }

    private static void writeUnknown(JsonGenerator json, Message struct) throws IOException {
        if (struct.unknownTaggedFields().isEmpty())
            return;
        json.writeArrayFieldStart(UNKNOWN_TAGGED_FIELDS);
        for (RawTaggedField field : struct.unknownTaggedFields()) {
            json.writeStartObject();
            json.writeNumberField("tag", Integer.toUnsignedLong(field.tag()));
            json.writeStringField("hex", HEX.formatHex(field.data()));
            json.writeEndObject();
        }
        json.writeEndArray();
    }

    /**
     * The struct. Missing fields have the defaults of its class. Fields of other versions are set too: Kafka's writer
     * decides whether to refuse or to ignore them.
     */
    @Override
    public Object read(JsonNode json) {
        if (!json.isObject())
            throw new BadMessageException("must be an object");
        Message struct = Reflection.message(java);
        for (Map.Entry<String, JsonNode> member : json.properties()) {
            String name = member.getKey();
            try {
                if (name.equals(UNKNOWN_TAGGED_FIELDS))
                    readUnknown(member.getValue(), struct);
                else
                    set(struct, name, member.getValue());
            } catch (BadMessageException e) {
                throw e.within("." + name);
            }
        }
        return struct;
    }

    private void set(Message struct, String name, JsonNode value) {
        Field field = fields.get(name);
        if (field == null)
            throw new BadMessageException("is no field of " + java.getSimpleName());
        Reflection.call(field.setter(), struct, field.type().readOrNull(value));
    }

    private static void readUnknown(JsonNode json, Message struct) {
        if (!json.isArray())
            throw new BadMessageException("must be an array");
        for (JsonNode field : json) {
            if (field.size() != 2 || !field.has("tag") || !field.has("hex"))
                throw new BadMessageException("must have objects of a tag and hex, not " + field);
            long tag = (long) TAG.read(field.get("tag"));
            byte[] data = (byte[]) new Bytes().read(field.get("hex"));
            struct.unknownTaggedFields().add(new RawTaggedField((int) tag, data));
        }
    }
}
