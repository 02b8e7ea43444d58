package kfuzz;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.Stream;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.utils.Utils;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestFactory;

/** The runner itself, and Apache Kafka's own reader. */
class VectorsTest {
    private static final Vectors.Decoder REFUSES = data -> {
        throw new IllegalArgumentException("no");
    };

    private static List<Vectors.Rec> read(byte[] data) {
        List<Vectors.Rec> records = new ArrayList<>();
        for (RecordBatch batch : MemoryRecords.readableRecords(ByteBuffer.wrap(data)).batches()) {
            batch.ensureValid();
            batch.forEach(one -> {
                List<Vectors.Header> headers = new ArrayList<>();
                for (var header : one.headers()) {
                    headers.add(new Vectors.Header(header.key(), header.value()));
                }
                byte[] key = one.hasKey() ? Utils.toArray(one.key()) : null;
                byte[] value = one.hasValue() ? Utils.toArray(one.value()) : null;
                records.add(new Vectors.Rec(one.offset(), one.timestamp(), key, value, headers));
            });
        }
        return records;
    }

    @TestFactory
    Stream<DynamicTest> kafkaReadsTheVectors() {
        return Vectors.tests(VectorsTest::read, Vectors.Options.ALL.matching(
                "records/v2/codec/gzip", "records/v2/codec/snappy", "records/v2/codec/lz4", "records/v2/codec/zstd",
                "records/v2/header/minimal", "records/v2/count/negative-one", "records/v0/message/minimal"));
    }

    @TestFactory
    Stream<DynamicTest> aFailureIsExpected() {
        return Vectors.tests(REFUSES, Vectors.Options.ALL.matching("records/v2/header/minimal")
                .failing("records/v2/header/minimal", "it refuses everything"));
    }

    @Test
    void whatIsWrongIsSaid() throws Throwable {
        List<DynamicTest> tests = Vectors.tests(REFUSES, Vectors.Options.ALL.matching("records/v2/header/minimal")).toList();
        assertThrows(AssertionError.class, () -> tests.get(0).getExecutable().execute());
        var vector = new ObjectMapper().readTree("{\"verdict\":\"invalid\"}");
        assertEquals("accepted, but it is invalid", Vectors.problem(vector, data -> List.of(), new byte[0]));
        vector = new ObjectMapper().readTree(
                "{\"verdict\":\"valid\",\"records\":[{\"offset\":\"1\",\"timestamp\":\"2\",\"key\":null,\"value\":\"76\",\"headers\":[]}]}");
        assertEquals("0 records, expected 1", Vectors.problem(vector, data -> List.of(), new byte[0]));
        var other = new Vectors.Rec(1, 2, null, "w".getBytes(), List.of());
        assertEquals("record 0 is [1, 2, null, 77, []], expected [1, 2, null, 76, []]",
                Vectors.problem(vector, data -> List.of(other), new byte[0]));
    }

    @Test
    void unknownNamesAreErrors() {
        assertThrows(AssertionError.class, () -> Vectors.tests(REFUSES, Vectors.Options.ALL.matching("no/such")));
        assertThrows(AssertionError.class, () -> Vectors.tests(REFUSES, Vectors.Options.ALL.failing("no/such", "x")));
    }
}
