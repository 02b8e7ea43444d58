package kfuzz.broker;

import java.io.BufferedInputStream;
import java.io.Closeable;
import java.io.DataInputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.OutputStream;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.nio.ByteBuffer;
import org.apache.kafka.common.requests.AbstractRequest;
import org.apache.kafka.common.requests.AbstractResponse;
import org.apache.kafka.common.requests.RequestHeader;

/** A plain connection to a broker, for one request at a time. No client library checks the requests. */
final class BrokerConnection implements Closeable {
    private static final String CLIENT_ID = "kfuzz";

    private final Socket socket = new Socket();
    private final DataInputStream in;
    private final OutputStream out;
    private int correlationId;

    BrokerConnection(InetSocketAddress address, int timeoutMs) throws IOException {
        socket.connect(address, timeoutMs);
        socket.setTcpNoDelay(true);
        socket.setSoTimeout(timeoutMs);
        in = new DataInputStream(new BufferedInputStream(socket.getInputStream()));
        out = socket.getOutputStream();
    }

    /** Sends a request and waits for its response. Throws {@link EOFException} if the broker closes the connection. */
    AbstractResponse ask(AbstractRequest request) throws IOException {
        RequestHeader header = new RequestHeader(request.apiKey(), request.version(), CLIENT_ID, correlationId++);
        ByteBuffer body = request.serializeWithHeader(header);
        ByteBuffer frame = ByteBuffer.allocate(Integer.BYTES + body.remaining());
        frame.putInt(body.remaining()).put(body);
        out.write(frame.array());
        out.flush();
        int size = in.readInt();
        byte[] answer = in.readNBytes(size);
        if (answer.length < size)
            throw new EOFException("the broker hung up after " + answer.length + " of " + size + " bytes");
        return AbstractResponse.parseResponse(ByteBuffer.wrap(answer), header);
    }

    @Override
    public void close() throws IOException {
        socket.close();
    }
}
