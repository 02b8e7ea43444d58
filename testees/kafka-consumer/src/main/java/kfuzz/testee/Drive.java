package kfuzz.testee;

import com.fasterxml.jackson.core.JsonGenerator;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import com.sun.management.ThreadMXBean;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.StringWriter;
import java.lang.management.ManagementFactory;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Consumers and producers, one after the other, by lines of JSON: a driver, as testees/README.md describes them. */
public final class Drive {
    private static final int LARGEST_HEX_VALUE_BYTES = 64 * 1024;
    // Older versions have no constants for these, and ignore them.
    private static final String BACKOFF_MAX_MS = "retry.backoff.max.ms";
    private static final String GROUP_PROTOCOL = "group.protocol";
    private static final String DELIVERY_TIMEOUT_MS = "delivery.timeout.ms";
    private static final int LARGEST_REQUEST_BYTES = 64 * 1024 * 1024;
    private static final ObjectMapper MAPPER = new ObjectMapper();
    private static final Map<TimestampType, String> TIMESTAMP_TYPES =
            Map.of(
                    TimestampType.NO_TIMESTAMP_TYPE, "none",
                    TimestampType.CREATE_TIME, "create",
                    TimestampType.LOG_APPEND_TIME, "log-append");
    private final ThreadMXBean threads = (ThreadMXBean) ManagementFactory.getThreadMXBean();
    private TopicPartition partition;
    // Whether the group gives the partition to the consumer, which has no position before that.
    private boolean isMember;
    private boolean isSharing;
    private Consumer<byte[], byte[]> consumer;

    private final Newer newer = newer();

    /** What older versions of the library do not have; null with one of these, which is built without it. */
    interface Newer {
        void open(JsonNode line);

        Iterable<ConsumerRecord<byte[], byte[]>> poll(Duration time);

        void commit();

        void close();

        void call(JsonNode line) throws Exception;

        void sendOffset(Producer<byte[], byte[]> producer, String topic, String group);
    }

    private Drive() {}

    private static Newer newer() {
        try {
            return (Newer) Class.forName("kfuzz.testee.NewerCalls").getDeclaredConstructor().newInstance();
        } catch (ReflectiveOperationException error) {
            return null;
        }
    }

    public static void main(String[] arguments) throws IOException {
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        // For the protocol only; a library may print.
        System.setOut(System.err);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        Drive drive = new Drive();
        ObjectNode hello = MAPPER.createObjectNode().put("version", version());
        hello.putArray("produces").add("idempotent").add("transactions").add("sends").add("topics");
        hello.putArray("converses")
                .add("reset").add("group").add("consumer-group").add("abort").add("timeout");
        if (drive.newer != null) {
            ((ArrayNode) hello.get("produces")).add("groups");
            ((ArrayNode) hello.get("converses")).add("share").add("admin");
        }
        out.println(hello);
        out.flush();
        String line = in.readLine();
        while (line != null) {
            out.println(drive.answer(MAPPER.readTree(line)));
            out.flush();
            line = in.readLine();
        }
    }

    private static String version() throws IOException {
        Properties properties = new Properties();
        try (InputStream in = KafkaConsumer.class.getResourceAsStream("/kafka/kafka-version.properties")) {
            properties.load(in);
        }
        return properties.getProperty("version");
    }

    private String answer(JsonNode line) throws IOException {
        StringWriter text = new StringWriter();
        try (JsonGenerator out = MAPPER.createGenerator(text)) {
            out.writeStartObject();
            try {
                done(line, out);
            } catch (Exception | Error error) {
                refused(error, out);
            }
            out.writeEndObject();
        }
        return text.toString();
    }

    private void done(JsonNode line, JsonGenerator out) throws Exception {
        switch (line.get("do").asText()) {
            case "open":
                open(line);
                break;
            case "poll":
                poll(Duration.ofMillis(line.get("timeout_ms").asLong()), out);
                break;
            case "commit":
                if (isSharing) {
                    newer.commit();
                } else {
                    consumer.commitSync(Duration.ofSeconds(5));
                }
                break;
            case "close":
                if (isSharing) {
                    newer.close();
                } else {
                    consumer.close();
                }
                break;
            case "call":
                newer.call(line);
                break;
            default:
                produce(line, out);
        }
    }

    // --- reading

