//go:build older

package main

import (
	testee "kfuzz_testee"

	_ "github.com/twmb/franz-go/pkg/kgo" // so that the program knows its version
)

// Before version 1.19, only a client that is connected to brokers reads records.
var recordAnswers = testee.Answers{}
