// Package testee speaks kfuzz-testee/1 for testees in Go: it reads requests, runs the library and writes the answers.
//
// It imports only the standard library, so that a testee contains no code of kfuzz. A testee needs Serve, and Record
// and Version to fill in what Serve prints. See testees/README.md.
package testee

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"unicode/utf8"
)

const largestHexValueBytes = 64 * 1024

// Object is a JSON object: the handshake, an answer, a batch or a record.
type Object = map[string]any

// Bytes are bytes in a request. JSON has them as hex; nil is null.
type Bytes []byte

// UnmarshalJSON reads the hex of a request.
func (b *Bytes) UnmarshalJSON(text []byte) (err error) {
	if string(text) == "null" {
		*b = nil
		return nil
	}
	var digits string
	if err = json.Unmarshal(text, &digits); err == nil {
		*b, err = hex.DecodeString(digits)
	}
	return err
}

// Aborted is one aborted transaction of a fetch response.
type Aborted struct {
	ProducerID  int64 `json:"producer_id,string"`
	FirstOffset int64 `json:"first_offset,string"`
}

// Request is one line of input. Only the fields of its operation are set.
type Request struct {
	ID          string          `json:"id"`
	Operation   string          `json:"operation"`
	Role        string          `json:"role"`
	Hex         Bytes           `json:"hex"`
	Batches     json.RawMessage `json:"batches"` // of encode-records
	Isolation   string          `json:"isolation"`
	Aborted     []Aborted       `json:"aborted"`
	FetchOffset int64           `json:"fetch_offset,string"`
	Steps       []Bytes         `json:"steps"`
	Message     string          `json:"message"`
	Version     int16           `json:"version"`
	Body        json.RawMessage `json:"body"` // of encode-message
}

// Answers has a function for each operation that the testee knows. An answer needs no id.
type Answers map[string]func(Request) Object

// Serve prints the handshake and answers requests until the input ends. A panic becomes the outcome "panic"; its "at"
// names the innermost source line in library, a module path.
func Serve(hello Object, library string, answers Answers) {
	out := bufio.NewWriter(os.Stdout)
	os.Stdout = os.Stderr // stdout is for the protocol only; a library may print
	say := func(message Object) {
		line, err := json.Marshal(message)
		if err != nil {
			panic(err) // a fault of the testee, so it must not look like an answer
		}
		out.Write(append(line, '\n'))
		out.Flush()
	}
	hello["protocol"], hello["language"] = "kfuzz-testee/1", "go"
	say(hello)
	meter := newMeter(library)
	for in := bufio.NewReader(os.Stdin); ; {
		line, err := in.ReadBytes('\n')
		if len(line) > 0 {
			say(answer(line, library, answers, meter))
		}
		if err == io.EOF {
			return
		} else if err != nil {
			panic(err)
		}
	}
}

func answer(line []byte, library string, answers Answers, meter *meter) (result Object) {
	var request Request
	if err := json.Unmarshal(line, &request); err != nil {
		return Object{"id": nil, "outcome": "fault", "error": "BadRequest: " + err.Error()}
	}
	meter.start()
	defer func() {
		if trouble := recover(); trouble != nil {
			result = Panicked(trouble, library)
		}
		result["id"] = request.ID
		meter.stop(result)
	}()
	operation, known := answers[request.Operation]
	if !known {
		return Unsupported("operation " + request.Operation)
	}
	if request.Role != "" && request.Role != "consumer" {
		return Unsupported("role " + request.Role)
	}
	return operation(request)
}

// Unsupported is the answer for something that the library cannot do.
func Unsupported(reason string) Object { return Object{"outcome": "unsupported", "error": reason} }

// Panicked is the answer for a panic. Call it in the deferred function that recovered it: it reads the stack.
func Panicked(trouble any, library string) Object {
	result := Object{"outcome": "panic", "error": fmt.Sprint(trouble)}
	callers := make([]uintptr, 256)
	if at := placeIn(callers[:runtime.Callers(2, callers)], library); at != "" {
		result["at"] = at
	}
	return result
}

