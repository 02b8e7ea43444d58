package main

import (
	"encoding/binary"
	"math"
	"net"

	testee "kfuzz_testee"
)

const (
	topic       = "kfuzz"
	apiFetch    = 1
	apiMetadata = 3
	apiVersions = 18
	// The newest version of Fetch that the library uses, and the version of Metadata that all of its versions use.
	fetchVersion    = 10
	metadataVersion = 1
)

// serve plays the broker until the library closes the connection. Every fetch, or request for metadata, gets the same
// bytes.
func serve(conn net.Conn, data []byte, highWatermark int64, aborted []testee.Aborted) {
	for {
		request, err := testee.ReadSized(conn)
		if err != nil {
			return
		}
		response := append(make([]byte, 4), request[4:8]...) // room for the size, then the correlation id
		switch api := binary.BigEndian.Uint16(request); api {
		case apiVersions:
			response = append(response, 0, 0) // error
			response = binary.BigEndian.AppendUint32(response, 2)
			for _, value := range []uint16{apiFetch, 0, fetchVersion, apiMetadata, 0, metadataVersion} {
				response = binary.BigEndian.AppendUint16(response, value)
			}
		case apiFetch:
			response = fetchResponse(response, data, highWatermark, aborted)
		case apiMetadata:
			response = append(response, data...)
		default:
			panic(api) // a fault of this testee
		}
		binary.BigEndian.PutUint32(response, uint32(len(response)-4))
		if _, err := conn.Write(response); err != nil {
			return
		}
	}
}

func fetchResponse(b, data []byte, highWatermark int64, aborted []testee.Aborted) []byte {
	big := binary.BigEndian
	b = append(b, make([]byte, 4+2+4)...) // throttle time, error, session
	b = big.AppendUint32(b, 1)
	b = append(big.AppendUint16(b, uint16(len(topic))), topic...)
	b = big.AppendUint32(b, 1)
	b = append(b, make([]byte, 4+2)...) // partition, error
	b = big.AppendUint64(b, uint64(highWatermark))
	b = big.AppendUint64(b, math.MaxInt64) // last stable offset
	b = big.AppendUint64(b, 0)
	b = big.AppendUint32(b, uint32(len(aborted)))
	for _, one := range aborted {
		b = big.AppendUint64(b, uint64(one.ProducerID))
		b = big.AppendUint64(b, uint64(one.FirstOffset))
	}
	b = big.AppendUint32(b, uint32(len(data)))
	return append(b, data...)
}
