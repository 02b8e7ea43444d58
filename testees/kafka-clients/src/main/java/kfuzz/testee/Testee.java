package kfuzz.testee;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonGenerator;
import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.core.StreamReadConstraints;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.sun.management.ThreadMXBean;
import java.io.BufferedReader;
import java.io.BufferedOutputStream;
import java.io.ByteArrayOutputStream;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.function.Supplier;
import java.util.function.Function;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.utils.internals.AppInfoParser;

/**
 * Apache Kafka's client library as a testee. It speaks kfuzz-testee/1: one JSON request per line on stdin, one answer
 * per line on stdout, in order. It ends only at the end of its input.
 */
public final class Testee {
    private static final int LARGEST_KEPT_ANSWER_BYTES = 1 << 20;
    private static final int STREAM_BUFFER_BYTES = 1 << 16;
    /** How the names of the classes begin whose lines explain a fault: Kafka's, and those of the codecs. */
    private static final List<String> LIBRARIES = List.of(
        "org.apache.kafka.", "net.jpountz.", "org.xerial.snappy.", "com.github.luben.zstd.");

    /** Writes fields of an answer into the JSON object that the caller has opened. */
    private interface Fields {
        void writeTo(JsonGenerator json) throws IOException;
    }

    private final ObjectMapper mapper = new ObjectMapper(JsonFactory.builder()
        .streamReadConstraints(StreamReadConstraints.builder().maxStringLength(Integer.MAX_VALUE).build())
        .build());
    private final ThreadMXBean threads = (ThreadMXBean) ManagementFactory.getThreadMXBean();
    private final FetchReader reader = new FetchReader();
    private ProduceReader producer;
    private SegmentReader segment;
    private final MessageTypes messages = new MessageTypes();
    private final RecordTools tools = new RecordTools();
    private ByteArrayOutputStream answer = new ByteArrayOutputStream();

    private Testee() {}

    public static void main(String[] arguments) throws IOException {
        InputStreamReader text = new InputStreamReader(System.in, StandardCharsets.UTF_8);
        OutputStream stdout = new FileOutputStream(FileDescriptor.out);
        System.setOut(System.err);  // Only the protocol may write to stdout; a library's prints go to stderr.
        try (BufferedReader in = new BufferedReader(text, STREAM_BUFFER_BYTES);
             OutputStream out = new BufferedOutputStream(stdout, STREAM_BUFFER_BYTES)) {
            new Testee().serve(in, out);
        }
    }

