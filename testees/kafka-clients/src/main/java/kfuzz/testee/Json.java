package kfuzz.testee;

import com.fasterxml.jackson.core.JsonGenerator;
import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.util.HexFormat;

/** The protocol's way of writing values in JSON: 64-bit integers as decimal strings, bytes as hex, absence as null. */
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
        JsonNode node = object.get(field);
        if (node == null)
            return fallback;
        if (!node.canConvertToInt() || !node.isIntegralNumber())
            throw new BadRequestException(field + " must be a 32-bit integer, not " + node);
        return node.intValue();
    }

    /** The 64-bit integer of the field, the fallback where the field is absent; a null fallback means it is required. */
    static long int64(JsonNode object, String field, Long fallback) {
        if (fallback != null && !object.has(field))
            return fallback;
        Long value = optionalInt64(object, field);
        if (value == null)
            throw new BadRequestException(field + " must be a 64-bit integer as a decimal string, not " + object.get(field));
        return value;
    }

    static Long optionalInt64(JsonNode object, String field) {
        JsonNode node = object.get(field);
        if (node == null || node.isNull())
            return null;
        try {
            return Long.parseLong(text(node, field));
        } catch (NumberFormatException e) {
            throw new BadRequestException(field + " must be a 64-bit integer as a decimal string, not " + node);
        }
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
