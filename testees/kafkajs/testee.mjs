// kafkajs as a testee: decodes the records of a fetch and shows what the consumer hands to `eachMessage`.
//
// It calls the decoder of a fetch response and the consumer's `Batch`, which leaves out control records and aborted
// records. kafkajs has no batches that a user can see, so the answers have flat records. It never checks a CRC.
// Headers are an object of names.

import { Stalled, Unsupported, bytesOf, installedVersion, recordJson, serve } from '../node/kfuzz_testee.mjs'
import { HIDDEN, VERSIONS, decodeMessage } from './messages.mjs'
import { existsSync } from 'node:fs'
import { createRequire } from 'node:module'

const require = createRequire(import.meta.url)
const { CompressionCodecs, CompressionTypes } = require('kafkajs')
const LZ4 = require('kafkajs-lz4')
const zstd = require('@mongodb-js/zstd')
// Each with its path: Node would take a file that an older version lacks from the node_modules of a folder above.
const Batch = require('./node_modules/kafkajs/src/consumer/batch')
const Decoder = require('./node_modules/kafkajs/src/protocol/decoder')
const Record = require('./node_modules/kafkajs/src/protocol/recordBatch/record/v0')
const decodeMessages = require('./node_modules/kafkajs/src/protocol/requests/fetch/v4/decodeMessages')
const { RecordBatch } = require('./node_modules/kafkajs/src/protocol/recordBatch/v0')
const { KafkaJSError } = require('./node_modules/kafkajs/src/errors')

// Versions before 1.14 take their integers from a package.
const hasLongs = existsSync(new URL('node_modules/long', import.meta.url))
const Long = require(hasLongs ? 'long' : './node_modules/kafkajs/src/utils/long')

CompressionCodecs[CompressionTypes.Snappy] = require('kafkajs-snappy')
CompressionCodecs[CompressionTypes.LZ4] = new LZ4().codec
// The package that kafkajs names does the same with another binding, which cannot be compiled for Node 20.
CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: ({ buffer }) => zstd.compress(buffer),
  decompress: buffer => zstd.decompress(buffer)
})

const TYPE_OF_CODEC = { none: 'None', gzip: 'GZIP', snappy: 'Snappy', lz4: 'LZ4', zstd: 'ZSTD' }
const FROM_THE_START = String(-(2n ** 63n))

function int64(value) {
  return Long.fromValue(String(value))
}

async function decodeRecords({ hex }, said) {
  await consume(Buffer.from(hex, 'hex'), FROM_THE_START, [], said)
}

async function decodeStream({ steps, isolation, aborted = [], fetch_offset: fetchOffset = '0' }, said) {
  const told = isolation === 'read_committed' ? aborted : []
  const transactions = told.map(one => ({ producerId: one.producer_id, firstOffset: one.first_offset }))
  await consume(Buffer.from(steps.join(''), 'hex'), fetchOffset, transactions, said)
}

/** Fetch until the log is read, and collect what `eachBatch` is given. The offsets move as runner.js moves them. */
async function consume(data, fetchOffset, abortedTransactions, said) {
  const records = []
  let [first, ...behind] = frames(data)
  for (let start = 0, offset = fetchOffset; ; ) {
    const fetched = data.subarray(start)
    const messages = await decodeMessages(new Decoder(Buffer.concat([int32(fetched.length), fetched])))
    // The high watermark is only for the lag, which nothing here asks for.
    const batch = new Batch('kfuzz', offset, { partition: 0, highWatermark: '0', abortedTransactions, messages })
    for (const message of batch.messages) records.push(messageJson(message))
    said.records = records
    // Version 1.11 has another name, for the messages that are not below the offset.
    if ((batch.rawMessages ?? batch.unfilteredMessages).length === 0) {
      if (first) throw new Stalled('no message of a whole batch, so the next fetch has the same offset')
      return
    }
    offset = String(BigInt(batch.lastOffset()) + 1n)
    // kafkajs often stops where the magic changes, and reads the rest with its next fetch. A broker then begins with
    // the first batch that was not read. Offsets that go back must not make it send a batch again.
    const read = messages.map(message => BigInt(message.offset)).reduce((a, b) => (a > b ? a : b))
    const next = behind.findIndex(frame => frame.lastOffset > read)
    if (next < 0) return
    first = behind[next]
    behind = behind.slice(next + 1)
    start = first.start
  }
}

