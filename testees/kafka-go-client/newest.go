//go:build !older

package main

import (
	"strings"
	"time"

	testee "kfuzz_testee"

	"github.com/segmentio/kafka-go"
)

// hasTopics is whether each message names its topic.
const hasTopics = true

var offered = []string{"sends", "topics"}

var codecs = map[string]kafka.Compression{
	"gzip": kafka.Gzip, "snappy": kafka.Snappy, "lz4": kafka.Lz4, "zstd": kafka.Zstd,
}

func produce(sending testee.Sending) (testee.Producer, error) {
	if sending.Idempotent || sending.TransactionalID != nil {
		return nil, testee.ErrNotOffered // a Writer is neither idempotent nor transactional
	}
	transport := &kafka.Transport{}
	writer := &kafka.Writer{
		Addr: kafka.TCP(strings.Split(sending.Address, ",")...), RequiredAcks: kafka.RequireAll, Transport: transport,
		Balancer:    firstPartition,
		Compression: codecs[sending.Compression],
		BatchSize:   max(1, len(sending.Records)), BatchTimeout: time.Millisecond,
		WriteBackoffMin: time.Millisecond, WriteBackoffMax: time.Millisecond,
	}
	if sending.RequestTimeoutMs > 0 {
		// The library waits for an answer as long as both together.
		writer.ReadTimeout, writer.WriteTimeout = sending.RequestTimeout(0)/2, sending.RequestTimeout(0)/2
	}
	var offsets *[]int64
	if !sending.AtOnce { // the library does not say of which send a message is
		offsets = new([]int64)
		writer.Completion = func(messages []kafka.Message, _ error) {
			for _, message := range messages {
				*offsets = append(*offsets, message.Offset)
			}
		}
	}
	return producerOf(writer, offsets, transport.CloseIdleConnections), nil
}
