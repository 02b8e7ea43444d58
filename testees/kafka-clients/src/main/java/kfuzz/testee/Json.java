package kfuzz.testee;

import com.fasterxml.jackson.core.JsonGenerator;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import java.io.IOException;
import java.util.HexFormat;

/** The protocol's JSON form of values: 64-bit integers as decimal strings, bytes as hex, missing values as null. */
final class Json {
    private static final HexFormat HEX = HexFormat.of();

    private Json() {}

    static String text(JsonNode node, String name) {
        if (node == null || !node.isTextual())
            throw new BadRequestException(name + " must be a string, not " + node);
        return node.textValue();
    }

    static String text(JsonNode object, String field, String fallback) {
        return object.has(field) ? text(object.get(field), field) : fallback;
    }

    static boolean bool(JsonNode object, String field) {
        JsonNode node = object.get(field);
        if (node != null && !node.isBoolean())
            throw new BadRequestException(field + " must be true or false, not " + node);
        return node != null && node.booleanValue();
    }

    static int int32(JsonNode object, String field, int fallback) {
        return integer(object, field, fallback, Integer.MIN_VALUE, Integer.MAX_VALUE);
    }

    static short int16(JsonNode object, String field, short fallback) {
        return (short) integer(object, field, fallback, Short.MIN_VALUE, Short.MAX_VALUE);
    }

    static byte int8(JsonNode object, String field, byte fallback) {
        return (byte) integer(object, field, fallback, Byte.MIN_VALUE, Byte.MAX_VALUE);
    }

    private static int integer(JsonNode object, String field, int fallback, int least, int greatest) {
        JsonNode node = object.get(field);
        if (node == null)
            return fallback;
        boolean integral = node.isIntegralNumber() && node.canConvertToInt();
        if (!integral || node.intValue() < least || node.intValue() > greatest)
            throw new BadRequestException(field + " must be in " + least + ".." + greatest + ", not " + node);
        return node.intValue();
    }

    /** The field's 64-bit integer, or the fallback if it is missing. Without a fallback, the field is required. */
    static long int64(JsonNode object, String field, Long fallback) {
        Long value = object.has(field) ? optionalInt64(object, field) : fallback;
        if (value == null)
            throw notInt64(object, field);
        return value;
    }

    static Long optionalInt64(JsonNode object, String field) {
        JsonNode node = object.get(field);
        if (node == null || node.isNull())
            return null;
        try {
            return Long.parseLong(text(node, field));
        } catch (NumberFormatException e) {
            throw notInt64(object, field);
        }
    }

    private static BadRequestException notInt64(JsonNode object, String field) {
        return new BadRequestException(field + " must be a 64-bit integer in decimal, not " + object.get(field));
    }

    static byte[] hex(JsonNode node, String name) {
        if (node == null || node.isNull())
            return null;
        if (node.isObject() && node.has("sha256"))
            throw new UnsupportedRequestException(name + " is given by its digest only");
        try {
            return HEX.parseHex(text(node, name));
        } catch (IllegalArgumentException e) {
            throw new BadRequestException(name + " must be hex: " + e.getMessage());
        }
    }

    /** The field's object, or an empty object if the field is missing. */
    static JsonNode object(JsonNode object, String field) {
        JsonNode node = object.get(field);
        if (node == null)
            return JsonNodeFactory.instance.objectNode();
        if (!node.isObject())
            throw new BadRequestException(field + " must be an object, not " + node);
        return node;
    }

    static JsonNode array(JsonNode object, String field) {
        JsonNode node = object.get(field);
        if (node == null || !node.isArray())
            throw new BadRequestException(field + " must be an array, not " + node);
        return node;
    }

    static void writeOptionalInt64(JsonGenerator json, String field, Long value) throws IOException {
        if (value == null)
            json.writeNullField(field);
        else
            json.writeStringField(field, Long.toString(value));
    }
}
