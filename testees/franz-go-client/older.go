//go:build older

package main

import "github.com/twmb/franz-go/pkg/kgo"

var newest []string

func ofNewGroup() []kgo.Opt { return nil }
