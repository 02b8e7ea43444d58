package kfuzz.testee;

/** The JSON of a message has a value that its type cannot hold. We find it before we call Kafka's classes. */
final class BadMessageException extends RuntimeException {
    private static final long serialVersionUID = 1L;

    BadMessageException(String sentence) {
        super(sentence);
    }

    /** The same error, with {@code place} (a field or an index) added in front. */
    BadMessageException within(String place) {
        String text = getMessage();
        boolean inner = text.startsWith("[") || text.startsWith(".");
        return new BadMessageException(place + (inner ? text : " " + text));
    }
}
