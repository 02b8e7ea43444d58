package kfuzz.broker;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.StreamReadConstraints;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.stream.IntStream;
import java.util.zip.CRC32C;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AdminClientConfig;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.message.FetchRequestData;
import org.apache.kafka.common.message.FetchResponseData;
import org.apache.kafka.common.message.ProduceRequestData;
import org.apache.kafka.common.message.ProduceResponseData;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.requests.AbstractRequest;
import org.apache.kafka.common.requests.AbstractResponse;
import org.apache.kafka.common.requests.FetchRequest;
import org.apache.kafka.common.requests.FetchResponse;
import org.apache.kafka.common.requests.ProduceRequest;
import org.apache.kafka.common.requests.ProduceResponse;
import org.apache.kafka.common.requests.TransactionResult;
import org.apache.kafka.common.requests.WriteTxnMarkersRequest;
import org.apache.kafka.common.requests.WriteTxnMarkersResponse;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Talks to a broker for kfuzz: one JSON request per line on stdin, one answer per line on stdout, in order. Records go
 * into Produce requests and come out of Fetch responses as unchanged bytes.
 *
 * <pre>
 * {"operation": "create-topic", "topic": "t", "partitions": 3, "config": {"max.message.bytes": "1000"}}  → {}
 * {"operation": "produce", "topic": "t", "partition": 0, "hex": "…"}
 *     → {"error": "NONE", "base_offset": "0", "message": "…"}
 * {"operation": "write-marker", "topic": "t", "partition": 0, "producer_id": "4000", "producer_epoch": 3,
 *  "coordinator_epoch": 0, "commit": true, "transaction_version": 0} → {"error": "NONE"}
 * {"operation": "fetch", "topic": "t", "partition": 0, "offset": "0"}
 *     → {"error": "NONE", "hex": "…", "last_stable_offset": "1", "high_watermark": "1"}
 * {"operation": "consume", "topic": "t", "partitions": 3, "isolation": "read_committed"}
 *     → {"partitions": [{"records": "2", "end": "5", "crc32c": "123"}, …]}
 * </pre>
 *
 * <p>If the broker does not answer (it closes the connection, or a timeout expires), the answer is
 * {@code {"failure": "…"}}.
 */
public final class Sender {
    // From version 12 on, Produce adds a batch to its transaction with the coordinator, which we do not want to test.
    private static final short PRODUCE_VERSION = 11;
    private static final short FETCH_VERSION = 12;
    private static final short WRITE_TXN_MARKERS_VERSION = 2;
    private static final short ALL_REPLICAS = -1;
    // Without it, a broker refuses a transactional batch unread. For other batches, the broker ignores it.
    private static final String TRANSACTIONAL_ID = "kfuzz";
    private static final int FETCH_BYTES_MAX = 64 << 20;
    private static final int RETRIES_MAX = 200;
    private static final int RETRY_MS = 50;
    private static final int POLL_MS = 100;

    /** The errors of a new partition until its leader is ready. */
    private static final List<Errors> NOT_READY =
        List.of(Errors.UNKNOWN_TOPIC_OR_PARTITION, Errors.NOT_LEADER_OR_FOLLOWER);

    /** Asks the broker once. Returns the error, and puts the other fields into the answer. */
    private interface Question {
        Errors ask(ObjectNode answer) throws IOException;
    }

    private final ObjectMapper mapper = new ObjectMapper(JsonFactory.builder()
        .streamReadConstraints(StreamReadConstraints.builder().maxStringLength(Integer.MAX_VALUE).build())
        .build());
    private final InetSocketAddress address;
    private final int timeoutMs;
    private BrokerConnection connection;

    private Sender(InetSocketAddress address, int timeoutMs) {
        this.address = address;
        this.timeoutMs = timeoutMs;
    }

