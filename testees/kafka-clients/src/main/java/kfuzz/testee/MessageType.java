package kfuzz.testee;

import com.fasterxml.jackson.core.JsonGenerator;
import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.lang.reflect.Method;
import java.nio.BufferUnderflowException;
import java.nio.ByteBuffer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;

/**
 * One message type. Kafka's generated class reads and writes it. The definition tells which accessors of that class to
 * use to convert it to and from JSON.
 */
record MessageType(String name, Class<?> java, StructType struct) {

    /** The result of reading bytes. {@code message} is null if they were refused. */
    record Reading(Message message, int consumed, Throwable failure) {}

    /** The version in the request. Throws UnsupportedRequestException if this Kafka does not have it. */
    short version(JsonNode request) {
        if (!request.has("version"))
            throw new BadRequestException("version is missing");
        int version = Json.int32(request, "version", 0);
        Message message = empty();
        // Most generated classes do not check this. They would read or write a version that is not defined.
        if (version < message.lowestSupportedVersion() || version > message.highestSupportedVersion())
            throw new UnsupportedRequestException(name + " has the versions " + message.lowestSupportedVersion() + ".."
                + message.highestSupportedVersion() + ", not " + version);
        return (short) version;
    }

    /** A message with default values. */
    Message empty() {
        return Reflection.message(java);
    }

    /** Reads into an empty message. Like Kafka, it ignores bytes after the message. */
    static Reading decode(Message message, byte[] bytes, short version) {
        ByteBuffer buffer = ByteBuffer.wrap(bytes);
        try {
            message.read(new ByteBufferAccessor(buffer), version);
            return new Reading(message, buffer.position(), null);
        } catch (Throwable failure) {
            return new Reading(null, buffer.position(), failure);
        }
    }

    /** Writes like Kafka's clients and brokers: computes the size first, which already fails for some messages. */
    byte[] encode(JsonNode body, short version) {
        Message message;
        try {
            message = (Message) struct.read(body);
        } catch (BadMessageException e) {
            throw e.within("body");
        }
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer buffer = ByteBuffer.allocate(message.size(cache, version));
        message.write(new ByteBufferAccessor(buffer), cache, version);
        if (buffer.hasRemaining())
            throw new IllegalStateException("size() said " + buffer.capacity() + " bytes, but write() wrote "
                + buffer.position());
        return buffer.array();
    }

    void writeJson(JsonGenerator json, Message message, short version) throws IOException {
        struct.write(json, message, version);
    }

    /** The message in the JSON of Kafka's own converter, which omits many fields. */
    JsonNode converted(Message message, short version) {
        Method write = Reflection.method(Reflection.named(java.getName() + "JsonConverter"), "write", java, short.class);
        return (JsonNode) Reflection.call(write, null, message, version);
    }

    /**
     * Whether generated classes refuse bytes with this exception. They have no exception class of their own. Their own
     * checks throw a plain RuntimeException with a message, or a KafkaException (UnsupportedVersionException). Missing
     * bytes are a BufferUnderflowException of ByteBuffer. A bad length or varint is an IllegalArgumentException of
     * ByteBuffer or ByteUtils. Every other RuntimeException, and every Error, is a fault.
     */
    static boolean isRefusalToRead(Throwable failure) {
        return failure instanceof KafkaException || failure instanceof BufferUnderflowException
            || failure.getClass() == RuntimeException.class || failure.getClass() == IllegalArgumentException.class;
    }

    /** Generated writers refuse a null in a field that is not nullable by NullPointerException, partly explicitly. */
    static boolean isRefusalToWrite(Throwable failure) {
        return failure instanceof KafkaException || failure instanceof BadMessageException
            || failure instanceof NullPointerException || failure.getClass() == RuntimeException.class;
    }
}
