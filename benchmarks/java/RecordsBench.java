import java.io.BufferedReader;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.record.internal.SimpleRecord;
import org.apache.kafka.common.utils.internals.BufferSupplier;
import org.apache.kafka.common.utils.internals.ByteBufferOutputStream;
import org.apache.kafka.common.utils.internals.CloseableIterator;

/**
 * Runs Kafka's own reader and builder. Each line of input gets a line of output. A FILE holds buffers, each after its
 * int32 length.
 *
 * <pre>
 * lap OPERATION CODEC FILE CPU_MS   run passes for CPU_MS; "cpu_ns records", the means of a pass; OPERATION is verdict,
 *                                   eager or encode
 * warm OPERATION CODEC FILE CPU_MS  run passes for CPU_MS; "ok"
 * census OPERATION CODEC FILE       counts of what eager and verdict read, in the order of benchmarks.mixed.Census
 * write OPERATION CODEC FILE OUT    write the batches that encode builds to the file OUT; "ok"
 * </pre>
 */
public final class RecordsBench {
    private static final ThreadMXBean THREADS = ManagementFactory.getThreadMXBean();
    // Like a producer's buffer: the default batch.size, and it grows.
    private static final int FIRST_BUFFER_BYTES = 16 * 1024;

    private final BufferSupplier supplier = BufferSupplier.create();
    private final Map<String, List<ByteBuffer>> files = new HashMap<>();
    private final Map<String, List<List<SimpleRecord>>> values = new HashMap<>();
    /** Collects values that are read, so that the compiler cannot remove the reads. Nothing uses it. */
    private long touched;

