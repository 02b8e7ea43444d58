//go:build !older

package main

import (
	"time"

	"github.com/IBM/sarama"
)

var offered = []string{"idempotent", "transactions", "sends", "topics", "groups"}

var converses = []string{"reset", "group", "abort", "timeout"}

func prepare(config *sarama.Config) { config.Producer.Transaction.Retry.Backoff = time.Millisecond }

func nameTransactions(config *sarama.Config, id string) { config.Producer.Transaction.ID = id }

func begin(producer sarama.SyncProducer) error { return producer.BeginTxn() }

func (p producer) CommitOffset(group, topic string, offset int64) error {
	partition := &sarama.PartitionOffsetMetadata{Partition: 0, Offset: offset, LeaderEpoch: -1}
	return p.AddOffsetsToTxn(map[string][]*sarama.PartitionOffsetMetadata{topic: {partition}}, group)
}

func abort(producer sarama.SyncProducer) error { return producer.AbortTxn() }

func commit(producer sarama.SyncProducer) error { return producer.CommitTxn() }
