package kfuzz.testee;

import com.fasterxml.jackson.core.JsonGenerator;
import com.fasterxml.jackson.core.json.JsonReadFeature;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.json.JsonMapper;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.lang.reflect.Method;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.regex.Pattern;
import org.apache.kafka.common.message.ApiMessageType;
import org.apache.kafka.common.message.RequestHeaderData;
import org.apache.kafka.common.message.ResponseHeaderData;
import org.apache.kafka.common.protocol.Message;

/**
 * The messages of this kafka-clients, and the records in the broker's jars of the same release. Each jar contains the
 * definitions that its classes were generated from. We need them because neither the classes nor their JSON converters
 * say which fields a version has.
 */
final class MessageTypes {
    /** The folders with definitions: for most jars, for the metadata log, and for kafka-storage. */
    private static final List<String> FOLDERS = List.of("common/message/", "common/metadata/", "message/");
    /** The packages of the generated classes. Every class name occurs in only one of them. */
    private static final List<String> PACKAGES = List.of(
        "org.apache.kafka.common.message.",
        "org.apache.kafka.common.metadata.",
        "org.apache.kafka.coordinator.group.generated.",
        "org.apache.kafka.coordinator.share.generated.",
        "org.apache.kafka.coordinator.transaction.generated.",
        "org.apache.kafka.raft.generated.",
        "org.apache.kafka.server.log.remote.metadata.storage.generated.");
    /** The only definition whose file has another name. */
    private static final Map<String, String> FILES = Map.of("ZkMigrationStateRecord", "ZkMigrationRecord");
    private static final Pattern NAME = Pattern.compile("[A-Za-z0-9]+");
    private static final JsonMapper DEFINITIONS =
        JsonMapper.builder().enable(JsonReadFeature.ALLOW_JAVA_COMMENTS).build();

    private final Map<String, MessageType> types = new HashMap<>();

    /** The message that a request names. */
    MessageType of(JsonNode request) {
        String name = Json.text(request.get("message"), "message");
        MessageType known = types.get(name);
        if (known == null) {
            known = load(name);
            types.put(name, known);
        }
        return known;
    }

    /** The lowest and the highest version of each request, response and header. */
    static void writeVersions(JsonGenerator json) throws IOException {
        json.writeStartObject();
        for (ApiMessageType api : ApiMessageType.values()) {
            writeVersions(json, api.name + "Request", api.lowestSupportedVersion(), api.highestSupportedVersion(true));
            writeVersions(json, api.name + "Response", api.lowestSupportedVersion(), api.highestSupportedVersion(true));
        }
        writeVersions(json, "RequestHeader", RequestHeaderData.LOWEST_SUPPORTED_VERSION,
            RequestHeaderData.HIGHEST_SUPPORTED_VERSION);
        writeVersions(json, "ResponseHeader", ResponseHeaderData.LOWEST_SUPPORTED_VERSION,
            ResponseHeaderData.HIGHEST_SUPPORTED_VERSION);
        json.writeEndObject();
    }

    private static void writeVersions(JsonGenerator json, String name, short lowest, short highest) throws IOException {
        if (lowest <= highest) {  // Skip messages without versions, which exist only to reserve an API key.
            json.writeFieldName(name);
            json.writeArray(new int[] {lowest, highest}, 0, 2);
        }
    }

    /** The header versions of a request and of its response, for one version of the request. */
    static RecordTools.Fields headerVersions(JsonNode request) {
        ApiMessageType api = ApiMessageType.fromApiKey(Json.int16(request, "api_key", (short) -1));
        short version = Json.int16(request, "version", (short) 0);
        short ofRequest = api.requestHeaderVersion(version);
        short ofResponse = api.responseHeaderVersion(version);
        return json -> {
            json.writeNumberField("request", ofRequest);
            json.writeNumberField("response", ofResponse);
        };
    }

    private static MessageType load(String name) {
        try {
            JsonNode definition = definition(name);
            if (definition.get("validVersions").textValue().equals("none"))  // It only reserves an API key.
                throw new UnsupportedRequestException(name + " has no versions left");
            Class<?> java = Reflection.named(PACKAGES, className(definition));
            return new MessageType(name, java, new Structs(definition, java).message());
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    private static JsonNode definition(String name) throws IOException {
        if (NAME.matcher(name).matches()) {
            ClassLoader loader = Message.class.getClassLoader();
            for (String folder : FOLDERS)
                try (InputStream text = loader.getResourceAsStream(folder + FILES.getOrDefault(name, name) + ".json")) {
                    if (text != null)
                        return DEFINITIONS.readTree(text);
                }
        }
        throw new UnsupportedRequestException("this kafka-clients has no message " + name);
    }

    /** The generator adds "Data" to these names, because the names without it are handwritten request classes. */
    private static String className(JsonNode definition) {
        String name = definition.get("name").textValue();
        return switch (definition.get("type").textValue()) {
            case "header", "request", "response" -> name + "Data";
            default -> name;
        };
    }

    /** The structs of one definition. Each is a class inside the message's class. */
    private static final class Structs {
        private final Class<?> outer;
        private final JsonNode definition;
        private final Map<String, StructType> byName = new HashMap<>();

        Structs(JsonNode definition, Class<?> outer) {
            this.definition = definition;
            this.outer = outer;
        }

        StructType message() {
            return fill(new StructType(outer), outer, definition.get("fields"));
        }

        private StructType fill(StructType struct, Class<?> java, JsonNode fields) {
            for (JsonNode field : fields)
                struct.add(field(field, java));
            return struct;
        }

        private StructType.Field field(JsonNode field, Class<?> java) {
            String defined = field.get("name").textValue();  // Most names begin with a capital letter, a few do not.
            String name = defined.substring(0, 1).toLowerCase(Locale.ROOT) + defined.substring(1);
            String setter = "set" + defined.substring(0, 1).toUpperCase(Locale.ROOT) + defined.substring(1);
            Method getter = Reflection.method(java, name);
            Class<?> value = getter.getReturnType();
            JsonNode given = field.has("versions") ? field.get("versions") : field.get("taggedVersions");
            String[] versions = given.textValue().split("(?=\\+)|-");
            int lowest = Integer.parseInt(versions[0]);
            int highest = versions.length == 1 ? lowest
                : versions[1].equals("+") ? Short.MAX_VALUE : Integer.parseInt(versions[1]);
            return new StructType.Field(name, lowest, highest, type(field, value), getter,
                Reflection.method(java, setter, value));
        }

        private ValueType type(JsonNode field, Class<?> java) {
            String name = field.get("type").textValue();
            if (!name.startsWith("[]"))
                return isStruct(name) ? struct(name, field) : ValueType.scalar(name, java);
            String element = name.substring(2);
            return ArrayType.of(
                isStruct(element) ? struct(element, field) : ValueType.scalar(element, Object.class), java);
        }

        private static boolean isStruct(String type) {
            return Character.isUpperCase(type.charAt(0));
        }

        /** A struct is defined in the field that uses it, or once for several fields in commonStructs. */
        private StructType struct(String name, JsonNode field) {
            StructType known = byName.get(name);
            if (known != null)
                return known;
            Class<?> java = Reflection.named(outer.getName() + "$" + name);
            StructType struct = new StructType(java);
            byName.put(name, struct);
            return fill(struct, java, field.has("fields") ? field.get("fields") : common(name));
        }

        private JsonNode common(String name) {
            for (JsonNode struct : definition.get("commonStructs"))
                if (struct.get("name").textValue().equals(name))
                    return struct.get("fields");
            throw new IllegalStateException("a definition lacks the struct " + name);
        }
    }
}