    public static void main(String[] arguments) throws IOException {
        RecordsBench bench = new RecordsBench();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            System.out.println(bench.answer(line.split("\t")));
            System.out.flush();
        }
    }

    private String answer(String[] words) throws IOException {
        String operation = words[1];
        CompressionType codec = CompressionType.forName(words[2]);
        String file = words[3];
        switch (words[0]) {
            case "lap": {
                prepare(operation, file);
                // The first pass is not timed, as in benchmarks.measure.
                pass(operation, codec, file);
                long least = Long.parseLong(words[4]) * 1_000_000;
                long start = THREADS.getCurrentThreadCpuTime();
                long elapsed = 0;
                long records = 0;
                long passes = 0;
                for (; elapsed < least; passes++) {
                    records += pass(operation, codec, file);
                    elapsed = THREADS.getCurrentThreadCpuTime() - start;
                }
                return elapsed / passes + " " + (records % passes == 0 ? records / passes : -1);
            }
            case "warm": {
                prepare(operation, file);
                long end = THREADS.getCurrentThreadCpuTime() + Long.parseLong(words[4]) * 1_000_000;
                do
                    pass(operation, codec, file);
                while (THREADS.getCurrentThreadCpuTime() < end);
                return "ok";
            }
            case "census":
                return census(file);
            case "write":
                write(codec, file, Path.of(words[4]));
                return "ok";
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    private void prepare(String operation, String file) throws IOException {
        if (operation.equals("encode"))
            values(file);
        else
            buffers(file);
    }

    private long pass(String operation, CompressionType codec, String file) throws IOException {
        long records = 0;
        switch (operation) {
            case "verdict":
                for (ByteBuffer buffer : buffers(file))
                    records += verdict(buffer);
                break;
            case "eager":
                for (ByteBuffer buffer : buffers(file))
                    records += eager(buffer);
                break;
            case "encode":
                for (List<SimpleRecord> batch : values(file)) {
                    touched += build(codec, batch).remaining();
                    records += batch.size();
                }
                break;
            default:
                throw new IllegalArgumentException(operation);
        }
        return records;
    }

    /** Like a consumer: check the CRC first, then stream the records. */
    private long verdict(ByteBuffer buffer) {
        long records = 0;
        for (MutableRecordBatch batch : MemoryRecords.readableRecords(buffer.duplicate()).batches()) {
            batch.ensureValid();
            try (CloseableIterator<Record> stream = batch.streamingIterator(supplier)) {
                while (stream.hasNext()) {
                    touched += stream.next().offset();
                    records++;
                }
            }
        }
        return records;
    }

    private long eager(ByteBuffer buffer) {
        long records = 0;
        for (MutableRecordBatch batch : MemoryRecords.readableRecords(buffer.duplicate()).batches()) {
            batch.ensureValid();
            try (CloseableIterator<Record> stream = batch.streamingIterator(supplier)) {
                while (stream.hasNext()) {
                    Record record = stream.next();
                    byte[] key = bytes(record.key());
                    byte[] value = bytes(record.value());
                    touched += (key == null ? 0 : key.length) + (value == null ? 0 : value.length);
                    touched += record.headers().length;
                    records++;
                }
            }
        }
        return records;
    }

    private String census(String file) throws IOException {
        long[] counts = new long[7];
        for (List<SimpleRecord> batch : values(file)) {
            for (SimpleRecord record : batch) {
                counts[0]++;
                counts[1] += record.key() == null ? 1 : 0;
                counts[2] += record.key() == null ? 0 : record.key().remaining();
                counts[3] += record.value() == null ? 1 : 0;
                counts[4] += record.value() == null ? 0 : record.value().remaining();
                for (Header header : record.headers()) {
                    counts[5]++;
                    counts[6] += header.key().length() + (header.value() == null ? 0 : header.value().length);
                }
            }
        }
        StringBuilder line = new StringBuilder();
        for (long count : counts)
            line.append(line.length() == 0 ? "" : " ").append(count);
        return line.toString();
    }

    private void write(CompressionType codec, String file, Path out) throws IOException {
        try (DataOutputStream stream = new DataOutputStream(Files.newOutputStream(out))) {
            for (List<SimpleRecord> batch : values(file)) {
                ByteBuffer built = build(codec, batch);
                stream.writeInt(built.remaining());
                stream.write(built.array(), built.arrayOffset() + built.position(), built.remaining());
            }
        }
    }

    private static ByteBuffer build(CompressionType codec, List<SimpleRecord> batch) {
        try (MemoryRecordsBuilder builder = new MemoryRecordsBuilder(new ByteBufferOutputStream(FIRST_BUFFER_BYTES),
            RecordBatch.CURRENT_MAGIC_VALUE, Compression.of(codec).build(), TimestampType.CREATE_TIME, 0L,
            RecordBatch.NO_TIMESTAMP, RecordBatch.NO_PRODUCER_ID, RecordBatch.NO_PRODUCER_EPOCH,
            RecordBatch.NO_SEQUENCE, false, false, 0, Integer.MAX_VALUE, RecordBatch.NO_TIMESTAMP)) {
            for (SimpleRecord record : batch)
                builder.append(record);
            return builder.build().buffer();
        }
    }

    private List<ByteBuffer> buffers(String file) throws IOException {
        List<ByteBuffer> read = files.get(file);
        if (read != null)
            return read;
        read = new ArrayList<>();
        try (DataInputStream stream = new DataInputStream(Files.newInputStream(Path.of(file)))) {
            while (stream.available() > 0) {
                byte[] bytes = new byte[stream.readInt()];
                stream.readFully(bytes);
                read.add(ByteBuffer.wrap(bytes));
            }
        }
        files.put(file, read);
        return read;
    }

    /** The records of each batch as a producer has them. */
    private List<List<SimpleRecord>> values(String file) throws IOException {
        List<List<SimpleRecord>> read = values.get(file);
        if (read != null)
            return read;
        read = new ArrayList<>();
        for (ByteBuffer buffer : buffers(file)) {
            for (MutableRecordBatch batch : MemoryRecords.readableRecords(buffer.duplicate()).batches()) {
                batch.ensureValid();
                List<SimpleRecord> records = new ArrayList<>();
                for (Record record : batch)
                    records.add(
                        new SimpleRecord(record.timestamp(), bytes(record.key()), bytes(record.value()),
                            record.headers()));
                read.add(records);
            }
        }
        values.put(file, read);
        return read;
    }

    private static byte[] bytes(ByteBuffer buffer) {
        if (buffer == null)
            return null;
        byte[] bytes = new byte[buffer.remaining()];
        buffer.get(bytes);
        return bytes;
    }
}
