// messages decodes a file with a message's body, without its header: messages FILE request|response KEY VERSION
package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"strconv"

	_ "github.com/segmentio/kafka-go" // registers the APIs
	"github.com/segmentio/kafka-go/protocol"
)

// The first version of each API whose header ends with tagged fields.
var flexible = map[uint64]uint64{
	0: 9, 1: 12, 2: 6, 3: 9, 8: 8, 9: 6, 10: 3, 11: 6, 12: 4, 13: 4, 14: 4, 15: 5, 16: 3, 18: 3, 19: 5,
	20: 4, 22: 2, 24: 3, 25: 3, 26: 3, 28: 3, 29: 2, 30: 2, 31: 2, 32: 4, 33: 2, 36: 2, 37: 2, 42: 2,
	43: 2, 44: 1, 45: 0, 46: 0, 48: 1, 49: 1, 50: 0, 51: 0,
}

func main() {
	body := input()
	key, keyErr := strconv.ParseUint(os.Args[3], 10, 15)
	version, versionErr := strconv.ParseUint(os.Args[4], 10, 15)
	if keyErr != nil || versionErr != nil {
		panic("usage: messages FILE request|response KEY VERSION")
	}
	header := []byte{0, 0, 0, 0} // correlation id
	if os.Args[2] == "request" {
		header = []byte{0, byte(key), 0, byte(version), 0, 0, 0, 0, 0, 0} // and an empty client id
	}
	if first, ok := flexible[key]; ok && version >= first {
		header = append(header, 0)
	}
	frame := binary.BigEndian.AppendUint32(nil, uint32(len(header)+len(body)))
	frame = append(append(frame, header...), body...)
	var message protocol.Message
	var err error
	if os.Args[2] == "request" {
		_, _, _, message, err = protocol.ReadRequest(bytes.NewReader(frame))
	} else {
		_, message, err = protocol.ReadResponse(bytes.NewReader(frame), protocol.ApiKey(key), int16(version))
	}
	printAllocated()
	if err != nil {
		fmt.Println("error:", err)
		return
	}
	fmt.Printf("message: %+v\n", message)
}
