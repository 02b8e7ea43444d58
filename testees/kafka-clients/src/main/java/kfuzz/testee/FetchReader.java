package kfuzz.testee;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.record.internal.Records;
import org.apache.kafka.common.utils.internals.BufferSupplier;
import org.apache.kafka.common.utils.internals.CloseableIterator;

/**
 * Reads the records of a fetch in the steps of Kafka's consumer (CompletedFetch.nextFetchedRecord, check.crcs on):
 * the CRC of a batch of magic 2 before its records, the CRC of each legacy message as it is reached, records streamed.
 */
final class FetchReader {

    /** The whole batches read, how far they reach into the bytes, and what stopped the reading, if anything did. */
    record Reading(List<BatchContents> batches, int consumed, Throwable failure) {}

    /** Kept from one fetch to the next, as a consumer keeps it: decompression buffers are reused. */
    private final BufferSupplier buffers = BufferSupplier.create();

    Reading read(byte[] bytes) {
        List<BatchContents> batches = new ArrayList<>();
        int consumed = 0;
        try {
            MemoryRecords records = MemoryRecords.readableRecords(ByteBuffer.wrap(bytes));
            Iterator<MutableRecordBatch> found = records.batches().iterator();
            while (found.hasNext()) {
                MutableRecordBatch batch = found.next();
                batches.add(read(batch));
                consumed += batch.sizeInBytes();
            }
            return new Reading(batches, consumed, null);
        } catch (Throwable failure) {
            return new Reading(batches, consumed, failure);
        }
    }

    /** What a broker stored, each batch without its records where not even Kafka reads them. */
    List<BatchContents> readStored(Records stored) {
        List<BatchContents> batches = new ArrayList<>();
        for (RecordBatch batch : stored.batches()) {
            try {
                batches.add(read(batch));
            } catch (Throwable poison) {
                batches.add(BatchContents.of(batch, null));
            }
        }
        return batches;
    }

    private BatchContents read(RecordBatch batch) {
        // The consumer leaves the CRC of a legacy wrapper alone and checks those of the messages inside it.
        if (batch.magic() >= RecordBatch.MAGIC_VALUE_V2)
            batch.ensureValid();
        List<RecordContents> records = new ArrayList<>();
        try (CloseableIterator<Record> stream = batch.streamingIterator(buffers)) {
            while (stream.hasNext()) {
                Record record = stream.next();
                record.ensureValid();
                records.add(RecordContents.of(record));
            }
        }
        return BatchContents.of(batch, records);
    }
}
