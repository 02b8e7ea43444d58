package kfuzz.testee;

import com.fasterxml.jackson.databind.JsonNode;
import java.nio.ByteBuffer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.common.utils.internals.BufferSupplier;

/** The parts of {@link RecordTools} that depend on the version: Kafka 3, the last that converts to older formats. */
final class VersionedTools {
    private VersionedTools() {}

    static ByteBuffer downConvert(MemoryRecords records, byte magic, long firstOffset) {
        return records.downConvert(magic, firstOffset, Time.SYSTEM).records().buffer();
    }

    static MemoryRecords.FilterResult filterTo(MemoryRecords records, MemoryRecords.RecordFilter filter,
                                               ByteBuffer destination, BufferSupplier buffers) {
        return records.filterTo(new TopicPartition("kfuzz", 0), filter, destination, Integer.MAX_VALUE, buffers);
    }

    static RecordTools.Fields control(JsonNode request) {
        throw new UnsupportedRequestException("the messages of control records are asked of Kafka 4");
    }
}
