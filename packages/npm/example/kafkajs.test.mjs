// kafkajs's own decoder of a fetch. It has gzip; other codecs are plugins.

import { createRequire } from 'node:module'
import { run } from 'kfuzz-vectors'

const require = createRequire(import.meta.url)
const Decoder = require('kafkajs/src/protocol/decoder')
const decodeMessages = require('kafkajs/src/protocol/requests/fetch/v4/decodeMessages')

async function decode(data) {
  const size = Buffer.alloc(4)
  size.writeInt32BE(data.length)
  const messages = await decodeMessages(new Decoder(Buffer.concat([size, data])))
  return messages.map(({ offset, timestamp, key, value, headers }) => ({
    offset,
    timestamp,
    key,
    value,
    headers: Object.entries(headers ?? {}),
  }))
}

run(decode, {
  match: ['records/v2/codec/gzip', 'records/v2/codec/zstd', 'records/v2/header/minimal'],
  codecs: ['none', 'gzip'],
})
