package kfuzz.testee;

import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.ShareConsumer;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Share consumers and calls of the admin client, which Kafka has since version 4.1. */
public final class NewerCalls implements Drive.Newer {
    private ShareConsumer<byte[], byte[]> consumer;
    private JsonNode acknowledge;
    private int seen;

    @Override
    public void open(JsonNode line) {
        acknowledge = line.path("acknowledge");
        seen = 0;
        Map<String, Object> config =
                Map.of(
                        "bootstrap.servers", line.get("address").asText(),
                        "group.id", line.get("group").asText(),
                        "share.acknowledgement.mode", acknowledge.isMissingNode() ? "implicit" : "explicit",
                        "fetch.max.wait.ms", line.path("fetch_wait_ms").asInt(1),
                        "retry.backoff.ms", 1L,
                        "retry.backoff.max.ms", 1L);
        consumer = new KafkaShareConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        consumer.subscribe(List.of(line.get("topic").asText()));
    }

    @Override
    public Iterable<ConsumerRecord<byte[], byte[]>> poll(Duration time) {
        ConsumerRecords<byte[], byte[]> records = consumer.poll(time);
        if (!acknowledge.isMissingNode()) {
            for (ConsumerRecord<byte[], byte[]> record : records) {
                String how = acknowledge.get(seen++ % acknowledge.size()).asText();
                consumer.acknowledge(record, AcknowledgeType.valueOf(how.toUpperCase()));
            }
        }
        return records;
    }

    @Override
    public void commit() {
        consumer.commitSync()
                .forEach(
                        (partition, error) ->
                                error.ifPresent(
                                        one -> {
                                            throw one;
                                        }));
    }

    @Override
    public void close() {
        consumer.close();
    }

    // A group of which the program is no member has no other metadata.
    @SuppressWarnings("removal")
    @Override
    public void sendOffset(Producer<byte[], byte[]> producer, String topic, String group) {
        // The same offset in each library.
        Map<TopicPartition, OffsetAndMetadata> offsets =
                Map.of(new TopicPartition(topic, 0), new OffsetAndMetadata(1));
        producer.sendOffsetsToTransaction(offsets, new ConsumerGroupMetadata(group));
    }

    @Override
    public void call(JsonNode line) throws Exception {
        Map<String, Object> config =
                Map.of(
                        "bootstrap.servers", line.get("address").asText(),
                        "retry.backoff.ms", 1L,
                        "retry.backoff.max.ms", 1L,
                        "request.timeout.ms", line.path("request_timeout_ms").asInt(3000),
                        "default.api.timeout.ms", 5000);
        String topic = line.get("topic").asText();
        String group = line.path("group").asText();
        TopicPartition first = new TopicPartition(topic, 0);
        try (Admin admin = Admin.create(config)) {
            switch (line.get("name").asText()) {
                case "create-topic":
                    admin.createTopics(List.of(new NewTopic(topic + "-new", 1, (short) 1))).all().get();
                    break;
                case "delete-topic":
                    admin.deleteTopics(List.of(topic)).all().get();
                    break;
                case "describe-topic":
                    admin.describeTopics(List.of(topic)).allTopicNames().get();
                    break;
                case "describe-cluster":
                    admin.describeCluster().nodes().get();
                    break;
                case "list-offsets":
                    admin.listOffsets(Map.of(first, OffsetSpec.latest())).all().get();
                    break;
                case "delete-records":
                    admin.deleteRecords(Map.of(first, RecordsToDelete.beforeOffset(1L))).all().get();
                    break;
                case "list-committed":
                    admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get();
                    break;
                case "delete-group":
                    admin.deleteConsumerGroups(List.of(group)).all().get();
                    break;
                default:
                    throw new IllegalArgumentException("no call " + line.get("name").asText());
            }
        }
    }
}
