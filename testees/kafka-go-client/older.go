//go:build older

package main

import (
	"strings"
	"time"

	testee "kfuzz_testee"

	"github.com/segmentio/kafka-go"
)

// hasTopics: the Writer has one topic for all messages.
const hasTopics = false

var offered = []string{"sends"}

// produce makes the Writer of a configuration. In some of these versions, codecs are in other packages.
func produce(sending testee.Sending) (testee.Producer, error) {
	if sending.Idempotent || sending.TransactionalID != nil || sending.Compression != "none" {
		return nil, testee.ErrNotOffered
	}
	writer := kafka.NewWriter(kafka.WriterConfig{
		Brokers: strings.Split(sending.Address, ","), Topic: sending.Topic, RequiredAcks: -1, Balancer: firstPartition,
		BatchSize: max(1, len(sending.Records)), BatchTimeout: time.Millisecond,
		ReadTimeout: sending.RequestTimeout(0), // 0 is the library's own
	})
	return producerOf(writer, nil, func() {}), nil
}
