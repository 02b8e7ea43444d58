import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.HexFormat;
import java.util.UUID;
import org.apache.kafka.clients.producer.internals.BuiltInPartitioner;
import org.apache.kafka.common.serialization.IntegerSerializer;
import org.apache.kafka.common.serialization.LongSerializer;
import org.apache.kafka.common.serialization.UUIDSerializer;

/** Reads lines of a type and a value. Writes the key in hex, and its partition for each number of partitions. */
class Partitions {
    public static void main(String[] counts) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        StringBuilder out = new StringBuilder();
        for (String line; (line = lines.readLine()) != null; ) {
            String value = line.substring(line.indexOf(' ') + 1);
            byte[] key = switch (line.charAt(0)) {
                case 'i' -> new IntegerSerializer().serialize("", Integer.parseInt(value));
                case 'l' -> new LongSerializer().serialize("", Long.parseLong(value));
                case 'u' -> new UUIDSerializer().serialize("", UUID.fromString(value));
                default -> HexFormat.of().parseHex(value);
            };
            out.append(HexFormat.of().formatHex(key));
            for (String count : counts)
                out.append(' ').append(BuiltInPartitioner.partitionForKey(key, Integer.parseInt(count)));
            out.append('\n');
        }
        System.out.print(out);
    }
}
