// @platformatic/kafka as a testee: reads the records of a fetch and shows what its consumer's stream hands out.
//
// It calls the reader of record batches that the parsers of fetch responses call. Then it does with the batches what
// `#pushRecords` of messages-stream.js does, which is private. The library reads magic 2 only, checks no CRC, and
// never shows control records. zstd is missing because it depends on Node's version: Node 20 lacks it.

import { Unsupported, bytesOf, installedVersion, recordJson, serve } from '../node/kfuzz_testee.mjs'
// The package exports only its main file.
import { HIDDEN, decodeMessage, encodeMessage, messageVersions } from './messages.mjs'
import { GenericError } from './node_modules/@platformatic/kafka/dist/errors.js'
import { Reader } from './node_modules/@platformatic/kafka/dist/protocol/reader.js'
import * as records from './node_modules/@platformatic/kafka/dist/protocol/records.js'
import { existsSync } from 'node:fs'

// Versions before 1.27 have neither package.
const { OutOfBoundsError } = (await optional('@platformatic/dynamic-buffer')) ?? { OutOfBoundsError: GenericError }
const crc32c = (await optional('@platformatic/wasm-utils'))?.crc32c
const { createRecordsBatch } = records
const readBatches = records.readRecordsBatches
  ? data => records.readRecordsBatches(Reader.from(data))
  : (await import('./older.mjs')).readBatches
// Versions without this constant hand out control records.
const IS_CONTROL = records.IS_CONTROL ?? 0
const FROM_THE_START = -(2n ** 63n)

/** A package that not all versions have. Without the first test, Node would find the pinned version's, further up. */
async function optional(name) {
  return existsSync(new URL(`node_modules/${name}`, import.meta.url)) ? import(name) : undefined
}

function decodeRecords({ hex }, said) {
  consume(Buffer.from(hex, 'hex'), FROM_THE_START, said)
}

// The stream gives the isolation level to the broker, but does not look at the aborted transactions of the response.
function decodeStream({ steps, fetch_offset: fetchOffset = '0' }, said) {
  const next = consume(Buffer.from(steps.join(''), 'hex'), BigInt(fetchOffset), said)
  said.next_offset = String(next)
}

/** Collect the records from `fetchOffset` on, and return the offset of the next fetch. */
function consume(data, fetchOffset, said) {
  // When the codecs' memory grows, the library's view of it becomes invalid. A call with data renews the view, so
  // answers do not depend on earlier requests.
  crc32c?.(Buffer.alloc(1))
  const batches = readBatches(data)
  let next = fetchOffset
  said.records = []
  for (const batch of batches) {
    next = batch.firstOffset + BigInt(batch.lastOffsetDelta) + 1n
    if (batch.attributes & IS_CONTROL) continue
    for (const { offsetDelta, timestampDelta, key, value, headers } of batch.records) {
      const offset = batch.firstOffset + BigInt(offsetDelta)
      if (offset < fetchOffset) continue
      // Without deserializers the stream hands out a Map with a Buffer for each header, so equal keys are kept.
      said.records.push(recordJson({ offset, timestamp: batch.firstTimestamp + timestampDelta, key, value, headers }))
    }
  }
  return next
}

function encodeRecords({ batches }, said) {
  said.hex = Buffer.concat(batches.map(recordsBatch)).toString('hex')
}

function recordsBatch(batch) {
  const refuse = (condition, what) => {
    if (condition) throw new Unsupported(`the encoder cannot write ${what}`)
  }
  const { records } = batch
  refuse(batch.magic !== 2, 'old messages')
  refuse(batch.timestamp_type !== 'create', 'log append time')
  refuse(batch.control, 'control batches')
  refuse(batch.delete_horizon != null, 'a delete horizon')
  refuse(records.length === 0, 'a batch without records')
  const dense = records.every((record, index) => record.offset === String(index))
  refuse(!dense || batch.last_offset !== String(records.length - 1), 'offsets other than 0, 1, 2')
  const messages = records.map(record => ({
    topic: 'kfuzz',
    partition: 0,
    timestamp: BigInt(record.timestamp),
    key: bytesOf(record.key),
    value: bytesOf(record.value),
    headers: new Map(record.headers.map(([key, value]) => [headerKey(key), bytesOf(value)]))
  }))
  const written = createRecordsBatch(messages, {
    compression: batch.compression,
    producerId: BigInt(batch.producer_id),
    producerEpoch: batch.producer_epoch,
    partitionLeaderEpoch: batch.partition_leader_epoch,
    // The producer counts its sequences in a map.
    sequences: { getWithDefault: () => batch.base_sequence },
    transactionalId: batch.transactional ? 'kfuzz' : undefined
  })
  return written.buffer
}

function headerKey(key) {
  return typeof key === 'string' ? Buffer.from(key) : Buffer.from(key.hex, 'hex')
}

await serve(
  {
    name: 'platformatic-kafka',
    version: installedVersion(import.meta.url, '@platformatic/kafka'),
    roles: ['consumer'],
    magic: [2],
    codecs: ['none', 'gzip', 'snappy', 'lz4'],
    checks_crc: false,
    control: 'hidden',
    side: 'client',
    messages: messageVersions(),
    hidden: HIDDEN,
    unknown_tags: 'skipped'
  },
  {
    'decode-records': decodeRecords,
    'decode-stream': decodeStream,
    'encode-records': encodeRecords,
    'decode-message': decodeMessage,
    'encode-message': encodeMessage
  },
  {
    library: '@platformatic/kafka',
    isRejection: error => error instanceof OutOfBoundsError || GenericError.isGenericError(error)
  }
)