    private void open(JsonNode line) {
        isSharing = line.path("protocol").asText().equals("share");
        if (isSharing) {
            newer.open(line);
            return;
        }
        partition = new TopicPartition(line.get("topic").asText(), 0);
        Map<String, Object> config = new HashMap<>();
        config.put(ConsumerConfig.BOOTSTRAP_SERVERS_CONFIG, line.get("address").asText());
        config.put(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, line.path("reset").asText("none"));
        config.put(ConsumerConfig.ENABLE_AUTO_COMMIT_CONFIG, false);
        config.put(ConsumerConfig.ISOLATION_LEVEL_CONFIG, line.get("isolation").asText());
        config.put(ConsumerConfig.CHECK_CRCS_CONFIG, true);
        config.put(ConsumerConfig.FETCH_MAX_WAIT_MS_CONFIG, line.path("fetch_wait_ms").asInt(1));
        config.put(ConsumerConfig.RETRY_BACKOFF_MS_CONFIG, 1L);
        config.put(BACKOFF_MAX_MS, 1L);
        config.put(ConsumerConfig.KEY_DESERIALIZER_CLASS_CONFIG, ByteArrayDeserializer.class);
        config.put(ConsumerConfig.VALUE_DESERIALIZER_CLASS_CONFIG, ByteArrayDeserializer.class);
        if (line.has("request_timeout_ms")) {
            config.put(ConsumerConfig.REQUEST_TIMEOUT_MS_CONFIG, line.get("request_timeout_ms").asInt());
            config.put(ConsumerConfig.RECONNECT_BACKOFF_MS_CONFIG, 1L);
            config.put(ConsumerConfig.RECONNECT_BACKOFF_MAX_MS_CONFIG, 1L);
        }
        if (line.has("fetch_bytes")) {
            config.put(ConsumerConfig.MAX_PARTITION_FETCH_BYTES_CONFIG, line.get("fetch_bytes").asInt());
        }
        isMember = line.has("group");
        if (isMember) {
            config.put(ConsumerConfig.GROUP_ID_CONFIG, line.get("group").asText());
            config.put(GROUP_PROTOCOL, line.path("protocol").asText("classic"));
            if (!line.path("protocol").asText().equals("consumer")) {
                config.put(ConsumerConfig.HEARTBEAT_INTERVAL_MS_CONFIG, 50);
                if (line.has("session_timeout_ms")) {
                    config.put(ConsumerConfig.SESSION_TIMEOUT_MS_CONFIG, line.get("session_timeout_ms").asInt());
                }
            }
        }
        consumer = new KafkaConsumer<>(config);
        if (isMember) {
            consumer.subscribe(List.of(partition.topic()));
            return;
        }
        consumer.assign(List.of(partition));
        if (!line.has("reset")) {
            consumer.seek(partition, line.get("offset").asLong());
        }
    }

    private void poll(Duration time, JsonGenerator out) throws IOException {
        long before = threads.getCurrentThreadAllocatedBytes();
        try {
            Iterable<ConsumerRecord<byte[], byte[]>> records = isSharing ? newer.poll(time) : consumer.poll(time);
            allocated(before, out);
            out.writeArrayFieldStart("records");
            for (ConsumerRecord<byte[], byte[]> record : records) {
                write(record, out);
            }
            out.writeEndArray();
            if (!isMember && !isSharing) {
                out.writeStringField("position", String.valueOf(consumer.position(partition)));
            }
        } catch (KafkaException error) {
            allocated(before, out);
            if (String.valueOf(error.getMessage()).startsWith("Failed to make progress")) {
                // It wants larger fetches, as for a batch that is cut.
                out.writeStringField("short_at", String.valueOf(consumer.position(partition)));
                failed("rejected", error.toString(), out);
            } else {
                failed("rejected", told(error), out);
            }
        } catch (RuntimeException | Error error) {
            allocated(before, out);
            fault(error, out);
        }
    }

    private void allocated(long before, JsonGenerator out) throws IOException {
        out.writeNumberField("allocated_bytes", threads.getCurrentThreadAllocatedBytes() - before);
    }

