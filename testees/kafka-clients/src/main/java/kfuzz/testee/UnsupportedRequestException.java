package kfuzz.testee;

/** The request is valid, but Kafka's classes cannot fulfil it. */
final class UnsupportedRequestException extends RuntimeException {
    private static final long serialVersionUID = 1L;

    UnsupportedRequestException(String message) {
        super(message);
    }
}