    /** Arguments: the port of a broker on this machine, and the timeout for an answer in milliseconds. */
    public static void main(String[] arguments) throws IOException {
        PrintStream out = new PrintStream(new FileOutputStream(FileDescriptor.out), false, StandardCharsets.UTF_8);
        System.setOut(System.err);  // Only answers may go to stdout; a library's prints go to stderr.
        InetSocketAddress address = new InetSocketAddress("127.0.0.1", Integer.parseInt(arguments[0]));
        Sender sender = new Sender(address, Integer.parseInt(arguments[1]));
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            out.print(sender.answer(line) + "\n");
            out.flush();
        }
    }

    private String answer(String line) throws IOException {
        ObjectNode answer = mapper.createObjectNode();
        try {
            JsonNode request = mapper.readTree(line);
            String operation = request.path("operation").asText();
            switch (operation) {
                case "create-topic" -> createTopic(request);
                case "produce" -> whenReady(answer, said -> produce(request, said));
                case "write-marker" -> whenReady(answer, said -> writeMarker(request));
                case "consume" -> consume(request, answer);
                case "fetch" -> whenReady(answer, said -> fetch(request, said));
                default -> throw new IllegalArgumentException("no operation " + operation);
            }
        } catch (Exception e) {
            hangUp();
            answer.removeAll().put("failure", e.toString());
        }
        return mapper.writeValueAsString(answer);
    }

    private void createTopic(JsonNode request) throws Exception {
        NewTopic topic = new NewTopic(
            request.path("topic").asText(), Optional.of(request.path("partitions").asInt()), Optional.empty());
        topic.configs(mapper.convertValue(request.path("config"), mapper.getTypeFactory()
            .constructMapType(Map.class, String.class, String.class)));
        Map<String, Object> settings = Map.of(
            AdminClientConfig.BOOTSTRAP_SERVERS_CONFIG, address.getHostString() + ":" + address.getPort(),
            AdminClientConfig.DEFAULT_API_TIMEOUT_MS_CONFIG, timeoutMs,
            AdminClientConfig.REQUEST_TIMEOUT_MS_CONFIG, timeoutMs);
        try (Admin admin = Admin.create(settings)) {
            admin.createTopics(List.of(topic)).all().get();
        }
    }

    private void whenReady(ObjectNode answer, Question question) throws IOException, InterruptedException {
        Errors error = question.ask(answer);
        for (int retries = 0; NOT_READY.contains(error) && retries < RETRIES_MAX; retries++) {
            Thread.sleep(RETRY_MS);
            error = question.ask(answer);
        }
        answer.put("error", error.name());
    }

    private Errors produce(JsonNode request, ObjectNode answer) throws IOException {
        ProduceRequestData data = new ProduceRequestData()
            .setAcks(ALL_REPLICAS).setTimeoutMs(timeoutMs).setTransactionalId(TRANSACTIONAL_ID);
        data.topicData().add(new ProduceRequestData.TopicProduceData()
            .setName(request.path("topic").asText())
            .setPartitionData(List.of(new ProduceRequestData.PartitionProduceData()
                .setIndex(request.path("partition").asInt())
                .setRecords(MemoryRecords.readableRecords(bytes(request))))));
        ProduceResponse response = (ProduceResponse) ask(new ProduceRequest(data, PRODUCE_VERSION));
        ProduceResponseData.PartitionProduceResponse said =
            response.data().responses().iterator().next().partitionResponses().get(0);
        answer.put("base_offset", Long.toString(said.baseOffset()));
        if (said.errorMessage() != null)
            answer.put("message", said.errorMessage());
        return Errors.forCode(said.errorCode());
    }

    /** Writes a marker like the transaction coordinator, because no producer may send a control batch. */
    private Errors writeMarker(JsonNode request) throws IOException {
        TopicPartition partition =
            new TopicPartition(request.path("topic").asText(), request.path("partition").asInt());
        long producerId = Long.parseLong(request.path("producer_id").asText());
        WriteTxnMarkersRequest.TxnMarkerEntry marker = new WriteTxnMarkersRequest.TxnMarkerEntry(
            producerId,
            (short) request.path("producer_epoch").asInt(),
            request.path("coordinator_epoch").asInt(),
            TransactionResult.forId(request.path("commit").asBoolean()),
            List.of(partition),
            (short) request.path("transaction_version").asInt());
        WriteTxnMarkersResponse response = (WriteTxnMarkersResponse) ask(
            new WriteTxnMarkersRequest.Builder(List.of(marker)).build(WRITE_TXN_MARKERS_VERSION));
        return response.errorsByProducerId().get(producerId).get(partition);
    }

    private Errors fetch(JsonNode request, ObjectNode answer) throws IOException {
        FetchRequestData data = new FetchRequestData().setMaxBytes(FETCH_BYTES_MAX).setMinBytes(0).setMaxWaitMs(0)
            .setTopics(List.of(new FetchRequestData.FetchTopic()
                .setTopic(request.path("topic").asText())
                .setPartitions(List.of(new FetchRequestData.FetchPartition()
                    .setPartition(request.path("partition").asInt())
                    .setFetchOffset(Long.parseLong(request.path("offset").asText()))
                    .setPartitionMaxBytes(FETCH_BYTES_MAX)))));
        FetchResponse response = (FetchResponse) ask(new FetchRequest(data, FETCH_VERSION));
        Errors error = Errors.forCode(response.data().errorCode());
        if (error != Errors.NONE)
            return error;
        FetchResponseData.PartitionData said = response.data().responses().get(0).partitions().get(0);
        ByteBuffer stored = ((MemoryRecords) FetchResponse.recordsOrFail(said)).buffer();
        byte[] bytes = new byte[stored.remaining()];
        stored.get(bytes);
        answer.put("high_watermark", Long.toString(said.highWatermark()));
        answer.put("last_stable_offset", Long.toString(said.lastStableOffset()));
        answer.put("hex", HexFormat.of().formatHex(bytes));
        return Errors.forCode(said.errorCode());
    }

    /**
     * Reads the partitions from their beginning to their end with Kafka's consumer. The answer has for each the number
     * of records, the end offset that this isolation level sees, and the CRC-32C of all contents (see {@link #sum}).
     */
    private void consume(JsonNode request, ObjectNode answer) {
        List<TopicPartition> partitions = IntStream.range(0, request.path("partitions").asInt())
            .mapToObj(partition -> new TopicPartition(request.path("topic").asText(), partition)).toList();
        long[] counts = new long[partitions.size()];
        CRC32C[] sums = partitions.stream().map(partition -> new CRC32C()).toArray(CRC32C[]::new);
        Map<String, Object> settings = Map.of(
            ConsumerConfig.BOOTSTRAP_SERVERS_CONFIG, address.getHostString() + ":" + address.getPort(),
            ConsumerConfig.ISOLATION_LEVEL_CONFIG, request.path("isolation").asText(),
            ConsumerConfig.ENABLE_AUTO_COMMIT_CONFIG, false,
            // Otherwise the broker waits for new records in the partitions that were read first.
            ConsumerConfig.FETCH_MAX_WAIT_MS_CONFIG, POLL_MS / 10);
        ByteArrayDeserializer bytes = new ByteArrayDeserializer();
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings, bytes, bytes)) {
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
            long deadline = System.nanoTime() + Duration.ofMillis(timeoutMs).toNanos();
            while (partitions.stream().anyMatch(partition -> consumer.position(partition) < ends.get(partition))) {
                if (System.nanoTime() > deadline)
                    throw new IllegalStateException("the end was not reached in " + timeoutMs + " ms");
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(POLL_MS))) {
                    counts[record.partition()]++;
                    sum(record, sums[record.partition()]);
                }
            }
            ArrayNode found = answer.putArray("partitions");
            for (TopicPartition partition : partitions)
                found.addObject()
                    .put("records", Long.toString(counts[partition.partition()]))
                    .put("end", Long.toString(ends.get(partition)))
                    .put("crc32c", Long.toString(sums[partition.partition()].getValue()));
        }
    }

    /** Adds offset, timestamp, key, value and headers; each of the last three after its length or count, null as -1. */
    private static void sum(ConsumerRecord<byte[], byte[]> record, CRC32C sum) {
        sum.update(ByteBuffer.allocate(16).putLong(record.offset()).putLong(record.timestamp()).flip());
        sum(record.key(), sum);
        sum(record.value(), sum);
        sum.update(ByteBuffer.allocate(4).putInt(record.headers().toArray().length).flip());
        for (Header header : record.headers()) {
            sum(header.key().getBytes(StandardCharsets.UTF_8), sum);
            sum(header.value(), sum);
        }
    }

    private static void sum(byte[] field, CRC32C sum) {
        sum.update(ByteBuffer.allocate(4).putInt(field == null ? -1 : field.length).flip());
        if (field != null)
            sum.update(field);
    }

    private AbstractResponse ask(AbstractRequest request) throws IOException {
        if (connection == null)
            connection = new BrokerConnection(address, timeoutMs);
        return connection.ask(request);
    }

    /** After a failure, a late answer may still arrive. The next request must not read it, so use a new connection. */
    private void hangUp() throws IOException {
        if (connection != null)
            connection.close();
        connection = null;
    }

    private static ByteBuffer bytes(JsonNode request) {
        return ByteBuffer.wrap(HexFormat.of().parseHex(request.path("hex").asText()));
    }
}
