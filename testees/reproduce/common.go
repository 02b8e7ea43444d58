// What every reproducer in Go needs, beside its own main.go.
package main

import (
	"encoding/binary"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"time"
)

// input returns the file that the first argument names. The program ends after 30 s: a decoder that hangs shows where.
func input() []byte {
	debug.SetTraceback("all")
	time.AfterFunc(30*time.Second, func() { panic("no end after 30 s") })
	data, err := os.ReadFile(os.Args[1])
	if err != nil {
		panic(err)
	}
	return data
}

func printAllocated() {
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	fmt.Fprintf(os.Stderr, "allocated: %d MiB\n", memory.TotalAlloc>>20)
}

func printRecord(offset int64, timestamp int64, key, value string, headers int) {
	fmt.Printf("offset %d timestamp %d key %s value %s headers %d\n", offset, timestamp, key, value, headers)
}

func length(data []byte) string {
	if data == nil {
		return "null"
	}
	return fmt.Sprint(len(data))
}

// The size of a message of magic 0 without key and value.
const smallest = 26

// from is what a broker sends: the batch that holds the offset and all after it, or nothing if no whole batch is left.
// promised is how many records its headers count; a batch counts as least at least, and a message that is too small as
// unknown.
func from(offset int64, data []byte, least, unknown int) (sent []byte, promised int) {
	for at := 0; len(data)-at >= 17; {
		batch, count := data[at:], 1
		last, size := int64(binary.BigEndian.Uint64(batch)), 12+int(int32(binary.BigEndian.Uint32(batch[8:])))
		if size > len(batch) {
			break
		}
		if batch[16] == 2 && size >= 61 {
			last += int64(int32(binary.BigEndian.Uint32(batch[23:])))
			count = int(int32(binary.BigEndian.Uint32(batch[57:])))
		}
		if sent == nil && (last >= offset || size < smallest) {
			sent = batch
		}
		if size < smallest {
			return sent, promised + unknown
		}
		if at += size; sent != nil {
			promised += max(least, count)
		}
	}
	return sent, promised
}
