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

	"github.com/segmentio/kafka-go/protocol"
)

func main() {
	data := input()
	defer printAllocated()
	count, offset := 0, int64(math.MinInt64)
	data, total := from(offset, data, 0, 1)
	for promised := total; len(data) > 0; data, promised = from(offset, data, 0, 1) {
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
			printRecord(r.Offset, r.Time.UnixMilli(), size(r.Key), size(r.Value), len(r.Headers))
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

func size(data protocol.Bytes) string {
	if data == nil {
		return "null"
	}
	return fmt.Sprint(data.Len())
}
