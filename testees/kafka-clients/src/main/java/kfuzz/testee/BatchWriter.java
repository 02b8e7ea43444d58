package kfuzz.testee;

import java.io.ByteArrayOutputStream;
import java.nio.ByteBuffer;
import java.util.List;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.DefaultRecordBatch;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.record.internal.SimpleRecord;
import org.apache.kafka.common.utils.internals.ByteBufferOutputStream;

/**
 * Writes batches with Kafka's own MemoryRecordsBuilder, exactly as requested. Throws UnsupportedRequestException with a
 * reason for a batch that the builder cannot express. If the builder refuses a batch, its own exception is thrown.
 */
final class BatchWriter {
    private static final int FIRST_BUFFER_BYTES = 1024;

    private BatchWriter() {}

    static byte[] write(List<BatchContents> batches) {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        for (BatchContents batch : batches) {
            requireExpressible(batch);
            ByteBuffer written = batch.records().isEmpty() ? writeEmpty(batch) : write(batch);
            bytes.write(written.array(), written.arrayOffset() + written.position(), written.remaining());
        }
        return bytes.toByteArray();
    }

    private static ByteBuffer write(BatchContents batch) {
        boolean logAppend = batch.timestampType() == TimestampType.LOG_APPEND_TIME;
        long logAppendTimeMs = logAppend ? batch.records().get(0).timestamp() : RecordBatch.NO_TIMESTAMP;
        long deleteHorizonMs = batch.deleteHorizonMs() == null ? RecordBatch.NO_TIMESTAMP : batch.deleteHorizonMs();
        try (MemoryRecordsBuilder builder = new MemoryRecordsBuilder(new ByteBufferOutputStream(FIRST_BUFFER_BYTES),
            batch.magic(), Compression.of(CompressionType.forName(batch.compression())).build(), batch.timestampType(),
            batch.baseOffset(), logAppendTimeMs, batch.producerId(), batch.producerEpoch(), batch.baseSequence(),
            batch.transactional(), batch.control(), batch.partitionLeaderEpoch(), Integer.MAX_VALUE, deleteHorizonMs)) {
            for (RecordContents record : batch.records())
                append(builder, record);
            if (batch.lastOffset() != lastRecordOffset(batch))
                builder.overrideLastOffset(batch.lastOffset());
            return builder.build().buffer();
        }
    }

    private static void append(MemoryRecordsBuilder builder, RecordContents contents) {
        long timestamp = contents.timestamp() == null ? RecordBatch.NO_TIMESTAMP : contents.timestamp();
        SimpleRecord record = new SimpleRecord(timestamp, contents.key(), contents.value(), contents.headers());
        if (builder.isControlBatch())
            builder.appendControlRecordWithOffset(contents.offset(), record);
        else
            builder.appendWithOffset(contents.offset(), record);
    }

    /** Writes what the log cleaner keeps of a batch without records. The builder itself would write nothing. */
    private static ByteBuffer writeEmpty(BatchContents batch) {
        ByteBuffer bytes = ByteBuffer.allocate(DefaultRecordBatch.RECORD_BATCH_OVERHEAD);
        DefaultRecordBatch.writeEmptyHeader(bytes, batch.magic(), batch.producerId(), batch.producerEpoch(),
            batch.baseSequence(), batch.baseOffset(), batch.lastOffset(), batch.partitionLeaderEpoch(),
            batch.timestampType(), RecordBatch.NO_TIMESTAMP, batch.transactional(), batch.control());
        return bytes.flip();
    }

    /** Refuses fields that the builder would silently ignore: the batch would not be the requested one. */
    private static void requireExpressible(BatchContents batch) {
        if (batch.magic() < RecordBatch.MAGIC_VALUE_V0 || batch.magic() > RecordBatch.CURRENT_MAGIC_VALUE)
            throw new UnsupportedRequestException("Kafka knows magic 0, 1 and 2, not " + batch.magic());
        if (batch.deleteHorizonMs() != null && batch.deleteHorizonMs() < 0)
            throw new UnsupportedRequestException("the builder sets no negative delete horizon");
        boolean compressed = !batch.compression().equals(CompressionType.NONE.name);
        if (batch.magic() < RecordBatch.MAGIC_VALUE_V2)
            requireExpressibleInLegacyFormat(batch, compressed);
        else if (batch.records().isEmpty() && (compressed || batch.deleteHorizonMs() != null))
            throw new UnsupportedRequestException("Kafka writes an empty batch without compression and delete horizon");
        for (RecordContents record : batch.records()) {
            if (batch.control() && record.key() == null)
                throw new UnsupportedRequestException("the builder wants a control record's type from its key");
            if ((record.timestamp() == null) != (batch.magic() == RecordBatch.MAGIC_VALUE_V0))
                throw new UnsupportedRequestException("records have a timestamp in every magic but 0");
            if (batch.timestampType() == TimestampType.LOG_APPEND_TIME
                && !record.timestamp().equals(batch.records().get(0).timestamp()))
                throw new UnsupportedRequestException("all records of a log-append batch have one timestamp");
        }
    }

    private static void requireExpressibleInLegacyFormat(BatchContents batch, boolean compressed) {
        if (batch.records().isEmpty())
            throw new UnsupportedRequestException("a message set of magic 0 or 1 has no empty batch");
        if (!compressed && batch.records().size() > 1)
            throw new UnsupportedRequestException("an uncompressed message of magic 0 or 1 is a batch of one record");
        if (batch.baseOffset() != batch.records().get(0).offset() || batch.lastOffset() != lastRecordOffset(batch))
            throw new UnsupportedRequestException("the offsets of a legacy batch are those of its records");
        if (batch.partitionLeaderEpoch() != RecordBatch.NO_PARTITION_LEADER_EPOCH)
            throw new UnsupportedRequestException("magic 0 and 1 have no partition leader epoch");
        if ((batch.magic() == RecordBatch.MAGIC_VALUE_V0) != (batch.timestampType() == TimestampType.NO_TIMESTAMP_TYPE))
            throw new UnsupportedRequestException("the timestamp type is none in magic 0 and in no other");
    }

    private static long lastRecordOffset(BatchContents batch) {
        return batch.records().get(batch.records().size() - 1).offset();
    }
}
