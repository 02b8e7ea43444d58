//go:build older

package main

import (
	testee "kfuzz_testee"

	"github.com/IBM/sarama"
)

// These versions have no transactions.
var offered = []string{"idempotent"}

func prepare(*sarama.Config) {}

func nameTransactions(*sarama.Config, string) {}

func transact(sarama.SyncProducer, []*sarama.ProducerMessage) error { return testee.ErrNotOffered }