// placeIn is the innermost source line of a stack that is in library; empty if there is none.
func placeIn(stack []uintptr, library string) string {
	if len(stack) == 0 {
		return ""
	}
	frames := runtime.CallersFrames(stack)
	for more := true; more; {
		var frame runtime.Frame
		frame, more = frames.Next()
		// A function's name has its package's path without the version and without this machine's folders.
		folder, name := path.Split(frame.Function)
		folder += strings.SplitN(name, ".", 2)[0]
		if folder == library || strings.HasPrefix(folder, library+"/") {
			return folder + "/" + path.Base(frame.File) + ":" + strconv.Itoa(frame.Line)
		}
	}
	return ""
}

// Version is the version of a module that this program was built with.
func Version(module string) string {
	if build, ok := debug.ReadBuildInfo(); ok {
		for _, dependency := range build.Deps {
			if dependency.Path == module {
				return strings.TrimPrefix(dependency.Version, "v")
			}
		}
	}
	return "unknown"
}

// Header is a record's header as the protocol prints it.
type Header [2]any

// NewHeader is a header. A key that is not UTF-8 is printed in hex.
func NewHeader(key string, value []byte) Header { return Header{Text(key), Hex(value)} }

// Record is the JSON form of a record. The timestamp is in milliseconds; nil means that the format has none.
func Record(offset int64, timestamp *int64, key, value []byte, headers []Header) Object {
	result := Object{"offset": Long(offset), "timestamp": nil, "key": HexOrDigest(key), "value": HexOrDigest(value)}
	if timestamp != nil {
		result["timestamp"] = Long(*timestamp)
	}
	result["headers"] = append([]Header{}, headers...) // [], not null
	return result
}

// CodecName is Kafka's name of a codec id, or the id as text if Kafka has no such codec.
func CodecName(id int) string {
	if names := [...]string{"none", "gzip", "snappy", "lz4", "zstd"}; id < len(names) {
		return names[id]
	}
	return strconv.Itoa(id)
}

// Long is a 64-bit integer as decimal text: some JSON parsers lose its last digits.
func Long(value int64) string { return strconv.FormatInt(value, 10) }

// Hex is bytes in hex, or null.
func Hex(data []byte) any {
	if data == nil {
		return nil
	}
	return hex.EncodeToString(data)
}

// HexOrDigest is bytes in hex, null, or the digest of a long value.
func HexOrDigest(data []byte) any {
	if len(data) <= largestHexValueBytes {
		return Hex(data)
	}
	return Object{"sha256": fmt.Sprintf("%x", sha256.Sum256(data)), "size": len(data)}
}

// Text is text, or {"hex": …} for bytes that are not UTF-8.
func Text(text string) any {
	if utf8.ValidString(text) {
		return text
	}
	return Object{"hex": hex.EncodeToString([]byte(text))}
}

// Shown is text with U+FFFD in place of bytes that are not UTF-8, as many as Java shows. Go keeps such bytes in a
// string, but the strings of a message have no other form in the protocol.
func Shown(text string) string {
	var shown strings.Builder
	for len(text) > 0 {
		letter, size := utf8.DecodeRuneInString(text)
		if letter == utf8.RuneError && size == 1 {
			size = malformed(text)
		}
		shown.WriteRune(letter)
		text = text[size:]
	}
	return shown.String()
}

// malformed is how many bytes Java replaces by one U+FFFD: the start of a letter that could have gone on, or a
// surrogate.
func malformed(text string) int {
	more, low, high := 0, byte(0x80), byte(0xbf)
	switch first := text[0]; {
	case first >= 0xc2 && first < 0xe0:
		more = 1
	case first >= 0xe0 && first < 0xf0:
		more = 2
	case first >= 0xf0 && first < 0xf5:
		more = 3
	}
	switch text[0] {
	case 0xe0:
		low = 0xa0
	case 0xf0:
		low = 0x90
	case 0xf4:
		high = 0x8f
	}
	size := 1
	for size <= more && size < len(text) && text[size] >= low && text[size] <= high {
		size, low, high = size+1, 0x80, 0xbf
	}
	return size
}
