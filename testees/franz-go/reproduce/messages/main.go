// messages decodes a file with a message's body, without its header: messages FILE request|response KEY VERSION
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func main() {
	data := input()
	key, keyErr := strconv.ParseInt(os.Args[3], 10, 16)
	version, versionErr := strconv.ParseInt(os.Args[4], 10, 16)
	if keyErr != nil || versionErr != nil {
		panic("usage: messages FILE request|response KEY VERSION")
	}
	var message interface {
		SetVersion(int16)
		ReadFrom([]byte) error
	} = kmsg.ResponseForKey(int16(key))
	if os.Args[2] == "request" {
		message = kmsg.RequestForKey(int16(key))
	}
	message.SetVersion(int16(version))
	err := message.ReadFrom(data)
	printAllocated()
	if err != nil {
		fmt.Println("error:", err)
		return
	}
	text, err := json.Marshal(message)
	if err != nil {
		panic(err)
	}
	fmt.Printf("message: %s\n", text)
}
