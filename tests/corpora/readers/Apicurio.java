import com.google.protobuf.Message;
import com.google.protobuf.util.JsonFormat;
import io.apicurio.registry.serde.avro.AvroKafkaDeserializer;
import io.apicurio.registry.serde.jsonschema.JsonSchemaKafkaDeserializer;
import io.apicurio.registry.serde.protobuf.ProtobufKafkaDeserializer;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.Map;
import java.util.Scanner;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.serialization.Deserializer;

/** Reads lines of a kind of schema, a value, and the name and value of each header. Writes the values as JSON. */
class Apicurio {
    public static void main(String[] settings) throws Exception {
        Map<String, Object> config = new HashMap<>();
        for (int at = 0; at < settings.length; at += 2)
            config.put(settings[at], settings[at + 1]);
        Map<String, Deserializer<?>> readers = Map.of(
            "AVRO", new AvroKafkaDeserializer<>(),
            "PROTOBUF", new ProtobufKafkaDeserializer<>(),
            "JSON", new JsonSchemaKafkaDeserializer<>());
        readers.values().forEach(reader -> reader.configure(config, false));
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        for (Scanner lines = new Scanner(System.in); lines.hasNextLine(); ) {
            String[] parts = lines.nextLine().split(" ");
            RecordHeaders headers = new RecordHeaders();
            for (int at = 2; at < parts.length; at += 2)
                headers.add(parts[at], HexFormat.of().parseHex(parts[at + 1]));
            Object value = readers.get(parts[0]).deserialize("topic", headers, HexFormat.of().parseHex(parts[1]));
            out.println(value instanceof Message message
                ? JsonFormat.printer().preservingProtoFieldNames().omittingInsignificantWhitespace().print(message)
                : value);
        }
    }
}
