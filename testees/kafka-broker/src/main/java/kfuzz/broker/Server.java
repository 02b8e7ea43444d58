package kfuzz.broker;

import java.io.IOException;
import java.lang.reflect.Proxy;
import java.util.function.IntConsumer;
import kafka.Kafka;

/**
 * Apache Kafka's own main program with two additions. It stops cleanly when its stdin ends, so that it never outlives
 * the process that started it. If a log makes it abort, it first loads the other logs, so that one start reports every
 * log that would make it abort.
 */
public final class Server {
    private static final String LOG_LOADER_PREFIX = "log-recovery-";
    private static final int POLL_MS = 10;
    private static final int LOADING_TIMEOUT_MS = 60_000;

    private Server() {}

    /** Arguments: those of Kafka's main program, which begin with a properties file. */
    public static void main(String[] arguments) throws ReflectiveOperationException {
        Thread watch = new Thread(Server::stopAtEndOfInput, "end-of-input");
        watch.setDaemon(true);
        watch.start();
        atEnd("setExitProcedure", Runtime.getRuntime()::exit);
        atEnd("setHaltProcedure", Runtime.getRuntime()::halt);
        Kafka.main(arguments);
    }

    /** Replaces one of the ways in which Kafka ends. The class for it moved to another package in 4.4. */
    private static void atEnd(String setter, IntConsumer end) throws ReflectiveOperationException {
        Class<?> exit;
        try {
            exit = Class.forName("org.apache.kafka.common.utils.internals.Exit");
        } catch (ClassNotFoundException e) {
            exit = Class.forName("org.apache.kafka.common.utils.Exit");
        }
        Class<?> procedure = Class.forName(exit.getName() + "$Procedure");
        Object replaced = Proxy.newProxyInstance(exit.getClassLoader(), new Class<?>[] {procedure}, (proxy, method, given) -> {
            awaitLogLoaders();
            end.accept((int) given[0]);
            return null;
        });
        exit.getMethod(setter, procedure).invoke(null, replaced);
    }

    private static void stopAtEndOfInput() {
        try {
            while (System.in.read() >= 0);
        } catch (IOException e) {
            // Treat it like the end of the input.
        }
        System.exit(0);  // Kafka's shutdown hook stops the broker.
    }

    /** Waits for the threads that load logs. LogManager has told them to end after the last log. */
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
