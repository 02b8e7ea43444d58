package fuzz

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// repair returns a copy with the CRC of each batch put right, and with the length of a last batch that is cut.
//
// Go has no hook for a mutator. Nearly all changes that it makes itself would stop at the CRC.
func repair(data []byte) []byte {
	data = bytes.Clone(data)
	for rest := data; len(rest) > 21; {
		length := int64(int32(binary.BigEndian.Uint32(rest[8:])))
		if length < 10 || 12+length > int64(len(rest)) {
			length = int64(len(rest)) - 12
			binary.BigEndian.PutUint32(rest[8:], uint32(length))
		}
		batch := rest[:12+length]
		if batch[16] < 2 {
			binary.BigEndian.PutUint32(batch[12:], crc32.ChecksumIEEE(batch[16:]))
		} else {
			binary.BigEndian.PutUint32(batch[17:], crc32.Checksum(batch[21:], castagnoli))
		}
		rest = rest[12+length:]
	}
	return data
}
