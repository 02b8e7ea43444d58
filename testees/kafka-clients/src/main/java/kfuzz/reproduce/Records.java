package kfuzz.reproduce;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.utils.internals.BufferSupplier;
import org.apache.kafka.common.utils.internals.CloseableIterator;

/**
 * Reads a file of record batches in the steps of the consumer, with check.crcs on: {@code Records FILE}. In Kafka 3 the
 * same classes are in the packages common.record and common.utils.
 */
final class Records {
    public static void main(String[] args) throws IOException {
        int count = 0;
        try {
            ByteBuffer bytes = ByteBuffer.wrap(Files.readAllBytes(Path.of(args[0])));
            MemoryRecords records = MemoryRecords.readableRecords(bytes);
            for (MutableRecordBatch batch : records.batches()) {
                if (batch.magic() >= RecordBatch.MAGIC_VALUE_V2)
                    batch.ensureValid();
                try (CloseableIterator<Record> stream = batch.streamingIterator(BufferSupplier.create())) {
                    while (stream.hasNext()) {
                        Record record = stream.next();
                        record.ensureValid();
                        System.out.printf("offset %d timestamp %d key %d value %d headers %d%n", record.offset(),
                            record.timestamp(), record.keySize(), record.valueSize(), record.headers().length);
                        count++;
                    }
                }
            }
            System.out.println("records: " + count);
        } catch (KafkaException e) {
            System.out.println("error: " + e);
        }
    }

    private Records() {}
}
