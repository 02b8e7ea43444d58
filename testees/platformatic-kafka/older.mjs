// Reads batches with versions before 1.22, which have no function for the batches of a partition: with the parser of a
// whole response to Fetch, version 17.

import { parseResponse } from './node_modules/@platformatic/kafka/dist/apis/consumer/fetch-v17.js'
import { Reader } from './node_modules/@platformatic/kafka/dist/protocol/reader.js'

export function readBatches(data) {
  const head = Buffer.concat([
    Buffer.alloc(4 + 2 + 4), // throttle time, error, session
    Buffer.from([2]), // one topic
    Buffer.alloc(16),
    Buffer.from([2]), // one partition
    Buffer.alloc(4 + 2 + 8 + 8 + 8), // its number, error and offsets
    Buffer.from([0]), // no aborted transactions
    Buffer.alloc(4)
  ])
  const frame = Buffer.concat([head, unsignedVarint(data.length + 1), data, Buffer.alloc(3)])
  return parseResponse(0, 1, 17, Reader.from(frame)).responses[0].partitions[0].records ?? []
}

function unsignedVarint(value) {
  const bytes = []
  for (; value > 127; value = Math.floor(value / 128)) bytes.push((value % 128) | 128)
  return Buffer.from([...bytes, value])
}
