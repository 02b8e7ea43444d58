// The protocol kfuzz-testee/1 for testees in JavaScript: passes each request to a reader and writes the answer.
//
// Imports only Node's own modules, so that a testee contains no code of kfuzz. Import it before the library: then a
// library that prints while it loads cannot disturb the protocol. See testees/README.md.

import { isUtf8 } from 'node:buffer'
import { createHash } from 'node:crypto'
import { readFileSync, readSync, writeSync } from 'node:fs'

// Standard output is for the protocol only. All other output, such as console.log, goes to standard error.
Object.defineProperty(process, 'stdout', { get: () => process.stderr })

const LARGEST_HEX_VALUE_BYTES = 64 * 1024
const READ_BYTES = 256 * 1024

/** A request that the library cannot express. The answer is `unsupported`. */
export class Unsupported extends Error {}

/** The library gave neither an error nor progress. The answer is `stalled`. */
export class Stalled extends Error {}

/** The version that the installed package states. `folder` is a URL, like `import.meta.url`. */
export function installedVersion(folder, name) {
  return JSON.parse(readFileSync(new URL(`node_modules/${name}/package.json`, folder))).version
}

/** The JSON form of one record. Numbers may be bigint or text, null stands for no timestamp; `headers` are pairs. */
export function recordJson({ offset, timestamp, key, value, headers }) {
  return {
    offset: String(offset),
    timestamp: timestamp == null ? null : String(timestamp),
    key: octets(key),
    value: octets(value),
    headers: headers.map(([name, data]) => [headerKey(name), octets(data)])
  }
}

/** The bytes of the JSON form of a key or value. */
export function bytesOf(hex) {
  return hex === null ? null : Buffer.from(hex, 'hex')
}

function octets(data) {
  if (data == null) return null
  // If a library returns something other than bytes, send the bytes of its text.
  const bytes = Buffer.isBuffer(data) ? data : Buffer.from(String(data))
  if (bytes.length <= LARGEST_HEX_VALUE_BYTES) return bytes.toString('hex')
  return { sha256: createHash('sha256').update(bytes).digest('hex'), size: bytes.length }
}

function headerKey(key) {
  if (!Buffer.isBuffer(key)) return String(key)
  return isUtf8(key) ? key.toString() : { hex: key.toString('hex') }
}

/**
 * Answer requests until the input ends.
 *
 * `operations` has a function for each operation that the testee offers. It gets the request and an object: what it
 * puts there is part of the answer, even if it throws later. `isRejection` says whether the library documents an
 * error for bad input. `library` is the package whose lines of source are shown.
 */
export async function serve(handshake, operations, about) {
  const fixed = { protocol: 'kfuzz-testee/1', language: 'javascript', outcomes: ['stalled', 'panic'] }
  say({ ...fixed, operations: Object.keys(operations), ...handshake })
  for (const line of lines()) {
    const said = await answer(line, operations, about)
    // Let delayed work, such as an unhandled error event, run now so that it counts for this request.
    await new Promise(resolve => setImmediate(resolve))
    say(said)
  }
}

async function answer(line, operations, about) {
  let request
  try {
    request = JSON.parse(line)
    if (typeof request.id !== 'string') throw new TypeError('id must be a text')
  } catch (error) {
    return { id: null, outcome: 'fault', error: `BadRequest: ${describe(error)}` }
  }
  const { id } = request
  const operation = Object.hasOwn(operations, request.operation) && operations[request.operation]
  if (!operation) return { id, outcome: 'unsupported', error: `operation ${request.operation}` }
  if ((request.role ?? 'consumer') !== 'consumer') return { id, outcome: 'unsupported', error: `role ${request.role}` }
  const said = {}
  try {
    await settled(operation(request, said))
    return { id, outcome: 'accepted', ...said }
  } catch (error) {
    return { id, ...outcomeOf(error, about), ...(error instanceof Unsupported ? {} : said) }
  }
}

/** What an error means for the protocol: the outcome, the text, and the line of source that threw the first cause. */
export function outcomeOf(error, { library, isRejection }) {
  if (error instanceof Unsupported) return { outcome: 'unsupported', error: error.message }
  if (error instanceof Stalled) return { outcome: 'stalled', error: error.message }
  const outcome = error instanceof WebAssembly.RuntimeError ? 'panic' : isRejection(error) ? 'rejected' : 'fault'
  const first = firstCause(error)
  const at = sourceLine(first, library)
  const reason = first?.message === error?.message ? '' : ` (${describe(first)})`
  return { outcome, error: describe(error) + reason, ...(at && { at }) }
}

/** Libraries wrap an error in others, and collect those of their retries. */
function firstCause(error) {
  const inner = error?.errors?.[0] ?? error?.cause
  return inner instanceof Error ? firstCause(inner) : error
}

/** Wait for a promise. If nothing is left that could settle it, it is stalled: Node would end without a word. */
async function settled(promise) {
  let giveUp
  const dead = new Promise((_, reject) => {
    // setImmediate keeps Node alive until the next request has been read.
    giveUp = () => setImmediate(reject, new Stalled('a promise that nothing can settle any more'))
  })
  process.once('beforeExit', giveUp)
  try {
    return await Promise.race([promise, dead])
  } finally {
    process.off('beforeExit', giveUp)
  }
}

function describe(error) {
  const name = error?.name ?? typeof error
  return `${name}: ${error?.message ?? String(error)}`.replace(/\s+/g, ' ')
}

/**
 * The innermost line of `library` in the stack of an error, or of any other package: a codec may be one of its own.
 *
 * A callback of one of Node's modules has no line of a package in its stack. Then it is the module's line, such as
 * `node:zlib:189`: all errors of that module have one cause, because the library passes them on.
 */
function sourceLine(error, library) {
  const stack = String(error?.stack ?? '')
  const places = stack.matchAll(/\/node_modules\/(.+:\d+):\d+\)?$/gm)
  const inside = [...places].map(([, place]) => place)
  const own = inside.find(place => place.startsWith(`${library}/`))
  return own ? own.slice(library.length + 1) : inside[0] ?? stack.match(/\((node:(?!internal\/).+:\d+):\d+\)$/m)?.[1]
}

/** The lines of standard input. It blocks while it reads, so that only the library can keep Node's event loop busy. */
function* lines() {
  const buffer = Buffer.allocUnsafe(READ_BYTES)
  let pieces = []
  for (let count; (count = readSync(0, buffer)) > 0; ) {
    const [first, ...rest] = buffer.toString('latin1', 0, count).split('\n')
    pieces.push(first)
    for (const piece of rest) {
      const line = Buffer.from(pieces.join(''), 'latin1').toString()
      pieces = [piece]
      if (line) yield line
    }
  }
  if (pieces.join('')) yield pieces.join('')
}

/** Write one line. */
export function say(message) {
  let rest = Buffer.from(`${JSON.stringify(message)}\n`)
  while (rest.length) rest = rest.subarray(writeSync(1, rest))
}
