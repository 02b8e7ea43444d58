import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.common.compress.Compression;
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
 * Runs Kafka's own reader and builder: {@code RecordsBench OPERATION CODEC}; OPERATION is verdict, eager or encode.
 *
 * <p>Input begins with the number of fetches, and each fetch after its length. Then each request is a number. Of -1 the
 * answer is the census: the number of batches that are built from the records of the fetches, and each batch after its
 * length. Of any other number it is a lap of at least as many CPU milliseconds: the mean of the passes' CPU time in ns,
 * and how many records a pass has. All lengths, numbers of things and requests are int32; the answer to a lap is int64.
 */
public final class RecordsBench {
    private static final ThreadMXBean THREADS = ManagementFactory.getThreadMXBean();
    // Like a producer's buffer: the default batch.size, and it grows.
    private static final int FIRST_BUFFER_BYTES = 16 * 1024;
    private static final int CENSUS = -1;

    private final String operation;
    private final CompressionType codec;
    private final List<ByteBuffer> fetches = new ArrayList<>();
    /** The records of each batch as a producer has them. */
    private final List<List<SimpleRecord>> values = new ArrayList<>();
    private final BufferSupplier supplier = BufferSupplier.create();
    /** Collects values that are read, so that the compiler cannot remove the reads. Nothing uses it. */
    private long touched;

    public static void main(String[] arguments) throws IOException {
        DataInputStream in = new DataInputStream(new BufferedInputStream(System.in));
        DataOutputStream out = new DataOutputStream(new BufferedOutputStream(System.out));
        RecordsBench bench = new RecordsBench(arguments[0], CompressionType.forName(arguments[1]), in);
        while (true) {
            int request;
            try {
                request = in.readInt();
            } catch (EOFException end) {
                return;
            }
            if (request == CENSUS)
                bench.census(out);
            else
                bench.lap(out, request * 1_000_000L);
            out.flush();
        }
    }

    private RecordsBench(String operation, CompressionType codec, DataInputStream in) throws IOException {
        this.operation = operation;
        this.codec = codec;
        for (int left = in.readInt(); left > 0; left--) {
            byte[] bytes = new byte[in.readInt()];
            in.readFully(bytes);
            fetches.add(ByteBuffer.wrap(bytes));
        }
    }

    private void census(DataOutputStream out) throws IOException {
        List<List<SimpleRecord>> batches = values();
        out.writeInt(batches.size());
        for (List<SimpleRecord> batch : batches) {
            ByteBuffer built = build(batch);
            out.writeInt(built.remaining());
            out.write(built.array(), built.arrayOffset() + built.position(), built.remaining());
        }
    }

    private void lap(DataOutputStream out, long least) throws IOException {
        // The first pass is not timed, as in benchmarks.measure.
        pass();
        long start = THREADS.getCurrentThreadCpuTime();
        long elapsed = 0;
        long records = 0;
        long passes = 0;
        for (; elapsed < least; passes++) {
            records += pass();
            elapsed = THREADS.getCurrentThreadCpuTime() - start;
        }
        out.writeLong(elapsed / passes);
        out.writeLong(records % passes == 0 ? records / passes : -1);
    }

    private long pass() {
        long records = 0;
        switch (operation) {
            case "verdict":
                for (ByteBuffer fetch : fetches)
                    records += verdict(fetch);
                break;
            case "eager":
                for (ByteBuffer fetch : fetches)
                    records += eager(fetch);
                break;
            default:
                for (List<SimpleRecord> batch : values()) {
                    touched += build(batch).remaining();
                    records += batch.size();
                }
                break;
        }
        return records;
    }

    /** Like a consumer: check the CRC first, then stream the records. */
    private long verdict(ByteBuffer fetch) {
        long records = 0;
        for (MutableRecordBatch batch : MemoryRecords.readableRecords(fetch.duplicate()).batches()) {
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

    private long eager(ByteBuffer fetch) {
        long records = 0;
        for (MutableRecordBatch batch : MemoryRecords.readableRecords(fetch.duplicate()).batches()) {
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

    private List<List<SimpleRecord>> values() {
        if (!values.isEmpty())
            return values;
        for (ByteBuffer fetch : fetches) {
            for (MutableRecordBatch batch : MemoryRecords.readableRecords(fetch.duplicate()).batches()) {
                batch.ensureValid();
                List<SimpleRecord> records = new ArrayList<>();
                for (Record record : batch)
                    records.add(
                        new SimpleRecord(record.timestamp(), bytes(record.key()), bytes(record.value()),
                            record.headers()));
                values.add(records);
            }
        }
        return values;
    }

    private ByteBuffer build(List<SimpleRecord> batch) {
        try (MemoryRecordsBuilder builder = new MemoryRecordsBuilder(new ByteBufferOutputStream(FIRST_BUFFER_BYTES),
            RecordBatch.CURRENT_MAGIC_VALUE, Compression.of(codec).build(), TimestampType.CREATE_TIME, 0L,
            RecordBatch.NO_TIMESTAMP, RecordBatch.NO_PRODUCER_ID, RecordBatch.NO_PRODUCER_EPOCH,
            RecordBatch.NO_SEQUENCE, false, false, 0, Integer.MAX_VALUE, RecordBatch.NO_TIMESTAMP)) {
            for (SimpleRecord record : batch)
                builder.append(record);
            return builder.build().buffer();
        }
    }

    private static byte[] bytes(ByteBuffer buffer) {
        if (buffer == null)
            return null;
        byte[] bytes = new byte[buffer.remaining()];
        buffer.get(bytes);
        return bytes;
    }
}
