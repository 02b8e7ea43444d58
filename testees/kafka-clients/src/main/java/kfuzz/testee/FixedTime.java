package kfuzz.testee;

import java.util.function.Supplier;
import org.apache.kafka.common.utils.Time;

/** A clock that always shows the same time, so that timestamps by Kafka's classes are the same in every run. */
record FixedTime(long nowMs) implements Time {
    private static final long NANOSECONDS_PER_MILLISECOND = 1_000_000;

    @Override
    public long milliseconds() {
        return nowMs;
    }

    @Override
    public long nanoseconds() {
        return nowMs * NANOSECONDS_PER_MILLISECOND;
    }

    @Override
    public void sleep(long ms) {
        throw new UnsupportedOperationException("this clock stands still");
    }

    /** Kafka 3 requires this method. In Kafka 4 it overrides a default method or nothing. */
    public void waitObject(Object object, Supplier<Boolean> condition, long deadlineMs) {
        throw new UnsupportedOperationException("this clock stands still");
    }
}
