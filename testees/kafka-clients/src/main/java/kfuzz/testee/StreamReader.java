package kfuzz.testee;

import com.fasterxml.jackson.core.JsonGenerator;
import com.fasterxml.jackson.databind.JsonNode;
import java.io.ByteArrayOutputStream;
import java.io.File;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Iterator;
import java.util.List;
import java.util.Locale;
import java.util.Optional;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.internals.ConsumerFetch;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.message.FetchResponseData;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.BatchMetadata;
import org.apache.kafka.storage.internals.log.CompletedTxn;
import org.apache.kafka.storage.internals.log.ProducerAppendInfo;
import org.apache.kafka.storage.internals.log.ProducerAppends;
import org.apache.kafka.storage.internals.log.ProducerStateManager;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;

/**
 * The rules that depend on earlier batches. For a consumer they are in its CompletedFetch. For a broker they are in the
 * partition's ProducerStateManager, called as in UnifiedLog.analyzeAndValidateProducerState: data batches come from a
 * client, control batches from a transaction coordinator. For a log, this class builds the producer state of a broker
 * that loads it. A consumer then gets the aborted transactions and the last stable offset of that state.
 */
final class StreamReader {
    private static final TopicPartition PARTITION = new TopicPartition("kfuzz", 0);
    /** The broker's defaults: transaction.max.timeout.ms and producer.id.expiration.ms. */
    private static final int MAX_TRANSACTION_TIMEOUT_MS = 900_000;
    private static final int PRODUCER_EXPIRATION_MS = 86_400_000;
    private static final FixedTime CLOCK = new FixedTime(1_700_000_000_000L);
    /** A folder that does not exist: producer state is neither written to disk nor read from it. */
    private static final File NOWHERE = new File("nowhere");

    private StreamReader() {}

    // --- reading ---

    /** The records returned before the failure, if there was one. The stable offset is null unless a log was read. */
    record Reading(List<RecordContents> records, long nextOffset, Long lastStableOffset, Throwable failure) {

        void writeTo(JsonGenerator json) throws IOException {
            json.writeArrayFieldStart("records");
            for (RecordContents record : records)
                record.writeTo(json);
            json.writeEndArray();
            if (failure != null)
                return;
            json.writeStringField("next_offset", Long.toString(nextOffset));
            if (lastStableOffset != null)
                json.writeStringField("last_stable_offset", Long.toString(lastStableOffset));
        }
    }

    static Reading read(JsonNode request) {
        String role = Json.text(request.get("role"), "role");
        IsolationLevel isolation =
            IsolationLevel.valueOf(Json.text(request.get("isolation"), "isolation").toUpperCase(Locale.ROOT));
        long fetchOffset = Json.int64(request, "fetch_offset", 0L);
        byte[] bytes = concatenated(request);
        return switch (role) {
            case "consumer" -> consume(bytes, aborted(request), isolation, fetchOffset, null);
            case "log" -> readLog(bytes, isolation, fetchOffset);
            default -> throw new UnsupportedRequestException("role " + role);
        };
    }

    private static byte[] concatenated(JsonNode request) {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        for (JsonNode step : Json.array(request, "steps"))
            bytes.writeBytes(Json.hex(step, "steps"));
        return bytes.toByteArray();
    }

    private static List<FetchResponseData.AbortedTransaction> aborted(JsonNode request) {
        List<FetchResponseData.AbortedTransaction> aborted = new ArrayList<>();
        if (request.has("aborted"))
            for (JsonNode item : Json.array(request, "aborted"))
                aborted.add(new FetchResponseData.AbortedTransaction()
                    .setProducerId(Json.int64(item, "producer_id", null))
                    .setFirstOffset(Json.int64(item, "first_offset", null)));
        return aborted;
    }

    private static Reading consume(byte[] bytes, List<FetchResponseData.AbortedTransaction> aborted,
                                   IsolationLevel isolation, long fetchOffset, Long lastStableOffset) {
        FetchResponseData.PartitionData data = new FetchResponseData.PartitionData()
            .setAbortedTransactions(aborted)
            .setRecords(MemoryRecords.readableRecords(ByteBuffer.wrap(bytes)));
        List<RecordContents> handedOut = new ArrayList<>();
        ConsumerFetch fetch = new ConsumerFetch(data, isolation, fetchOffset);
        try {
            for (var records = fetch.records(); !records.isEmpty(); records = fetch.records())
                for (ConsumerRecord<byte[], byte[]> record : records)
                    handedOut.add(contents(record));
            return new Reading(handedOut, fetch.nextOffset(), lastStableOffset, null);
        } catch (RuntimeException failure) {
            return new Reading(handedOut, fetch.nextOffset(), lastStableOffset, failure);
        }
    }

    private static RecordContents contents(ConsumerRecord<byte[], byte[]> record) {
        Long timestamp = record.timestampType() == TimestampType.NO_TIMESTAMP_TYPE ? null : record.timestamp();
        return new RecordContents(record.offset(), timestamp, wrap(record.key()), wrap(record.value()),
            record.headers().toArray());
    }

    private static ByteBuffer wrap(byte[] bytes) {
        return bytes == null ? null : ByteBuffer.wrap(bytes);
    }

