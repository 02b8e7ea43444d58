// messages decodes a file with a message's body, without its header: messages FILE request|response KEY VERSION
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func main() {
	debug.SetTraceback("all") // a decoder that hangs shows where
	time.AfterFunc(30*time.Second, func() { panic("no end after 30 s") })
	data, err := os.ReadFile(os.Args[1])
	key, keyErr := strconv.ParseInt(os.Args[3], 10, 16)
	version, versionErr := strconv.ParseInt(os.Args[4], 10, 16)
	if err != nil || keyErr != nil || versionErr != nil {
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
	err = message.ReadFrom(data)
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	fmt.Fprintf(os.Stderr, "allocated: %d MiB\n", memory.TotalAlloc>>20)
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
