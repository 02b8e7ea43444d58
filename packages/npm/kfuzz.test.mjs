import assert from 'node:assert/strict'
import { test } from 'node:test'
import { judge, run, vectors } from './kfuzz.mjs'

function refuse() {
  throw new Error('no')
}

// It refuses everything, which is right for invalid vectors alone.
run(refuse, { match: ['records/v2/count/negative-one'] })
run(refuse, { match: ['records/v2/header/minimal'], expected: { 'records/v2/header/minimal': 'it refuses everything' } })

test('what is wrong is said', async () => {
  const said = new Set()
  for (const vector of vectors.filter(one => !one.recipe)) {
    const data = Buffer.from(vector.hex, 'hex')
    assert.equal((await judge(vector, refuse, data)) !== '', vector.verdict === 'valid', vector.id)
    const wrong = vector.verdict === 'invalid' || vector.records.length > 0
    assert.equal((await judge(vector, () => [], data)) !== '', wrong, vector.id)
    said.add(vector.verdict)
  }
  assert.equal(said.size, 3)
})

test('an unknown name is an error', () => {
  assert.throws(() => run(refuse, { match: ['no/such'] }), /no vector matches/)
  assert.throws(() => run(refuse, { expected: { 'no/such': 'x' } }), /there is no vector no\/such/)
})
