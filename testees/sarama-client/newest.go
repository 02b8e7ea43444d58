//go:build !older

package main

import (
	"time"

	"github.com/IBM/sarama"
)

var offered = []string{"idempotent", "transactions"}

func prepare(config *sarama.Config) { config.Producer.Transaction.Retry.Backoff = time.Millisecond }

func nameTransactions(config *sarama.Config, id string) { config.Producer.Transaction.ID = id }

func transact(producer sarama.SyncProducer, messages []*sarama.ProducerMessage) error {
	if err := producer.BeginTxn(); err != nil {
		return err
	}
	if err := producer.SendMessages(messages); err != nil {
		return err
	}
	return producer.CommitTxn()
}
