package kfuzz.testee;

/** A message's JSON says what no message of that kind can hold; found before Kafka's classes are asked. */
final class BadMessageException extends RuntimeException {
    private static final long serialVersionUID = 1L;

    BadMessageException(String sentence) {
        super(sentence);
    }

    /** The same sentence, seen from the struct or array that the value stands in. */
    BadMessageException within(String place) {
        String text = getMessage();
        boolean inner = text.startsWith("[") || text.startsWith(".");
        return new BadMessageException(place + (inner ? text : " " + text));
    }
}