/** The whole batches and messages, as a broker finds them. */
function* frames(data) {
  for (let start = 0; start + 17 <= data.length; ) {
    const end = start + 12 + data.readInt32BE(start + 8)
    if (end > data.length) return
    const delta = data[start + 16] > 1 && start + 27 <= data.length ? data.readInt32BE(start + 23) : 0
    yield { start, lastOffset: data.readBigInt64BE(start) + BigInt(delta) }
    if (end <= start) return
    start = end
  }
}

function int32(value) {
  const bytes = Buffer.alloc(4)
  bytes.writeInt32BE(value)
  return bytes
}

function messageJson({ offset, timestamp, key, value, headers = {} }) {
  return recordJson({ offset, timestamp, key, value, headers: headerPairs(headers) })
}

/** A header that is repeated has a list of values. */
function headerPairs(headers) {
  return Object.entries(headers).flatMap(([name, one]) => [one].flat().map(data => [name, data]))
}

async function encodeRecords({ batches }, said) {
  const written = []
  for (const batch of batches) written.push((await recordBatch(batch)).buffer)
  said.hex = Buffer.concat(written).toString('hex')
}

function recordBatch(batch) {
  const refuse = (condition, what) => {
    if (condition) throw new Unsupported(`the encoder cannot write ${what}`)
  }
  const { records } = batch
  refuse(batch.magic !== 2, 'offsets of old messages')
  refuse(batch.timestamp_type !== 'create', 'log append time')
  refuse(batch.control, 'control batches')
  refuse(batch.delete_horizon != null, 'a delete horizon')
  refuse(records.length === 0, 'a batch without records, which has no timestamp')
  const timestamps = records.map(record => BigInt(record.timestamp))
  const firstOffset = BigInt(batch.base_offset)
  return RecordBatch({
    compression: CompressionTypes[TYPE_OF_CODEC[batch.compression]],
    firstOffset: int64(firstOffset),
    firstTimestamp: int64(timestamps[0]),
    maxTimestamp: int64(timestamps.reduce((a, b) => (a > b ? a : b))),
    partitionLeaderEpoch: batch.partition_leader_epoch,
    lastOffsetDelta: Number(BigInt(batch.last_offset) - firstOffset),
    transactional: batch.transactional,
    producerId: int64(batch.producer_id),
    producerEpoch: batch.producer_epoch,
    firstSequence: batch.base_sequence,
    records: records.map((record, index) =>
      Record({
        offsetDelta: Number(BigInt(record.offset) - firstOffset),
        timestampDelta: int64(timestamps[index] - timestamps[0]),
        key: bytesOf(record.key),
        value: bytesOf(record.value),
        headers: headersOf(record.headers)
      })
    )
  })
}

function headersOf(pairs) {
  const headers = Object.create(null)
  for (const [name, hex] of pairs) {
    if (typeof name !== 'string') throw new Unsupported('the encoder cannot write a header key that is not UTF-8')
    headers[name] = name in headers ? [headers[name], bytesOf(hex)].flat() : bytesOf(hex)
  }
  const kept = headerPairs(headers).every(([name], index) => name === pairs[index][0])
  if (!kept) throw new Unsupported('an object cannot hold the headers in this order')
  return headers
}

await serve(
  {
    name: 'kafkajs',
    version: installedVersion(import.meta.url, 'kafkajs'),
    roles: ['consumer'],
    magic: [0, 1, 2],
    codecs: Object.keys(TYPE_OF_CODEC).filter(name => TYPE_OF_CODEC[name] in CompressionTypes), // no zstd before 1.4.1
    checks_crc: false,
    control: 'hidden',
    headers: 'map',
    side: 'client',
    messages: VERSIONS,
    hidden: HIDDEN
  },
  {
    'decode-records': decodeRecords,
    'decode-stream': decodeStream,
    'encode-records': encodeRecords,
    'decode-message': decodeMessage
  },
  { library: 'kafkajs', isRejection: error => error instanceof KafkaJSError }
)
