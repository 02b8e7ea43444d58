// Your decoder as a testee of kfuzz. Put the call to it into decodeRecords; README.md has the next steps.
package main

import (
	testee "kfuzz_testee"
)

// library is the module path of your decoder. A panic then names the line of source inside it.
const library = "example.com/my-decoder"

func main() {
	hello := testee.Object{
		"name": "my-decoder", "version": "1",
		"operations": []string{"decode-records"},
		"roles":      []string{"consumer"},
		// The formats that your decoder can read. kfuzz asks for nothing else.
		"magic":      []int{0, 1, 2},
		"codecs":     []string{"none", "gzip", "snappy", "lz4", "zstd"},
		"checks_crc": true,
		"outcomes":   []string{"panic"},
	}
	testee.Serve(hello, library, testee.Answers{"decode-records": decodeRecords})
}

// decodeRecords answers with what your decoder makes of the bytes in request.Hex, the record data of a fetch.
func decodeRecords(request testee.Request) testee.Object {
	// read, err := mydecoder.Decode(request.Hex)
	// if err != nil {
	//	return testee.Object{"outcome": "rejected", "error": err.Error()}
	// }
	// records := []testee.Object{}
	// for _, r := range read {
	//	records = append(records, testee.Record(r.Offset, &r.TimestampMs, r.Key, r.Value, nil))
	// }
	// return testee.Object{"outcome": "accepted", "records": records}
	return testee.Unsupported("no decoder yet: call yours in decodeRecords")
}
