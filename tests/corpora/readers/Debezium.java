import io.debezium.transforms.ExtractNewRecordState;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import java.util.Map;
import java.util.Scanner;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaAndValue;
import org.apache.kafka.connect.json.JsonConverter;
import org.apache.kafka.connect.sink.SinkRecord;

/** Reads lines of a key and a value, or -. Writes the key and the row that a sink of Kafka Connect gets, as JSON. */
class Debezium {
    private static JsonConverter converter(boolean isKey, boolean hasSchemas) {
        JsonConverter made = new JsonConverter();
        made.configure(Map.of("schemas.enable", hasSchemas), isKey);
        return made;
    }

    private static String json(JsonConverter plain, Schema schema, Object value) {
        byte[] data = plain.fromConnectData("topic", schema, value);
        return data == null ? "null" : new String(data, StandardCharsets.UTF_8);
    }

    public static void main(String[] none) throws Exception {
        JsonConverter keys = converter(true, true), values = converter(false, true), plain = converter(false, false);
        ExtractNewRecordState<SinkRecord> rows = new ExtractNewRecordState<>();
        rows.configure(Map.of("delete.tombstone.handling.mode", "rewrite-with-tombstone"));
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        HexFormat hex = HexFormat.of();
        for (Scanner lines = new Scanner(System.in); lines.hasNextLine(); ) {
            String[] parts = lines.nextLine().split(" ");
            SchemaAndValue key = keys.toConnectData("topic", hex.parseHex(parts[0]));
            SchemaAndValue value = values.toConnectData("topic", parts[1].equals("-") ? null : hex.parseHex(parts[1]));
            SinkRecord row = rows.apply(
                new SinkRecord("topic", 0, key.schema(), key.value(), value.schema(), value.value(), 0));
            out.println(json(plain, row.keySchema(), row.key()) + "\t" + json(plain, row.valueSchema(), row.value()));
        }
    }
}
