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
 * One kind of message: Kafka's generated class reads and writes it, and its definition leads the way through the
 * class's accessors to and from JSON.
 */
record MessageType(String name, Class<?> java, StructType struct) {

    /** What became of the bytes; {@code message} is null where they were refused. */
    record Reading(Message message, int consumed, Throwable failure) {}

    /** The version that a request asks for, of those that this Kafka has. */
    short version(JsonNode request) {
        if (!request.has("version"))
            throw new BadRequestException("version is missing");
        int version = Json.int32(request, "version", 0);
        Message message = empty();
        // Most of the generated classes do not look, and would read or write a version that nobody defined.
        if (version < message.lowestSupportedVersion() || version > message.highestSupportedVersion())
            throw new UnsupportedRequestException(name + " has the versions " + message.lowestSupportedVersion() + ".."
                + message.highestSupportedVersion() + ", not " + version);
        return (short) version;
    }

    /** The message with every field at its default. */
    Message empty() {
        return Reflection.message(java);
    }

    /** Reads into an empty message; bytes behind it are left alone, as Kafka leaves them. */
    static Reading decode(Message message, byte[] bytes, short version) {
        ByteBuffer buffer = ByteBuffer.wrap(bytes);
        try {
            message.read(new ByteBufferAccessor(buffer), version);
            return new Reading(message, buffer.position(), null);
        } catch (Throwable failure) {
            return new Reading(null, buffer.position(), failure);
        }
    }

    /** Writes as Kafka's clients and brokers do: asks for the size first, which refuses some messages already. */
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
            throw new IllegalStateException("of the " + buffer.capacity() + " bytes that size() told of, write() made "
                + buffer.position());
        return buffer.array();
    }

    void writeJson(JsonGenerator json, Message message, short version) throws IOException {
        struct.write(json, message, version);
    }

    /** The message in the JSON of Kafka's own converter, which leaves much out. */
    JsonNode converted(Message message, short version) {
        Method write = Reflection.method(Reflection.named(java.getName() + "JsonConverter"), "write", java, short.class);
        return (JsonNode) Reflection.call(write, null, message, version);
    }

    /**
     * Whether the failure is one of those by which generated classes refuse bytes or a message. They have no exception
     * of their own: for what they check they throw RuntimeException itself, with a sentence, or a KafkaException
     * (UnsupportedVersionException); for the rest they leave it to ByteBuffer to miss bytes
     * (BufferUnderflowException), and to ByteBuffer and ByteUtils to refuse a length and a varint
     * (IllegalArgumentException). Every other subclass of RuntimeException is an accident, and so is an Error.
     */
    static boolean isRefusalToRead(Throwable failure) {
        return failure instanceof KafkaException || failure instanceof BufferUnderflowException
            || failure.getClass() == RuntimeException.class || failure.getClass() == IllegalArgumentException.class;
    }

    /** Null where none may be is refused by NullPointerException, which generated writers even throw in so many words. */
    static boolean isRefusalToWrite(Throwable failure) {
        return failure instanceof KafkaException || failure instanceof BadMessageException
            || failure instanceof NullPointerException || failure.getClass() == RuntimeException.class;
    }
}
