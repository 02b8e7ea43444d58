import java.nio.ByteBuffer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.utils.internals.BufferSupplier;
import org.apache.kafka.common.utils.internals.CloseableIterator;

/** Reads any bytes as record batches, as a consumer that checks CRCs does. */
public final class FuzzMemoryRecords {
    /** A bug to find, so that a test sees whether the fuzzer gets that far. */
    private static final boolean IS_PLANTED = "1".equals(System.getenv("KFUZZ_PLANTED"));

    public static void fuzzerTestOneInput(byte[] data) {
        try {
            for (MutableRecordBatch batch : MemoryRecords.readableRecords(ByteBuffer.wrap(data)).batches()) {
                batch.ensureValid();
                try (CloseableIterator<Record> records = batch.streamingIterator(BufferSupplier.NO_CACHING)) {
                    records.forEachRemaining(FuzzMemoryRecords::check);
                }
            }
        } catch (KafkaException e) {
            // The input is refused.
        }
    }

    private static void check(Record record) {
        record.ensureValid();
        if (IS_PLANTED && record.timestamp() < 0 && record.headers().length > 0)
            throw new IllegalStateException("planted");
    }

    private FuzzMemoryRecords() {}
}