    private static void write(ConsumerRecord<byte[], byte[]> record, JsonGenerator out) throws IOException {
        out.writeStartObject();
        out.writeStringField("offset", String.valueOf(record.offset()));
        // A message of magic 0 has no timestamp, but one of magic 1 inside it has.
        boolean isTimeless =
                record.timestampType() == TimestampType.NO_TIMESTAMP_TYPE
                        && record.timestamp() == ConsumerRecord.NO_TIMESTAMP;
        out.writeStringField("timestamp", isTimeless ? null : String.valueOf(record.timestamp()));
        out.writeStringField("timestamp_type", TIMESTAMP_TYPES.get(record.timestampType()));
        out.writeStringField("key", hex(record.key()));
        if (record.value() != null && record.value().length > LARGEST_HEX_VALUE_BYTES) {
            out.writeObjectFieldStart("value");
            out.writeStringField("sha256", digest(record.value()));
            out.writeNumberField("size", record.value().length);
            out.writeEndObject();
        } else {
            out.writeStringField("value", hex(record.value()));
        }
        out.writeArrayFieldStart("headers");
        for (Header header : record.headers()) {
            out.writeStartArray();
            out.writeString(header.key());
            out.writeString(hex(header.value()));
            out.writeEndArray();
        }
        out.writeEndArray();
        out.writeEndObject();
    }

