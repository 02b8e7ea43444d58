package kfuzz.testee;

/** The request breaks the testee protocol. This is an error of the caller, never of Kafka. */
final class BadRequestException extends RuntimeException {
    private static final long serialVersionUID = 1L;

    BadRequestException(String message) {
        super(message);
    }
}
