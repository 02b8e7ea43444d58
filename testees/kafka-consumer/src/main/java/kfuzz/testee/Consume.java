package kfuzz.testee;

import com.sun.management.ThreadMXBean;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.lang.management.ManagementFactory;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.time.Duration;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Consumers, one after the other, as standard input says: {@code open ADDRESS TOPIC}, {@code poll MILLISECONDS} and
 * {@code close}. Each line gets a line as the answer.
 *
 * <p>A poll gives the bytes that it has allocated, then records, separated by blanks. In the place of records it may have
 * {@code rejected} and a text, {@code short} with the offset from which the consumer wants larger fetches and a text, or
 * {@code fault} with the library's line and a text. A record has its offset, its timestamp, its key, its value, and then
 * the key and the value of each header, separated by commas. Bytes are in hex; no bytes are {@code null}; for a long
 * value there are {@code @}, its size, a colon and its SHA-256.
 */
public final class Consume {
    private static final int LARGEST_HEX_VALUE_BYTES = 64 * 1024;
    private final ThreadMXBean threads = (ThreadMXBean) ManagementFactory.getThreadMXBean();
    private final OutputStream out;
    private TopicPartition partition;
    private Consumer<byte[], byte[]> consumer;

    private Consume(OutputStream out) {
        this.out = out;
    }

    public static void main(String[] arguments) throws IOException {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        Consume consume = new Consume(System.out);
        System.setOut(System.err);
        String line = in.readLine();
        while (line != null) {
            consume.say(consume.done(line.split(" ")));
            line = in.readLine();
        }
    }

    private void say(String text) throws IOException {
        ByteArrayOutputStream whole = new ByteArrayOutputStream();
        whole.writeBytes(text.replace('\n', ' ').getBytes(StandardCharsets.UTF_8));
        whole.write('\n');
        whole.writeTo(out);
        out.flush();
    }

    private String done(String[] words) {
        switch (words[0]) {
            case "open":
                partition = new TopicPartition(words[2], 0);
                open(words[1]);
                return "";
            case "poll":
                long before = threads.getCurrentThreadAllocatedBytes();
                String found = polled(Duration.ofMillis(Long.parseLong(words[1])));
                return threads.getCurrentThreadAllocatedBytes() - before + " " + found;
            default:
                consumer.close();
                return "";
        }
    }

    private void open(String address) {
        consumer =
                new KafkaConsumer<>(
                        Map.of(
                                ConsumerConfig.BOOTSTRAP_SERVERS_CONFIG, address,
                                ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "none",
                                ConsumerConfig.ENABLE_AUTO_COMMIT_CONFIG, false,
                                ConsumerConfig.CHECK_CRCS_CONFIG, true,
                                ConsumerConfig.FETCH_MAX_WAIT_MS_CONFIG, 1,
                                ConsumerConfig.RETRY_BACKOFF_MS_CONFIG, 1L,
                                ConsumerConfig.RETRY_BACKOFF_MAX_MS_CONFIG, 1L,
                                ConsumerConfig.KEY_DESERIALIZER_CLASS_CONFIG, ByteArrayDeserializer.class,
                                ConsumerConfig.VALUE_DESERIALIZER_CLASS_CONFIG, ByteArrayDeserializer.class));
        consumer.assign(List.of(partition));
        consumer.seek(partition, 0);
    }

    private String polled(Duration time) {
        try {
            StringBuilder text = new StringBuilder();
            for (ConsumerRecord<byte[], byte[]> record : consumer.poll(time)) {
                append(text, record);
            }
            return text.toString();
        } catch (KafkaException error) {
            boolean isShort = String.valueOf(error.getMessage()).startsWith("Failed to make progress");
            return isShort
                    ? "short " + consumer.position(partition) + " " + error
                    : "rejected " + told(error);
        } catch (RuntimeException | Error error) {
            return "fault " + at(error) + " " + error;
        }
    }

    /** The exception's cause, if it has one, says what is wrong with the bytes. */
    private static String told(Throwable error) {
        return String.valueOf(error.getCause() == null ? error : error.getCause());
    }

    /** The innermost line of Kafka, such as {@code org/apache/kafka/common/Uuid.java:12}; or {@code -}. */
    private static String at(Throwable failure) {
        for (StackTraceElement frame : failure.getStackTrace()) {
            String name = frame.getClassName();
            if (name.startsWith("org.apache.kafka.") && frame.getLineNumber() > 0) {
                String folder = name.substring(0, name.lastIndexOf('.') + 1).replace('.', '/');
                return folder + frame.getFileName() + ":" + frame.getLineNumber();
            }
        }
        return "-";
    }

    private static void append(StringBuilder text, ConsumerRecord<byte[], byte[]> record) {
        text.append(text.length() == 0 ? "" : " ").append(record.offset()).append(',');
        // A message of magic 0 has no timestamp, but one of magic 1 inside it has.
        boolean isTimeless =
                record.timestampType() == TimestampType.NO_TIMESTAMP_TYPE
                        && record.timestamp() == ConsumerRecord.NO_TIMESTAMP;
        text.append(isTimeless ? "null" : String.valueOf(record.timestamp()));
        append(text, record.key());
        if (record.value() != null && record.value().length > LARGEST_HEX_VALUE_BYTES) {
            text.append(",@").append(record.value().length).append(':').append(digest(record.value()));
        } else {
            append(text, record.value());
        }
        for (Header header : record.headers()) {
            append(text, header.key().getBytes(StandardCharsets.UTF_8));
            append(text, header.value());
        }
    }

    private static String digest(byte[] data) {
        try {
            return HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(data));
        } catch (NoSuchAlgorithmException error) {
            throw new AssertionError(error);
        }
    }

    private static void append(StringBuilder text, byte[] data) {
        text.append(',').append(data == null ? "null" : HexFormat.of().formatHex(data));
    }
}
