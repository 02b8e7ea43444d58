// Reads a file of record batches with the reader of fetch responses in @platformatic/kafka: node records.mjs FILE

import { existsSync, readFileSync } from 'node:fs'
import { Worker } from 'node:worker_threads'
// The package exports only its main file.
import { GenericError } from '../node_modules/@platformatic/kafka/dist/errors.js'
import { Reader } from '../node_modules/@platformatic/kafka/dist/protocol/reader.js'
import { IS_CONTROL, readRecordsBatches } from '../node_modules/@platformatic/kafka/dist/protocol/records.js'
import { OutOfBoundsError } from '@platformatic/dynamic-buffer'

// A decoder that hangs blocks this thread, so another one ends the program.
const late = "require('fs').writeSync(2, 'no end after 30 s\\n'); process.kill(process.pid, 'SIGKILL')"
new Worker(`setTimeout(() => { ${late} }, 30000)`, { eval: true }).unref()

const length = bytes => (bytes === null ? 'null' : bytes.length)
let count = 0

try {
  for (const batch of readRecordsBatches(Reader.from(readFileSync(process.argv[2])))) {
    if (batch.attributes & IS_CONTROL) continue // as the consumer's stream does
    for (const { offsetDelta, timestampDelta, key, value, headers } of batch.records) {
      const [offset, timestamp] = [batch.firstOffset + BigInt(offsetDelta), batch.firstTimestamp + timestampDelta]
      const lengths = `key ${length(key)} value ${length(value)} headers ${headers.length}`
      console.log(`offset ${offset} timestamp ${timestamp} ${lengths}`)
      count++
    }
  }
  console.log(`records: ${count}`)
} catch (error) {
  if (!(error instanceof OutOfBoundsError || GenericError.isGenericError(error))) throw error
  console.log(`error: ${error.name}: ${error.message}`)
} finally {
  // On Linux: the peaks of address space and memory.
  const status = '/proc/self/status'
  if (existsSync(status)) console.error(...readFileSync(status, 'latin1').match(/Vm(Peak|HWM).*/g))
}