    private void serve(BufferedReader in, OutputStream out) throws IOException {
        sayHello(out);
        out.flush();
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            answer(line);
            answer.writeTo(out);
            if (answer.size() > LARGEST_KEPT_ANSWER_BYTES)
                answer = new ByteArrayOutputStream();
            if (!in.ready())  // If more requests wait, their answers can share a write.
                out.flush();
        }
    }

    private void sayHello(OutputStream out) throws IOException {
        write(json -> {
            json.writeStringField("protocol", "kfuzz-testee/1");
            json.writeStringField("name", "kafka-clients");
            json.writeStringField("version", AppInfoParser.getVersion());
            json.writeStringField("language", "java");
            writeStrings(json, "operations", "decode-records", "encode-records", "decode-stream",
                "append-stream", "decode-message", "encode-message", "decode-primitive", "encode-primitive");
            writeStrings(json, "roles", "consumer", "broker", "log");
            json.writeFieldName("magic");
            json.writeArray(new int[] {0, 1, 2}, 0, 3);
            writeStrings(json, "codecs", "none", "gzip", "snappy", "lz4", "zstd");
            json.writeBooleanField("checks_crc", true);
            json.writeStringField("control", "shown");
            json.writeFieldName("messages");
            MessageTypes.writeVersions(json);
            writeStrings(json, "primitives", PrimitiveType.names());
        });
        answer.writeTo(out);
    }

    /** Puts a complete answer into {@link #answer}, because a partial line would break all answers after it. */
    private void answer(String line) throws IOException {
        JsonNode id = null;
        try {
            JsonNode request = mapper.readTree(line);
            if (!request.isObject())
                throw new BadRequestException("a request is a JSON object");
            id = request.get("id");
            answer(id, request);
        } catch (UnsupportedRequestException e) {
            writeFailure(id, "unsupported", e.getMessage());
        } catch (JsonProcessingException e) {
            writeFailure(id, "fault", new BadRequestException("not JSON: " + e.getOriginalMessage()));
        } catch (Throwable e) {
            writeFailure(id, "fault", e);
        }
    }

    private void answer(JsonNode id, JsonNode request) throws IOException {
        String operation = Json.text(request.get("operation"), "operation");
        switch (operation) {
            case "decode-records" -> decodeRecords(id, request);
            case "encode-records" -> encodeRecords(id, request);
            case "decode-stream" -> decodeStream(id, request);
            case "append-stream" -> appendStream(id, request);
            case "decode-message" -> decodeMessage(id, request);
            case "encode-message" -> encodeMessage(id, request);
            case "decode-primitive" -> decodePrimitive(id, request);
            case "encode-primitive" -> encodePrimitive(id, request);
            case "convert-message" -> convertMessage(id, request);
            case "every-field" -> everyField(id, request);
            case "convert-records" -> useTool(id, request, tools::convert);
            case "header-versions" -> useTool(id, request, MessageTypes::headerVersions);
            case "filter-records" -> useTool(id, request, tools::filter);
            case "control-records" -> useTool(id, request, VersionedTools::control);
            default -> throw new UnsupportedRequestException("operation " + operation);
        }
    }

    /** The result of a role for the bytes. {@code stored} is null unless a broker accepted them. */
    private record Verdict(List<BatchContents> batches, int consumed, byte[] stored, Throwable failure) {}

    private void decodeRecords(JsonNode id, JsonNode request) throws IOException {
        byte[] bytes = bytes(request);
        String role = Json.text(request, "role", "consumer");
        Supplier<Verdict> judge = judge(role, bytes, request);
        long allocatedBefore = threads.getCurrentThreadAllocatedBytes();
        Verdict verdict = judge.get();
        long allocatedBytes = threads.getCurrentThreadAllocatedBytes() - allocatedBefore;
        write(json -> {
            json.writeObjectField("id", id);
            json.writeStringField("outcome", outcome(verdict.failure()));
            if (verdict.failure() != null)
                writeError(json, verdict.failure());
            else
                json.writeNumberField("consumed", verdict.consumed());
            json.writeNumberField("allocated_bytes", allocatedBytes);
            if (verdict.failure() == null || !verdict.batches().isEmpty()) {
                json.writeArrayFieldStart("batches");
                for (BatchContents batch : verdict.batches())
                    batch.writeTo(json);
                json.writeEndArray();
            }
            if (verdict.stored() != null)
                json.writeStringField("hex", HexFormat.of().formatHex(verdict.stored()));
        });
    }

    /** Creates brokers and segments on first use: they load classes and create folders that most runs do not need. */
    private Supplier<Verdict> judge(String role, byte[] bytes, JsonNode request) {
        switch (role) {
            case "consumer" -> {
                return () -> consume(bytes);
            }
            case "broker" -> {
                Topic topic = Topic.of(Json.object(request, "topic"));
                producer = producer == null ? new ProduceReader() : producer;
                return () -> append(bytes, topic);
            }
            case "log" -> {
                segment = segment == null ? new SegmentReader(reader) : segment;
                return () -> recover(bytes);
            }
            default -> throw new UnsupportedRequestException("role " + role);
        }
    }

    private Verdict consume(byte[] bytes) {
        FetchReader.Reading reading = reader.read(bytes);
        return new Verdict(reading.batches(), reading.consumed(), null, reading.failure());
    }

    private Verdict append(byte[] bytes, Topic topic) {
        ProduceReader.Append append = producer.append(bytes, topic);
        List<BatchContents> batches = append.stored() == null
            ? List.of() : reader.readStored(MemoryRecords.readableRecords(ByteBuffer.wrap(append.stored())));
        return new Verdict(batches, append.consumed(), append.stored(), append.failure());
    }

    private Verdict recover(byte[] bytes) {
        SegmentReader.Recovery recovery = segment.recover(bytes);
        return new Verdict(recovery.batches(), recovery.kept(), null, recovery.failure());
    }

    private void encodeRecords(JsonNode id, JsonNode request) throws IOException {
        List<BatchContents> batches = new ArrayList<>();
        for (JsonNode batch : Json.array(request, "batches"))
            batches.add(BatchContents.of(batch));
        byte[] bytes;
        try {
            bytes = BatchWriter.write(batches);
        } catch (KafkaException | IllegalArgumentException e) {  // The builder checks its arguments with the latter.
            writeFailure(id, "rejected", e);
            return;
        }
        writeEncoded(id, bytes);
    }

    private void writeEncoded(JsonNode id, byte[] bytes) throws IOException {
        write(json -> {
            json.writeObjectField("id", id);
            json.writeStringField("outcome", "accepted");
            json.writeStringField("hex", HexFormat.of().formatHex(bytes));
        });
    }

    private void decodeStream(JsonNode id, JsonNode request) throws IOException {
        StreamReader.Reading reading = StreamReader.read(request);
        write(json -> {
            json.writeObjectField("id", id);
            json.writeStringField("outcome", outcome(reading.failure()));
            if (reading.failure() != null)
                writeError(json, reading.failure());
            reading.writeTo(json);
        });
    }

    private void appendStream(JsonNode id, JsonNode request) throws IOException {
        List<StreamReader.Step> steps = StreamReader.append(request);
        write(json -> {
            json.writeObjectField("id", id);
            json.writeStringField("outcome", "accepted");
            json.writeArrayFieldStart("steps");
            for (StreamReader.Step step : steps)
                step.writeTo(json);
            json.writeEndArray();
        });
    }

    private void decodeMessage(JsonNode id, JsonNode request) throws IOException {
        MessageType type = messages.of(request);
        short version = type.version(request);
        byte[] bytes = bytes(request);
        Message message = type.empty();  // Create it first: memory that reflection allocates is not Kafka's.
        long allocatedBefore = threads.getCurrentThreadAllocatedBytes();
        MessageType.Reading reading = MessageType.decode(message, bytes, version);
        long allocatedBytes = threads.getCurrentThreadAllocatedBytes() - allocatedBefore;
        write(json -> {
            json.writeObjectField("id", id);
            json.writeStringField("outcome", outcome(reading));
            if (reading.failure() != null)
                writeError(json, reading.failure());
            json.writeNumberField("allocated_bytes", allocatedBytes);
            if (reading.failure() == null) {
                json.writeNumberField("consumed", reading.consumed());
                json.writeFieldName("message");
                type.writeJson(json, reading.message(), version);
            }
        });
    }

    private static String outcome(MessageType.Reading reading) {
        if (reading.failure() == null)
            return "accepted";
        return MessageType.isRefusalToRead(reading.failure()) ? "rejected" : "fault";
    }

    private void encodeMessage(JsonNode id, JsonNode request) throws IOException {
        MessageType type = messages.of(request);
        short version = type.version(request);
        if (!request.path("body").isObject())
            throw new BadRequestException("body must be an object, not " + request.get("body"));
        byte[] bytes;
        try {
            bytes = type.encode(request.get("body"), version);
        } catch (RuntimeException e) {
            writeFailure(id, MessageType.isRefusalToWrite(e) ? "rejected" : "fault", e);
            return;
        }
        writeEncoded(id, bytes);
    }

    private void decodePrimitive(JsonNode id, JsonNode request) throws IOException {
        PrimitiveType type = PrimitiveType.of(request);
        ByteBuffer buffer = ByteBuffer.wrap(bytes(request));
        long allocatedBefore = threads.getCurrentThreadAllocatedBytes();
        Object value;
        try {
            value = type.decode(buffer);
        } catch (Throwable e) {
            writeFailure(id, PrimitiveType.isRefusal(e) ? "rejected" : "fault", e);
            return;
        }
        long allocatedBytes = threads.getCurrentThreadAllocatedBytes() - allocatedBefore;
        write(json -> {
            json.writeObjectField("id", id);
            json.writeStringField("outcome", "accepted");
            json.writeNumberField("allocated_bytes", allocatedBytes);
            json.writeNumberField("consumed", buffer.position());
            json.writeFieldName("value");
            type.writeJson(json, value);
        });
    }

    private void encodePrimitive(JsonNode id, JsonNode request) throws IOException {
        PrimitiveType type = PrimitiveType.of(request);
        if (!request.has("value"))
            throw new BadRequestException("value is missing");
        byte[] bytes;
        try {
            bytes = type.encode(request.get("value"));
        } catch (RuntimeException e) {
            writeFailure(id, PrimitiveType.isRefusal(e) ? "rejected" : "fault", e);
            return;
        }
        writeEncoded(id, bytes);
    }

    /** A tool for kfuzz's own tests, like those below: the JSON of a message by Kafka's own converter. */
    private void convertMessage(JsonNode id, JsonNode request) throws IOException {
        MessageType type = messages.of(request);
        short version = type.version(request);
        MessageType.Reading reading = MessageType.decode(type.empty(), bytes(request), version);
        if (reading.failure() != null) {
            writeFailure(id, outcome(reading), reading.failure());
            return;
        }
        JsonNode converted = type.converted(reading.message(), version);
        write(json -> {
            json.writeObjectField("id", id);
            json.writeStringField("outcome", "accepted");
            json.writeObjectField("message", converted);
        });
    }

    /** The fields of all versions as the getters have them, after an object that held other values has read the bytes. */
    private void everyField(JsonNode id, JsonNode request) throws IOException {
        MessageType type = messages.of(request);
        Message message = type.empty();
        JsonNode before = Json.object(request, "before");
        for (JsonNode read : List.of(before, request)) {
            MessageType.Reading reading = MessageType.decode(message, bytes(read), type.version(read));
            if (reading.failure() != null) {
                writeFailure(id, outcome(reading), reading.failure());
                return;
            }
        }
        write(json -> {
            json.writeObjectField("id", id);
            json.writeStringField("outcome", "accepted");
            json.writeFieldName("message");
            type.writeJson(json, message, StructType.EVERY_VERSION);
        });
    }

    private static byte[] bytes(JsonNode request) {
        byte[] bytes = Json.hex(request.get("hex"), "hex");
        if (bytes == null)
            throw new BadRequestException("hex is missing");
        return bytes;
    }

    /** Runs a tool for kfuzz's own tests. The handshake does not list these tools. */
    private void useTool(JsonNode id, JsonNode request, Function<JsonNode, RecordTools.Fields> tool)
        throws IOException {
        RecordTools.Fields fields;
        try {
            fields = tool.apply(request);
        } catch (UnsupportedRequestException e) {
            throw e;
        } catch (RuntimeException e) {
            writeFailure(id, RecordTools.isRefusal(e) ? "rejected" : "fault", e);
            return;
        }
        write(json -> {
            json.writeObjectField("id", id);
            json.writeStringField("outcome", "accepted");
            fields.writeTo(json);
        });
    }

    /** A consumer reports bad input by a KafkaException. Any other exception is a fault. */
    private static String outcome(Throwable failure) {
        if (failure == null)
            return "accepted";
        return failure instanceof KafkaException ? "rejected" : "fault";
    }

    /** Class, message and direct cause of a failure, on one line. */
    private static String describe(Throwable failure) {
        String text = nameAndMessage(failure);
        if (failure.getCause() != null)
            text += " (" + nameAndMessage(failure.getCause()) + ")";
        return text.replaceAll("\\s*\\R\\s*", " ");
    }

    private static String nameAndMessage(Throwable failure) {
        String name = failure.getClass().getSimpleName();
        return failure.getMessage() == null ? name : name + ": " + failure.getMessage();
    }

    /** The innermost line of Kafka or of a codec, such as {@code org/apache/kafka/common/Uuid.java:12}; or null. */
    private static String at(Throwable failure) {
        for (StackTraceElement frame : failure.getStackTrace()) {
            String name = frame.getClassName();
            if (LIBRARIES.stream().anyMatch(name::startsWith) && frame.getLineNumber() > 0)
                return name.substring(0, name.lastIndexOf('.') + 1).replace('.', '/') + frame.getFileName() + ":"
                    + frame.getLineNumber();
        }
        return null;
    }

    private static void writeError(JsonGenerator json, Throwable failure) throws IOException {
        json.writeStringField("error", describe(failure));
        String at = at(failure);
        if (at != null)
            json.writeStringField("at", at);
    }

    private void writeFailure(JsonNode id, String outcome, Throwable failure) throws IOException {
        write(json -> {
            json.writeObjectField("id", id);
            json.writeStringField("outcome", outcome);
            writeError(json, failure);
        });
    }

    private void writeFailure(JsonNode id, String outcome, String error) throws IOException {
        write(json -> {
            json.writeObjectField("id", id);
            json.writeStringField("outcome", outcome);
            json.writeStringField("error", error);
        });
    }

    private void write(Fields fields) throws IOException {
        answer.reset();
        try (JsonGenerator json = mapper.createGenerator(answer)) {
            json.writeStartObject();
            fields.writeTo(json);
            json.writeEndObject();
        }
        answer.write('\n');
    }

    private static void writeStrings(JsonGenerator json, String field, String... values) throws IOException {
        json.writeFieldName(field);
        json.writeArray(values, 0, values.length);
    }
}
