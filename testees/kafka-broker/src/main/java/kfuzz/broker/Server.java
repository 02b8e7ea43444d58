package kfuzz.broker;

import java.io.IOException;
import kafka.Kafka;
import org.apache.kafka.common.utils.Exit;

/**
 * Apache Kafka's own main program with two manners added. It stops cleanly when its stdin ends, so that it never outlives
 * whoever started it. And where it dies of a log that it cannot load, it first loads the others, so that one start names
 * all the logs that it would die of.
 */
public final class Server {
    private static final String LOG_LOADER_PREFIX = "log-recovery-";
    private static final int POLL_MS = 10;
    private static final int LOADING_TIMEOUT_MS = 60_000;

    private Server() {}

    /** Arguments: those of Kafka's main program, a file of properties first. */
    public static void main(String[] arguments) {
        Thread watch = new Thread(Server::stopAtEndOfInput, "end-of-input");
        watch.setDaemon(true);
        watch.start();
        Exit.setExitProcedure((status, message) -> {
            awaitLogLoaders();
            Runtime.getRuntime().exit(status);
        });
        Exit.setHaltProcedure((status, message) -> {
            awaitLogLoaders();
            Runtime.getRuntime().halt(status);
        });
        Kafka.main(arguments);
    }

    private static void stopAtEndOfInput() {
        try {
            while (System.in.read() >= 0);
        } catch (IOException e) {
            // As good as the end.
        }
        System.exit(0);  // Kafka shuts down in a hook.
    }

    /** LogManager has told its threads to end with the last log. */
    private static void awaitLogLoaders() {
        for (int waitedMs = 0; isLoadingLogs() && waitedMs < LOADING_TIMEOUT_MS; waitedMs += POLL_MS) {
            try {
                Thread.sleep(POLL_MS);
            } catch (InterruptedException e) {
                return;
            }
        }
    }

    private static boolean isLoadingLogs() {
        return Thread.getAllStackTraces().keySet().stream()
            .anyMatch(thread -> thread.isAlive() && thread.getName().startsWith(LOG_LOADER_PREFIX));
    }
}
