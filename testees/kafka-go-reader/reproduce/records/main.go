// records reads a file of record batches with the calls that the Reader of kafka-go makes: records FILE
package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"time"

	"github.com/segmentio/kafka-go"
)

func main() {
	data := input()
	defer printAllocated()
	count, offset := 0, int64(math.MinInt64)
	// What cannot be counted is fetched until a fetch brings nothing.
	data, total := from(offset, data, 1, math.MaxInt32)
	for promised := total; len(data) > 0; data, promised = from(offset, data, 1, math.MaxInt32) {
		before := count
		client, server := net.Pipe()
		go serve(server, data)
		conn := kafka.NewConnWith(client, kafka.ConnConfig{Topic: "topic"})
		conn.Seek(offset, kafka.SeekAbsolute|kafka.SeekDontCheck)
		conn.SetReadDeadline(time.Now().Add(5 * time.Second)) // the broker here sends nothing more after its answer
		batch := conn.ReadBatchWith(kafka.ReadBatchConfig{MinBytes: 1, MaxBytes: 1e6})
		next := offset
		var err error
		for err == nil {
			var m kafka.Message
			if m, err = batch.ReadMessage(); err == nil {
				printRecord(m.Offset, m.Time.UnixMilli(), length(m.Key), length(m.Value), len(m.Headers))
				next = max(next, m.Offset+1)
				count++
			}
		}
		next = max(next, batch.Offset())
		client.Close()
		if !errors.Is(err, io.EOF) && !errors.Is(err, kafka.RequestTimedOut) && !errors.Is(err, os.ErrDeadlineExceeded) {
			fmt.Println("error:", err)
			return
		}
		if count-before >= promised {
			break
		}
		if next <= offset {
			fmt.Println("stalled: a whole batch, then", err, "and the next fetch is at", next, "again")
			return
		}
		offset = next
	}
	fmt.Println("records:", count)
}

// serve plays the broker: it answers ApiVersions, and every Fetch of version 10 with these record batches.
func serve(conn net.Conn, data []byte) {
	var size [4]byte
	for big := binary.BigEndian; ; {
		if _, err := io.ReadFull(conn, size[:]); err != nil {
			return
		}
		request := make([]byte, big.Uint32(size[:]))
		if _, err := io.ReadFull(conn, request); err != nil {
			return
		}
		response := append(make([]byte, 4), request[4:8]...) // room for the size, then the correlation id
		if big.Uint16(request) == 18 {
			response = append(response, 0, 0, 0, 0, 0, 1, 0, 1, 0, 0, 0, 10) // no error; Fetch has the versions 0 to 10
		} else {
			response = append(response, make([]byte, 10)...) // throttle time, error, session
			response = append(response, "\x00\x00\x00\x01\x00\x05topic\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00"...)
			response = big.AppendUint64(response, math.MaxInt64) // high watermark
			response = big.AppendUint64(response, math.MaxInt64) // last stable offset
			response = append(response, make([]byte, 12)...)     // log start offset, no aborted transactions
			response = big.AppendUint32(response, uint32(len(data)))
			response = append(response, data...)
		}
		big.PutUint32(response, uint32(len(response)-4))
		if _, err := conn.Write(response); err != nil {
			return
		}
	}
}
