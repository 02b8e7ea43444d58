// records reads a file of record batches with protocol.RecordSet, as a Client.Fetch of kafka-go does: records FILE
package main

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/segmentio/kafka-go/protocol"
)

func main() {
	debug.SetTraceback("all") // a decoder that hangs shows where
	time.AfterFunc(30*time.Second, func() { panic("no end after 30 s") })
	data, err := os.ReadFile(os.Args[1])
	if err != nil {
		panic(err)
	}
	defer func() {
		var memory runtime.MemStats
		runtime.ReadMemStats(&memory)
		fmt.Fprintf(os.Stderr, "allocated: %d MiB\n", memory.TotalAlloc>>20)
	}()
	count, offset := 0, int64(math.MinInt64)
	data, total := from(offset, data)
	for promised := total; len(data) > 0; data, promised = from(offset, data) {
		before := count
		var set protocol.RecordSet
		field := append(binary.BigEndian.AppendUint32(nil, uint32(len(data))), data...)
		_, readErr := set.ReadFrom(bufio.NewReader(bytes.NewReader(field)))
		next := offset
		stream, _ := set.Records.(*protocol.RecordStream)
		for stream != nil && len(stream.Records) > 0 {
			r, err := stream.Records[0].ReadRecord()
			if errors.Is(err, io.EOF) {
				stream.Records = stream.Records[1:]
				continue
			} else if err != nil {
				fmt.Println("error:", err)
				return
			}
			fmt.Printf("offset %d timestamp %d key %s value %s headers %d\n",
				r.Offset, r.Time.UnixMilli(), length(r.Key), length(r.Value), len(r.Headers))
			count++
			next = max(next, r.Offset+1)
		}
		if readErr != nil {
			fmt.Println("error:", readErr)
			return
		}
		if count-before >= promised {
			break
		}
		if next <= offset {
			fmt.Println("stalled: a whole batch, no record and no error, so the next fetch is at", offset, "again")
			return
		}
		offset = next
	}
	if count < total {
		fmt.Printf("no error, but the headers count %d records\n", total)
	}
	fmt.Println("records:", count)
}

func length(data protocol.Bytes) string {
	if data == nil {
		return "null"
	}
	return fmt.Sprint(data.Len())
}

// The size of a message of magic 0 without key and value.
const smallest = 26

// from is what a broker sends: the batch that holds the offset and all behind it, or nothing if no whole batch is left.
// promised is how many records its headers count.
func from(offset int64, data []byte) (sent []byte, promised int) {
	for at := 0; len(data)-at >= 17; {
		batch, count := data[at:], 1
		last, size := int64(binary.BigEndian.Uint64(batch)), 12+int(int32(binary.BigEndian.Uint32(batch[8:])))
		if size > len(batch) {
			break
		}
		if batch[16] == 2 && size >= 61 {
			last += int64(int32(binary.BigEndian.Uint32(batch[23:])))
			count = int(int32(binary.BigEndian.Uint32(batch[57:])))
		}
		if sent == nil && (last >= offset || size < smallest) {
			sent = batch
		}
		if size < smallest {
			return sent, promised + 1
		}
		if at += size; sent != nil {
			promised += max(0, count)
		}
	}
	return sent, promised
}
