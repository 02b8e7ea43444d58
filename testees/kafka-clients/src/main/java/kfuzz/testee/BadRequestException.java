package kfuzz.testee;

/** The request breaks the testee protocol: the asker's fault, never Kafka's. */
final class BadRequestException extends RuntimeException {
    private static final long serialVersionUID = 1L;

    BadRequestException(String message) {
        super(message);
    }
}
