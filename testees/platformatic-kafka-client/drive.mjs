// Drives @platformatic/kafka: the stream of its consumer with offsets of the caller's, and its producer.
//
// The library reads magic 2 only and checks no CRC. zstd is missing because it depends on Node's version: Node 20 lacks it.
// The keys of headers are read as text, as all users do who look for a header by its name. In a Map of buffers, which the
// library makes otherwise, no key equals another.

import { drive } from '../node/kfuzz_driver.mjs'
import { bytesOf, installedVersion, recordJson } from '../node/kfuzz_testee.mjs'
import * as library from '@platformatic/kafka'

const { Consumer, FetchIsolationLevels, GenericError, MessagesStreamModes, ProduceAcks, Producer, stringDeserializer } = library

// Versions from 2.0 on need this function, which Node 20 lacks.
Promise.withResolvers ??= () => {
  const made = {}
  made.promise = new Promise((resolve, reject) => Object.assign(made, { resolve, reject }))
  return made
}

const WAIT_MS = 5
const HEARTBEAT_MS = 50

function options(address, requestTimeout) {
  return { clientId: 'kfuzz', bootstrapBrokers: address.split(','), retryDelay: 1, ...(requestTimeout && { requestTimeout }) }
}

async function open({ address, topic, isolation, offset, reset, group, protocol, request_timeout_ms: limit }, inbox) {
  const consumer = new Consumer({
    ...options(address, limit),
    groupId: group ?? `${topic}-${process.pid}`,
    ...(protocol ? { groupProtocol: protocol } : group && { heartbeatInterval: HEARTBEAT_MS }),
    deserializers: { headerKey: stringDeserializer }
  })
  const from = group
    ? { mode: MessagesStreamModes.COMMITTED, fallbackMode: reset }
    : reset
      ? { mode: reset }
      : { mode: MessagesStreamModes.MANUAL, offsets: [{ topic, partition: 0, offset: BigInt(offset) }] }
  const stream = await consumer.consume({
    topics: [topic],
    ...from,
    isolationLevel: FetchIsolationLevels[isolation.toUpperCase()],
    maxWaitTime: WAIT_MS,
    autocommit: false
  })
  stream.on('error', error => inbox.fail(error))
  // The last message knows how to commit its own offset.
  let last
  stream.on('data', async message => {
    last = message
    // From 2.11 on, this list has also the headers that the map loses.
    const headers = message.headerEntries ?? [...message.headers]
    const room = inbox.put(recordJson({ ...message, headers }))
    if (!room) return
    stream.pause()
    await room
    stream.resume()
  })
  return { close: () => consumer.close(true), commit: () => last.commit() }
}

async function producing(
  { address, compression, idempotent, transactional_id: transactionalId, abort, request_timeout_ms: limit },
  use
) {
  const messageOf = ({ timestamp, key, value, headers }) => ({
    partition: 0,
    ...(timestamp !== undefined && { timestamp: BigInt(timestamp) }),
    ...(key !== undefined && { key: bytesOf(key) ?? undefined }),
    value: bytesOf(value) ?? undefined,
    headers: new Map(headers.map(([name, hex]) => [nameBytes(name), bytesOf(hex)]))
  })
  const sent = { compression, acks: ProduceAcks.ALL }
  // One request, so the library reports one offset, which is the first record's.
  const sendWith = sender => async (records, topic) => {
    const messages = records.map(record => ({ topic, ...messageOf(record) }))
    const { offsets } = await sender.send({ ...sent, messages })
    return offsets.map(({ offset }) => String(offset))
  }
  const producer = new Producer({
    ...options(address, limit),
    idempotent: idempotent || Boolean(transactionalId),
    ...(transactionalId && { transactionalId })
  })
  try {
    if (transactionalId) {
      const transaction = await producer.beginTransaction()
      await use(sendWith(transaction))
      await (abort ? transaction.abort() : transaction.commit())
    } else {
      await use(sendWith(producer))
    }
  } finally {
    await producer.close()
  }
}

function nameBytes(name) {
  return typeof name === 'string' ? Buffer.from(name) : Buffer.from(name.hex, 'hex')
}

await drive(
  {
    version: installedVersion(import.meta.url, '@platformatic/kafka'),
    produces: ['idempotent', 'transactions', 'sends', 'topics'],
    converses: ['reset', 'group', 'abort', 'timeout', ...('GroupProtocols' in library ? ['consumer-group'] : [])],
    magic: [2],
    codecs: ['none', 'gzip', 'snappy', 'lz4'],
    checks_crc: false
  },
  { open, producing },
  { library: '@platformatic/kafka', isRejection: error => GenericError.isGenericError(error) }
)
