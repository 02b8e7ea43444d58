// records reads a file of record batches with sarama: a Broker fetches them from a pipe. Usage: records FILE
package main

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"net"

	"github.com/IBM/sarama"
)

func main() {
	data := input()
	defer printAllocated()
	count, offset := 0, int64(math.MinInt64)
	data, total := from(offset, data, 0, 1)
	for promised := total; len(data) > 0; data, promised = from(offset, data, 0, 1) {
		before := count
		block, err := fetch(data)
		if err != nil {
			fmt.Println("error:", err)
			return
		}
		next := offset
		show := func(at, time int64, key, value []byte, headers int) {
			if at < offset {
				return // the consumer leaves it out
			}
			printRecord(at, time, length(key), length(value), headers)
			count++
			next = max(next, at+1)
		}
		for _, set := range block.RecordsSet {
			if batch := set.RecordBatch; batch != nil {
				for _, r := range batch.Records {
					timestamp := batch.FirstTimestamp.Add(r.TimestampDelta)
					if batch.LogAppendTime {
						timestamp = batch.MaxTimestamp
					}
					show(batch.FirstOffset+r.OffsetDelta, timestamp.UnixMilli(), r.Key, r.Value, len(r.Headers))
				}
			}
			if set.MsgSet == nil {
				continue
			}
			for _, message := range set.MsgSet.Messages {
				inner := message.Messages()
				for _, m := range inner {
					at, timestamp := m.Offset, m.Msg.Timestamp
					if m.Msg.Version >= 1 {
						at += message.Offset - inner[len(inner)-1].Offset
					}
					if m.Msg.LogAppendTime {
						timestamp = message.Msg.Timestamp
					}
					show(at, timestamp.UnixMilli(), m.Msg.Key, m.Msg.Value, 0)
				}
			}
		}
		if count-before >= promised {
			break
		}
		if next <= offset {
			fmt.Println("stalled: a whole batch, but no record and no error; partial:", block.Partial)
			return
		}
		offset = next
	}
	if count < total {
		fmt.Printf("no error, but the headers count %d records\n", total)
	}
	fmt.Println("records:", count)
}

type pipe struct{ net.Conn }

func (p pipe) Dial(string, string) (net.Conn, error) { return p.Conn, nil }

func fetch(data []byte) (*sarama.FetchResponseBlock, error) {
	client, server := net.Pipe()
	go answer(server, data)
	config := sarama.NewConfig()
	config.ApiVersionsRequest = false
	config.Net.Proxy.Enable, config.Net.Proxy.Dialer = true, pipe{client}
	broker := sarama.NewBroker("broker:9092")
	if err := broker.Open(config); err != nil {
		return nil, err
	}
	request := &sarama.FetchRequest{Version: 11, MinBytes: 1, MaxBytes: math.MaxInt32}
	request.AddBlock("topic", 0, 0, math.MaxInt32, -1)
	response, err := broker.Fetch(request)
	if err != nil {
		return nil, err
	}
	return response.GetBlock("topic", 0), nil
}

// answer plays the broker: it answers one Fetch of version 11 with these record batches.
func answer(conn net.Conn, data []byte) {
	var size [4]byte
	io.ReadFull(conn, size[:])
	request := make([]byte, binary.BigEndian.Uint32(size[:]))
	io.ReadFull(conn, request)
	big := binary.BigEndian
	b := append(make([]byte, 4), request[4:8]...) // room for the size, then the correlation id
	b = append(b, make([]byte, 10)...)            // throttle time, error, session
	b = append(b, "\x00\x00\x00\x01\x00\x05topic\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00"...)
	b = big.AppendUint64(b, math.MaxInt64)  // high watermark
	b = big.AppendUint64(b, math.MaxInt64)  // last stable offset
	b = append(b, make([]byte, 12)...)      // log start offset, no aborted transactions
	b = big.AppendUint32(b, math.MaxUint32) // no preferred read replica
	b = big.AppendUint32(b, uint32(len(data)))
	b = append(b, data...)
	big.PutUint32(b, uint32(len(b)-4))
	conn.Write(b)
}
