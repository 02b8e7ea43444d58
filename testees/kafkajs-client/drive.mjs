// Drives kafkajs: its consumer in a group with `eachMessage`, and its producer.
//
// The library never checks a CRC. Headers are an object of names.

import { drive } from '../node/kfuzz_driver.mjs'
import { Unsupported, bytesOf, installedVersion, recordJson } from '../node/kfuzz_testee.mjs'
import { createRequire } from 'node:module'

const require = createRequire(import.meta.url)
const { CompressionCodecs, CompressionTypes, Kafka, Partitioners, logLevel } = require('kafkajs')
// Versions before 1.16 do not export it.
const { KafkaJSError } = require('./node_modules/kafkajs/src/errors')
const LZ4 = require('kafkajs-lz4')
const zstd = require('@mongodb-js/zstd')

CompressionCodecs[CompressionTypes.Snappy] = require('kafkajs-snappy')
CompressionCodecs[CompressionTypes.LZ4] = new LZ4().codec
// The package that kafkajs names does the same with another binding, which cannot be compiled for Node 20.
CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: ({ buffer }) => zstd.compress(buffer),
  decompress: buffer => zstd.decompress(buffer)
})

const TYPE_OF_CODEC = { none: 'None', gzip: 'GZIP', snappy: 'Snappy', lz4: 'LZ4', zstd: 'ZSTD' }
const WAIT_MS = 5
const HEARTBEAT_MS = 50
// The offset that a transaction commits for a group.
const COMMITTED_OFFSET = '1'
// After an error, kafkajs starts a consumer again in this time, even if its user has disconnected it since. The last
// option forbids that: otherwise the consumers of all refused questions would fetch until the driver ends.
const RETRY = { initialRetryTime: 1, maxRetryTime: 1, restartOnFailure: async () => false }

function client(address, requestTimeout) {
  return new Kafka({ clientId: 'kfuzz', brokers: address.split(','), logLevel: logLevel.NOTHING, retry: RETRY, requestTimeout })
}

async function open(
  { address, topic, isolation, offset, reset, group, continues, request_timeout_ms: requestTimeout },
  inbox
) {
  const consumer = client(address, requestTimeout).consumer({
    groupId: group ?? `${topic}-${process.pid}`,
    maxWaitTimeInMs: WAIT_MS,
    readUncommitted: isolation === 'read_uncommitted',
    ...(group && { heartbeatInterval: HEARTBEAT_MS })
  })
  consumer.on(consumer.events.CRASH, ({ payload }) => inbox.fail(payload.error))
  await consumer.connect()
  await consumer.subscribe({ topic, fromBeginning: reset !== 'latest' })
  // The offset that a member commits, as its users count it. Without a group, positions are the caller's.
  let next
  const commit = () => consumer.commitOffsets([{ topic, partition: 0, offset: next }])
  const eachMessage = async ({ message }) => {
    next = String(BigInt(message.offset) + 1n)
    await inbox.put(messageJson(message))
    // After an error, the library begins again where its group has committed.
    if (continues) await commit()
  }
  await consumer.run({ autoCommit: false, eachMessage })
  if (offset !== '0') consumer.seek({ topic, partition: 0, offset })
  return { close: () => consumer.disconnect(), commit }
}

/** A header that is repeated has a list of values. */
function messageJson({ offset, timestamp, key, value, headers = {} }) {
  const pairs = Object.entries(headers).flatMap(([name, one]) => [one].flat().map(data => [name, data]))
  return recordJson({ offset, timestamp, key, value, headers: pairs })
}

async function producing(
  { address, compression, idempotent, transactional_id: transactionalId, group, abort, request_timeout_ms: requestTimeout },
  use
) {
  if (!(compression in TYPE_OF_CODEC)) throw new Unsupported(`the codec ${compression}`)
  const sent = { compression: CompressionTypes[TYPE_OF_CODEC[compression]] }
  // One request, so the library reports one offset, which is the first record's.
  const sendWith = sender => async (records, topic) => {
    const [first] = await sender.send({ ...sent, topic, messages: records.map(messageOf) })
    return [first.baseOffset]
  }
  const producer = client(address, requestTimeout).producer({
    idempotent,
    ...(transactionalId && { transactionalId, maxInFlightRequests: 1 }),
    createPartitioner: Partitioners?.DefaultPartitioner
  })
  try {
    await producer.connect()
    if (group) {
      await use(async (records, topic) => {
        const transaction = await producer.transaction()
        const offsets = await sendWith(transaction)(records, topic)
        const topics = [{ topic, partitions: [{ partition: 0, offset: COMMITTED_OFFSET }] }]
        await transaction.sendOffsets({ consumerGroupId: group, topics })
        await transaction.commit()
        return offsets
      })
    } else if (transactionalId) {
      const transaction = await producer.transaction()
      await use(sendWith(transaction))
      await (abort ? transaction.abort() : transaction.commit())
    } else {
      await use(sendWith(producer))
    }
  } finally {
    await producer.disconnect()
  }
}

/** What a record leaves out, the message leaves out. */
function messageOf({ key, value, headers, ...rest }) {
  const message = { ...rest, partition: 0, value: bytesOf(value), headers: headersOf(headers) }
  if (key !== undefined) message.key = bytesOf(key)
  return message
}

function headersOf(pairs) {
  const headers = Object.create(null)
  for (const [name, hex] of pairs) {
    if (typeof name !== 'string') throw new Unsupported('a header key that is not UTF-8')
    headers[name] = Object.hasOwn(headers, name) ? [headers[name], bytesOf(hex)].flat() : bytesOf(hex)
  }
  return headers
}

await drive(
  {
    version: installedVersion(import.meta.url, 'kafkajs'),
    produces: ['idempotent', 'transactions', 'sends', 'topics', 'groups'],
    converses: ['reset', 'group', 'abort', 'timeout'],
    codecs: Object.keys(TYPE_OF_CODEC).filter(name => TYPE_OF_CODEC[name] in CompressionTypes), // no zstd before 1.4.1
    checks_crc: false,
    headers: 'map'
  },
  { open, producing },
  { library: 'kafkajs', isRejection: error => error instanceof KafkaJSError }
)
