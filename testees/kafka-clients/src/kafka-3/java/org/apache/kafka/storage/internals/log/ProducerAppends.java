package org.apache.kafka.storage.internals.log;

import java.util.Optional;
import org.apache.kafka.common.message.FetchResponseData.AbortedTransaction;
import org.apache.kafka.common.record.internal.RecordBatch;

/** Gives access to parts of Kafka 3's producer state that are package-private or differ between versions. */
public final class ProducerAppends {
    public static final int LATEST_TRANSACTION_VERSION = 0;

    private ProducerAppends() {}

    public static Optional<CompletedTxn> append(ProducerAppendInfo append, RecordBatch batch, int transactionVersion) {
        return append.append(batch, Optional.empty());
    }

    public static Optional<BatchMetadata> earlier(ProducerStateEntry producer, RecordBatch batch) {
        return producer.findDuplicateBatch(batch);
    }

    /** The transaction as a fetch response reports it, if it was aborted. */
    public static Optional<AbortedTransaction> aborted(CompletedTxn transaction) {
        return transaction.isAborted
            ? Optional.of(new AbortedTransaction().setProducerId(transaction.producerId)
                .setFirstOffset(transaction.firstOffset))
            : Optional.empty();
    }
}
