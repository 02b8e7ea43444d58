package kfuzz.testee;

import java.util.concurrent.ScheduledFuture;
import org.apache.kafka.server.util.Scheduler;

/** Runs background tasks of a broker immediately, so that nothing happens between two requests. */
final class NoScheduler implements Scheduler {
    @Override
    public void startup() {}

    @Override
    public void shutdown() {}

    @Override
    public ScheduledFuture<?> schedule(String name, Runnable task, long delayMs, long periodMs) {
        task.run();
        return null;
    }

    @Override
    public void resizeThreadPool(int newSize) {}
}
