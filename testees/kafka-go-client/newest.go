//go:build !older

package main

import (
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
		Addr: kafka.TCP(sending.Address), RequiredAcks: kafka.RequireAll, Transport: transport,
		Balancer:    firstPartition,
		Compression: codecs[sending.Compression],
		BatchSize:   max(1, len(sending.Records)), BatchTimeout: time.Millisecond,
		WriteBackoffMin: time.Millisecond, WriteBackoffMax: time.Millisecond,
	}
	return producerOf(writer, transport.CloseIdleConnections), nil
}
