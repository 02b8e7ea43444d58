// Reads a file of record batches with the decoder of fetch responses in kafkajs: node records.mjs FILE

import { existsSync, readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { Worker } from 'node:worker_threads'

const require = createRequire(import.meta.url)
const { CompressionCodecs, CompressionTypes, KafkaJSError } = require('kafkajs')
const LZ4 = require('kafkajs-lz4')
const Batch = require('kafkajs/src/consumer/batch')
const Decoder = require('kafkajs/src/protocol/decoder')
const decodeMessages = require('kafkajs/src/protocol/requests/fetch/v4/decodeMessages')

CompressionCodecs[CompressionTypes.Snappy] = require('kafkajs-snappy')
CompressionCodecs[CompressionTypes.LZ4] = new LZ4().codec

// A decoder that hangs blocks this thread, so another one ends the program.
const late = "require('fs').writeSync(2, 'no end after 30 s\\n'); process.kill(process.pid, 'SIGKILL')"
new Worker(`setTimeout(() => { ${late} }, 30000)`, { eval: true }).unref()

let data = readFileSync(process.argv[2])
let count = 0
let stalled = false
let offset = -(2n ** 63n)
const partition = { partition: 0, highWatermark: '0', abortedTransactions: [] }
const length = bytes => (bytes == null ? 'null' : bytes.length)

try {
  // Each turn is a fetch: the broker sends everything from the batch on that holds the next offset.
  while (!stalled && (data = from(offset, data)).length > 0) {
    const size = Buffer.alloc(4)
    size.writeInt32BE(data.length)
    const messages = await decodeMessages(new Decoder(Buffer.concat([size, data])))
    const batch = new Batch('topic', String(offset), { ...partition, messages })
    for (const { offset, timestamp, key, value, headers = {} } of batch.messages) {
      const names = Object.keys(headers).length
      console.log(`offset ${offset} timestamp ${timestamp} key ${length(key)} value ${length(value)} headers ${names}`)
      count++
    }
    stalled = batch.rawMessages.length === 0
    if (!stalled) offset = BigInt(batch.lastOffset()) + 1n
  }
  if (stalled) console.log(`stalled: no record of a whole batch and no error; the next fetch is at ${offset} again`)
  else console.log(`records: ${count}`)
} catch (error) {
  if (!(error instanceof KafkaJSError)) throw error
  console.log(`error: ${error.name}: ${error.message}`)
} finally {
  // On Linux: the peaks of address space and memory.
  const status = '/proc/self/status'
  if (existsSync(status)) console.error(...readFileSync(status, 'latin1').match(/Vm(Peak|HWM).*/g))
}

/** What a broker sends: the batch that holds the offset, and all behind it, or nothing if no whole batch is left. */
function from(offset, data) {
  while (data.length >= 17) {
    const end = 12 + data.readInt32BE(8)
    if (end > data.length) break
    const delta = data[16] === 2 && data.length >= 27 ? data.readInt32BE(23) : 0
    if (data.readBigInt64BE(0) + BigInt(delta) >= offset || end < 12) return data
    data = data.subarray(end)
  }
  return Buffer.alloc(0)
}
