import io.debezium.transforms.ExtractNewRecordState;
import java.util.HexFormat;
import java.util.Map;
import java.util.Scanner;
import org.apache.kafka.connect.data.SchemaAndValue;
import org.apache.kafka.connect.json.JsonConverter;
import org.apache.kafka.connect.sink.SinkRecord;

/** Reads lines of a key and, unless it is null, a value. Writes both as a sink of Kafka Connect gets them, as JSON. */
class Debezium {
    public static void main(String[] none) throws Exception {
        JsonConverter converter = new JsonConverter(), plain = new JsonConverter();
        converter.configure(Map.of("schemas.enable", true), false);
        plain.configure(Map.of("schemas.enable", false), false);
        ExtractNewRecordState<SinkRecord> rows = new ExtractNewRecordState<>();
        rows.configure(Map.of("delete.tombstone.handling.mode", "rewrite-with-tombstone"));
        for (Scanner lines = new Scanner(System.in); lines.hasNextLine(); ) {
            String[] parts = lines.nextLine().split(" ");
            SchemaAndValue[] read = new SchemaAndValue[2];
            for (int at = 0; at < 2; at++)
                read[at] = converter.toConnectData("", at < parts.length ? HexFormat.of().parseHex(parts[at]) : null);
            SinkRecord row = rows.apply(
                new SinkRecord("", 0, read[0].schema(), read[0].value(), read[1].schema(), read[1].value(), 0));
            System.out.writeBytes(plain.fromConnectData("", row.keySchema(), row.key()));
            System.out.write('\t');
            if (row.value() != null)
                System.out.writeBytes(plain.fromConnectData("", row.valueSchema(), row.value()));
            System.out.println();
        }
    }
}