    private static Reading readLog(byte[] bytes, IsolationLevel isolation, long fetchOffset) {
        List<FetchResponseData.AbortedTransaction> aborted = new ArrayList<>();
        ProducerStateManager producers = producers();
        long endOffset = 0;
        try {
            for (RecordBatch batch : MemoryRecords.readableRecords(ByteBuffer.wrap(bytes)).batches()) {
                append(producers, batch, AppendOrigin.REPLICATION, 0).flatMap(ProducerAppends::aborted)
                    .ifPresent(aborted::add);
                endOffset = batch.nextOffset();
            }
        } catch (RuntimeException failure) {
            return new Reading(List.of(), 0, null, failure);
        }
        long stableOffset = lastStableOffset(producers, endOffset);
        byte[] sent = isolation == IsolationLevel.READ_COMMITTED ? before(bytes, stableOffset) : bytes;
        return consume(sent, aborted, isolation, fetchOffset, stableOffset);
    }

    /** The whole batches that begin before the offset, which a broker sends when it reads a log up to there. */
    private static byte[] before(byte[] bytes, long offset) {
        int end = 0;
        for (MutableRecordBatch batch : MemoryRecords.readableRecords(ByteBuffer.wrap(bytes)).batches()) {
            if (batch.baseOffset() >= offset)
                break;
            end += batch.sizeInBytes();
        }
        return Arrays.copyOf(bytes, end);
    }

    // --- appending ---

    /** The result for one batch. A refused batch has an error and no base offset; others have no error. */
    record Step(String outcome, Long baseOffset, long lastStableOffset, Errors error) {

        void writeTo(JsonGenerator json) throws IOException {
            json.writeStartObject();
            json.writeStringField("outcome", outcome);
            json.writeStringField("last_stable_offset", Long.toString(lastStableOffset));
            if (baseOffset != null)
                json.writeStringField("base_offset", Long.toString(baseOffset));
            if (error != null)
                json.writeStringField("error", error.name());
            json.writeEndObject();
        }
    }

    static List<Step> append(JsonNode request) {
        String role = Json.text(request.get("role"), "role");
        if (!role.equals("broker"))
            throw new UnsupportedRequestException("role " + role);
        int transactionVersion = Json.int32(request, "transaction_version", 0);
        if (transactionVersion > ProducerAppends.LATEST_TRANSACTION_VERSION)
            throw new UnsupportedRequestException("transaction version " + transactionVersion);
        ProducerStateManager producers = producers();
        List<Step> steps = new ArrayList<>();
        long endOffset = 0;
        for (JsonNode step : Json.array(request, "steps")) {
            MutableRecordBatch batch = onlyBatch(Json.hex(step, "steps"));
            batch.setLastOffset(endOffset + batch.lastOffset() - batch.baseOffset());
            Step done = append(producers, batch, endOffset, transactionVersion);
            if (done.outcome().equals("appended"))
                endOffset = batch.nextOffset();
            steps.add(done);
        }
        return steps;
    }

    private static MutableRecordBatch onlyBatch(byte[] bytes) {
        Iterator<MutableRecordBatch> batches =
            MemoryRecords.readableRecords(ByteBuffer.wrap(bytes)).batches().iterator();
        MutableRecordBatch batch = batches.hasNext() ? batches.next() : null;
        if (batch == null || batches.hasNext() || batch.sizeInBytes() != bytes.length)
            throw new BadRequestException("each step must be one whole batch");
        return batch;
    }

    private static Step append(ProducerStateManager producers, RecordBatch batch, long endOffset,
                               int transactionVersion) {
        AppendOrigin origin = batch.isControlBatch() ? AppendOrigin.COORDINATOR : AppendOrigin.CLIENT;
        Optional<BatchMetadata> earlier = origin == AppendOrigin.COORDINATOR || !batch.hasProducerId()
            ? Optional.empty()
            : producers.lastEntry(batch.producerId()).flatMap(producer -> ProducerAppends.earlier(producer, batch));
        if (earlier.isPresent())
            return new Step("duplicate", earlier.get().firstOffset(), lastStableOffset(producers, endOffset), null);
        try {
            append(producers, batch, origin, transactionVersion);
        } catch (RuntimeException failure) {
            return new Step("rejected", null, lastStableOffset(producers, endOffset), Errors.forException(failure));
        }
        return new Step("appended", batch.baseOffset(), lastStableOffset(producers, batch.nextOffset()), null);
    }

    // --- producer state ---

    private static ProducerStateManager producers() {
        try {
            return new ProducerStateManager(PARTITION, NOWHERE, MAX_TRANSACTION_TIMEOUT_MS,
                new ProducerStateManagerConfig(PRODUCER_EXPIRATION_MS, false), CLOCK);
        } catch (IOException e) {
            throw new KafkaException("cannot read producer state from disk", e);
        }
    }

    private static Optional<CompletedTxn> append(ProducerStateManager producers, RecordBatch batch,
                                                 AppendOrigin origin, int transactionVersion) {
        if (!batch.hasProducerId())
            return Optional.empty();
        ProducerAppendInfo append = producers.prepareUpdate(batch.producerId(), origin);
        Optional<CompletedTxn> completed = ProducerAppends.append(append, batch, transactionVersion);
        producers.update(append);
        completed.ifPresent(producers::completeTxn);
        return completed;
    }

    /** The last stable offset of a log with a single replica, where the high watermark is the end of the log. */
    private static long lastStableOffset(ProducerStateManager producers, long endOffset) {
        producers.onHighWatermarkUpdated(endOffset);
        return producers.firstUnstableOffset().map(offset -> offset.messageOffset).orElse(endOffset);
    }
}