    private static String digest(byte[] data) {
        try {
            return HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(data));
        } catch (NoSuchAlgorithmException error) {
            throw new AssertionError(error);
        }
    }

    private static String hex(byte[] data) {
        return data == null ? null : HexFormat.of().formatHex(data);
    }

    // --- writing

    private void produce(JsonNode line, JsonGenerator out) throws IOException {
        Map<String, Object> config = new HashMap<>();
        config.put(ProducerConfig.BOOTSTRAP_SERVERS_CONFIG, line.get("address").asText());
        config.put(ProducerConfig.COMPRESSION_TYPE_CONFIG, line.get("compression").asText());
        config.put(ProducerConfig.ENABLE_IDEMPOTENCE_CONFIG, line.get("idempotent").asBoolean());
        // Records wait until they are flushed, so that they share batches.
        config.put(ProducerConfig.LINGER_MS_CONFIG, 1000L);
        config.put(ProducerConfig.MAX_REQUEST_SIZE_CONFIG, LARGEST_REQUEST_BYTES);
        config.put(ProducerConfig.RETRY_BACKOFF_MS_CONFIG, 1L);
        config.put(BACKOFF_MAX_MS, 1L);
        config.put(ProducerConfig.MAX_BLOCK_MS_CONFIG, 5000L);
        config.put(ProducerConfig.REQUEST_TIMEOUT_MS_CONFIG, line.path("request_timeout_ms").asInt(3000));
        config.put(DELIVERY_TIMEOUT_MS, 5000);
        String transaction = line.get("transactional_id").textValue();
        if (transaction != null) {
            config.put(ProducerConfig.TRANSACTIONAL_ID_CONFIG, transaction);
        }
        try (Producer<byte[], byte[]> producer =
                new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer())) {
            if (transaction != null) {
                producer.initTransactions();
                if (!line.has("group")) {
                    producer.beginTransaction();
                }
            }
            List<String> offsets = List.of();
            if (line.has("sends")) {
                sendAll(producer, line, out);
            } else {
                JsonNode topic = line.get("topic");
                offsets = wait(producer, started(producer, topic, line, 0, line.get("records").size()));
            }
            if (line.path("abort").asBoolean()) {
                producer.abortTransaction();
            } else if (transaction != null && !line.has("group")) {
                producer.commitTransaction();
            }
            if (!line.has("sends")) {
                write(offsets, out);
            }
        } catch (Exception | Error error) {
            refused(error, out);
        }
    }

    /** Send some records and wait; with a group, in a transaction that also commits an offset of it. */
    private List<String> sent(Producer<byte[], byte[]> producer, JsonNode topic, JsonNode line, int from, int count)
            throws ExecutionException {
        boolean isOfGroup = line.has("group");
        if (isOfGroup) {
            producer.beginTransaction();
        }
        List<String> offsets = wait(producer, started(producer, topic, line, from, count));
        if (isOfGroup) {
            newer.sendOffset(producer, topic.asText(), line.get("group").asText());
            producer.commitTransaction();
        }
        return offsets;
    }

    private void sendAll(Producer<byte[], byte[]> producer, JsonNode line, JsonGenerator out)
            throws IOException {
        boolean isAtOnce = line.path("at_once").asBoolean();
        List<List<Future<RecordMetadata>>> all = new ArrayList<>();
        List<Object> results = new ArrayList<>();
        int from = 0;
        for (int number = 0; number < line.get("sends").size(); number++) {
            int first = from;
            int count = line.get("sends").get(number).asInt();
            JsonNode topic = line.has("topics") ? line.get("topics").get(number) : line.get("topic");
            from += count;
            if (isAtOnce) {
                all.add(started(producer, topic, line, first, count));
            } else {
                results.add(result(() -> sent(producer, topic, line, first, count)));
            }
        }
        for (List<Future<RecordMetadata>> sent : all) {
            results.add(result(() -> wait(producer, sent)));
        }
        out.writeArrayFieldStart("sends");
        for (Object result : results) {
            out.writeStartObject();
            write(result, out);
            out.writeEndObject();
        }
        out.writeEndArray();
    }

    /** The offsets of a send's records when all are acknowledged; otherwise what it throws. */
    private static Object result(Callable<List<String>> send) {
        try {
            return send.call();
        } catch (Exception | Error error) {
            return error;
        }
    }

    private static void write(Object result, JsonGenerator out) throws IOException {
        if (result instanceof Throwable) {
            refused((Throwable) result, out);
        } else {
            out.writeObjectField("offsets", result);
        }
    }

    private static List<Future<RecordMetadata>> started(
            Producer<byte[], byte[]> producer, JsonNode topic, JsonNode line, int from, int count) {
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (int number = from; number < from + count; number++) {
            sent.add(producer.send(record(topic.asText(), line.get("records").get(number))));
        }
        return sent;
    }

    private static List<String> wait(Producer<byte[], byte[]> producer, List<Future<RecordMetadata>> sent)
            throws ExecutionException {
        List<String> offsets = new ArrayList<>();
        producer.flush();
        for (Future<RecordMetadata> one : sent) {
            try {
                offsets.add(String.valueOf(one.get().offset()));
            } catch (InterruptedException error) {
                throw new AssertionError(error);
            }
        }
        return offsets;
    }

    private static ProducerRecord<byte[], byte[]> record(String topic, JsonNode record) {
        List<Header> headers = new ArrayList<>();
        for (JsonNode header : record.get("headers")) {
            headers.add(new RecordHeader(header.get(0).asText(), bytes(header.get(1))));
        }
        JsonNode timestamp = record.get("timestamp");
        return new ProducerRecord<>(
                topic,
                0,
                timestamp == null || timestamp.isNull() ? null : timestamp.asLong(),
                bytes(record.path("key")),
                bytes(record.get("value")),
                headers);
    }

    private static byte[] bytes(JsonNode text) {
        return text.isNull() || text.isMissingNode() ? null : HexFormat.of().parseHex(text.textValue());
    }

    // --- failures

    private static void refused(Throwable error, JsonGenerator out) throws IOException {
        if (error instanceof ExecutionException || error instanceof KafkaException) {
            failed("rejected", told(error), out);
        } else if (error instanceof IllegalArgumentException) {
            // This is how it says that it does not take such a value.
            failed("rejected", error.toString(), out);
        } else {
            fault(error, out);
        }
    }

    private static void failed(String outcome, String error, JsonGenerator out) throws IOException {
        out.writeStringField("outcome", outcome);
        out.writeStringField("error", error.replace('\n', ' '));
    }

    private static void fault(Throwable error, JsonGenerator out) throws IOException {
        failed("fault", error.toString(), out);
        String at = at(error);
        if (at != null) {
            out.writeStringField("at", at);
        }
    }

    /** The exception's cause, if it has one, says what is wrong with the bytes. */
    private static String told(Throwable error) {
        return String.valueOf(error.getCause() == null ? error : error.getCause());
    }

    /** The innermost line of Kafka, such as {@code org/apache/kafka/common/Uuid.java:12}; or null. */
    private static String at(Throwable failure) {
        for (StackTraceElement frame : failure.getStackTrace()) {
            String name = frame.getClassName();
            if (name.startsWith("org.apache.kafka.") && frame.getLineNumber() > 0) {
                String folder = name.substring(0, name.lastIndexOf('.') + 1).replace('.', '/');
                return folder + frame.getFileName() + ":" + frame.getLineNumber();
            }
        }
        return null;
    }
}
