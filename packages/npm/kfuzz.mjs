// Shows the kfuzz vectors to a decoder of Kafka record batches: a subtest of node:test for each.

import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { isDeepStrictEqual } from 'node:util'

export const vectors = JSON.parse(readFileSync(new URL('vectors.json', import.meta.url), 'utf8')).vectors

/**
 * Show each vector to `decode` in a subtest with the vector's id.
 *
 * `decode(bytes)` returns, or promises, the records that a consumer gets, and throws if it must not read the bytes. A
 * record is `{offset, timestamp, key, value, headers}`: offset and timestamp as BigInt, number or text; key and value as
 * bytes or null; headers as pairs of a key (text or bytes) and a value. Records of control batches are left out.
 *
 * - `match`: ids, or the folders they are in, such as `records/v2/codec`; without it all vectors are shown.
 * - `codecs`, `magics`: what the decoder supports; vectors that need more are skipped.
 * - `expected`: an object of ids that fail, each with the reason. One that passes is a failure, so that the list stays true.
 * - `bombs`: a folder with the bytes of the vectors that are too large for this package, which `kfuzz vectors copy --bombs`
 *   makes by their recipes; without it they are skipped.
 */
export function run(decode, { match = [], codecs, magics, expected = {}, bombs } = {}) {
  const chosen = vectors.filter(({ id }) => matches(id, match))
  if (chosen.length === 0) throw new Error(`no vector matches ${match.join(', ')}`)
  const unknown = Object.keys(expected).find(id => !vectors.some(vector => vector.id === id))
  if (unknown) throw new Error(`there is no vector ${unknown}, which is expected to fail`)
  for (const vector of chosen) {
    test(vector.id, async t => {
      const reason = missing(vector, { codecs, magics, bombs })
      if (reason) return t.skip(reason)
      const problem = await judge(vector, decode, bytesOf(vector, bombs))
      const why = expected[vector.id]
      if (why !== undefined && problem) return t.skip(`fails as expected: ${why} (${problem})`)
      if (why !== undefined) throw new Error(`passes, but is expected to fail: ${why}`)
      if (problem) throw new Error(`${vector.summary}: ${problem}`)
    })
  }
}

function matches(id, match) {
  return match.length === 0 || match.some(one => id === one || id.startsWith(`${one.replace(/\/$/, '')}/`))
}

function missing(vector, { codecs, magics, bombs }) {
  const codec = codecs && vector.codecs.find(one => !codecs.includes(one))
  if (codec) return `needs codec ${codec}`
  const magic = magics && vector.magics.find(one => !magics.includes(one))
  if (magic !== undefined && magics) return `needs magic ${magic}`
  return vector.recipe && !bombs ? 'is a bomb, and the options name no folder of bombs' : ''
}

function bytesOf(vector, bombs) {
  if (!vector.recipe) return Buffer.from(vector.hex, 'hex')
  const data = readFileSync(join(bombs, `${vector.recipe}.bin`))
  if (createHash('sha256').update(data).digest('hex') !== vector.sha256) {
    throw new Error(`${vector.recipe}.bin holds other bytes; make it again with \`kfuzz vectors copy --bombs\``)
  }
  return data
}

/** Says what is wrong with the decoder's answer; returns '' if it is right. */
export async function judge(vector, decode, data) {
  let records
  try {
    records = await decode(data)
  } catch (error) {
    return vector.verdict === 'valid' ? `refused, but it is valid: ${error}` : ''
  }
  if (vector.verdict === 'invalid') return 'accepted, but it is invalid'
  if (!vector.records) return ''
  if (records.length !== vector.records.length) return `${records.length} records, expected ${vector.records.length}`
  for (const [i, want] of vector.records.entries()) {
    const have = shown(records[i])
    for (const field of Object.keys(have)) {
      if (!isDeepStrictEqual(have[field], want[field])) {
        const [a, b] = [have[field], want[field]].map(one => JSON.stringify(one).slice(0, 200))
        return `record ${i}: ${field} is ${a}, expected ${b}`
      }
    }
  }
  return ''
}

function shown({ offset, timestamp, key, value, headers = [] }) {
  const pairs = headers.map(([name, content]) => [hex(name), hex(content)])
  return { offset: `${offset}`, timestamp: `${timestamp}`, key: hex(key), value: hex(value), headers: pairs }
}

function hex(data) {
  return data === null || data === undefined ? null : Buffer.from(data).toString('hex')
}
