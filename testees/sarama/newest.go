//go:build !older

package main

import (
	"encoding/binary"
	"math"
	"net"

	testee "kfuzz_testee"

	"github.com/IBM/sarama"
)

// The version of Fetch that a consumer with default settings uses, and the newest version of Produce that is not flexible.
const fetchVersion, produceBatches = 12, 8

// pipe connects a sarama.Broker to this program, which plays the broker. Config.Net.Proxy takes any dialer.
type pipe struct{ net.Conn }

func (p pipe) Dial(string, string) (net.Conn, error) { return p.Conn, nil }

// connect gives both ends of a connection, and a broker that will use the first.
func connect(config *sarama.Config) (client, server net.Conn, broker *sarama.Broker) {
	client, server = net.Pipe()
	config.ApiVersionsRequest = false
	config.Version = sarama.MaxVersion
	config.Net.Proxy.Enable, config.Net.Proxy.Dialer = true, pipe{client}
	return client, server, sarama.NewBroker("kfuzz:9092")
}

// addPartition asks for the partition.
func addPartition(request *sarama.FetchRequest) { request.AddBlock(topic, 0, 0, math.MaxInt32, -1) }

// offerMessages adds what the newer Brokers send and receive besides records.
func offerMessages(hello testee.Object, answers testee.Answers) {
	hello["operations"] = append(hello["operations"].([]string), "decode-message", "encode-message")
	hello["side"], hello["messages"], hello["hidden"] = "client", messageVersions(), hidden
	hello["unknown_tags"] = "skipped"
	answers["decode-message"], answers["encode-message"] = decodeMessage, encodeMessage
}

func isTransactional(batch *sarama.RecordBatch) *bool { return &batch.IsTransactional }

// response appends the body of a response to b.
func response(b, data []byte, aborted []testee.Aborted) []byte {
	big := binary.BigEndian
	b = append(b, 0)                      // tagged fields of the header
	b = append(b, make([]byte, 4+2+4)...) // throttle time, error, session
	b = append(b, 1+1, 1+byte(len(topic)))
	b = append(b, topic...)
	b = append(b, 1+1)
	b = append(b, make([]byte, 4+2)...) // partition, error
	b = big.AppendUint64(b, math.MaxInt64)
	b = big.AppendUint64(b, math.MaxInt64) // high watermark, last stable offset: behind everything
	b = big.AppendUint64(b, 0)
	b = binary.AppendUvarint(b, uint64(len(aborted)+1))
	for _, one := range aborted {
		b = big.AppendUint64(b, uint64(one.ProducerID))
		b = append(big.AppendUint64(b, uint64(one.FirstOffset)), 0)
	}
	b = big.AppendUint32(b, math.MaxUint32) // preferred read replica: none
	b = binary.AppendUvarint(b, uint64(len(data)+1))
	return append(append(b, data...), 0, 0, 0) // tagged fields of partition, topic and response
}
