package org.apache.kafka.clients.consumer.internals;

import java.util.List;
import java.util.Set;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.OffsetResetStrategy;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.message.FetchResponseData;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.utils.internals.BufferSupplier;
import org.apache.kafka.common.utils.internals.LogContext;

/** Gives access to Kafka 3's CompletedFetch, which is visible only in this package. */
public final class ConsumerFetch {
    private static final TopicPartition PARTITION = new TopicPartition("kfuzz", 0);
    private static final Metrics METRICS = new Metrics();
    private static final FetchMetricsManager FETCH_METRICS =
        new FetchMetricsManager(METRICS, new FetchMetricsRegistry());
    private static final Deserializers<byte[], byte[]> BYTES =
        new Deserializers<>(new ByteArrayDeserializer(), new ByteArrayDeserializer());
    private static final LogContext LOG = new LogContext();
    private static final SubscriptionState SUBSCRIPTIONS = new SubscriptionState(LOG, OffsetResetStrategy.NONE);

    private final FetchConfig config;
    private final CompletedFetch fetch;

    public ConsumerFetch(FetchResponseData.PartitionData data, IsolationLevel isolation, long fetchOffset) {
        config = new FetchConfig(1, Integer.MAX_VALUE, 0, Integer.MAX_VALUE, Integer.MAX_VALUE, true, "", isolation);
        fetch = new CompletedFetch(LOG.logger(CompletedFetch.class), SUBSCRIPTIONS, BufferSupplier.NO_CACHING,
            PARTITION, data, new FetchMetricsAggregator(FETCH_METRICS, Set.of(PARTITION)), fetchOffset,
            ApiKeys.FETCH.latestVersion());
    }

    /** The records up to the end, or up to one that cannot be read. In that case the next call throws the error. */
    public List<ConsumerRecord<byte[], byte[]>> records() {
        return fetch.fetchRecords(config, BYTES, Integer.MAX_VALUE);
    }

    public long nextOffset() {
        return fetch.nextFetchOffset();
    }
}
