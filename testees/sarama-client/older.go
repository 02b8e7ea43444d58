//go:build older

package main

import (
	testee "kfuzz_testee"

	"github.com/IBM/sarama"
)

// These versions have no transactions.
var offered = []string{"idempotent", "sends", "topics"}

var converses = []string{"reset", "group", "timeout"}

func prepare(*sarama.Config) {}

func nameTransactions(*sarama.Config, string) {}

func begin(sarama.SyncProducer) error { return testee.ErrNotOffered }

func abort(sarama.SyncProducer) error { return testee.ErrNotOffered }

func commit(sarama.SyncProducer) error { return testee.ErrNotOffered }
