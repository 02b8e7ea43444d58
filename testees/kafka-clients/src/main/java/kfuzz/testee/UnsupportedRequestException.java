package kfuzz.testee;

/** The request is a good one that Kafka's classes have no way to fulfil. */
final class UnsupportedRequestException extends RuntimeException {
    private static final long serialVersionUID = 1L;

    UnsupportedRequestException(String message) {
        super(message);
    }
}
