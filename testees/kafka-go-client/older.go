//go:build older

package main

import (
	"context"
	"time"

	testee "kfuzz_testee"

	"github.com/segmentio/kafka-go"
)

// produce makes the Writer of a configuration. In some of these versions, codecs are in other packages.
func produce(sending testee.Sending) error {
	if sending.Idempotent || sending.TransactionalID != nil || sending.Compression != "none" {
		return testee.ErrNotOffered
	}
	writer := kafka.NewWriter(kafka.WriterConfig{
		Brokers: []string{sending.Address}, Topic: sending.Topic, RequiredAcks: -1, Balancer: firstPartition,
		BatchSize: max(1, len(sending.Records)), BatchTimeout: time.Millisecond,
	})
	defer writer.Close()
	ctx, cancel := context.WithTimeout(context.Background(), testee.ProduceTimeout)
	defer cancel()
	return writer.WriteMessages(ctx, messagesOf(sending)...)
}
