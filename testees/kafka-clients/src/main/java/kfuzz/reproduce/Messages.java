package kfuzz.reproduce;

import java.io.IOException;
import java.nio.BufferUnderflowException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.message.ApiMessageType;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;

/** Decodes a file with a message's body, without its header: {@code Messages FILE request|response KEY VERSION}. */
final class Messages {
    public static void main(String[] args) throws IOException {
        ByteBuffer body = ByteBuffer.wrap(Files.readAllBytes(Path.of(args[0])));
        ApiMessageType type = ApiMessageType.fromApiKey(Short.parseShort(args[2]));
        ApiMessage message = args[1].equals("request") ? type.newRequest() : type.newResponse();
        try {
            message.read(new ByteBufferAccessor(body), Short.parseShort(args[3]));
            System.out.println("message: " + message);
        } catch (KafkaException | BufferUnderflowException | IllegalArgumentException e) {
            System.out.println("error: " + e);
        } catch (RuntimeException e) {
            // The generated classes have no class for their own errors. Every other exception is a fault of theirs.
            if (e.getClass() != RuntimeException.class)
                throw e;
            System.out.println("error: " + e);
        }
    }

    private Messages() {}
}
