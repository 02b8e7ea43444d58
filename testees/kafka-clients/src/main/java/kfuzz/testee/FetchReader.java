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
 * Reads the records of a fetch in the same steps as Kafka's consumer (CompletedFetch.nextFetchedRecord, check.crcs on).
 * It checks the CRC of a batch of magic 2 before its records, and the CRC of each legacy message when it gets there.
 * Records are streamed.
 */
final class FetchReader {

    /** The whole batches, their size in bytes, and the error that stopped the reading, or null. */
    record Reading(List<BatchContents> batches, int consumed, Throwable failure) {}

    /** Reuses decompression buffers for the next fetch, like a consumer. */
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

    /** The batches that a broker stored. A batch that Kafka itself cannot read is returned without its records. */
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
        // The consumer does not check the CRC of a legacy wrapper, but it checks the messages inside it.
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
