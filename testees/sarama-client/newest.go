//go:build !older

package main

import (
	"time"

	"github.com/IBM/sarama"
)

var offered = []string{"idempotent", "transactions", "sends", "topics"}

func prepare(config *sarama.Config) { config.Producer.Transaction.Retry.Backoff = time.Millisecond }

func nameTransactions(config *sarama.Config, id string) { config.Producer.Transaction.ID = id }

func begin(producer sarama.SyncProducer) error { return producer.BeginTxn() }

func commit(producer sarama.SyncProducer) error { return producer.CommitTxn() }
