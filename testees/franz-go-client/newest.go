//go:build !older

package main

import "github.com/twmb/franz-go/pkg/kgo"

// newest is what older versions cannot do in conversations.
var newest = []string{"consumer-group"}

func ofNewGroup() []kgo.Opt { return []kgo.Opt{kgo.ServerSideBalancer()} }
