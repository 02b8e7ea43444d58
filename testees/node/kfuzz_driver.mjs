// Kit for drivers in JavaScript: programs that drive one whole client, for testees/python/kfuzz_serving.py.
//
// testees/README.md describes the lines that a driver reads and writes. The client's program gives two functions (see `drive`). Nothing here does a step of the library: a consumer pushes
// what it hands out into an `Inbox`, and polling only takes it from there.

import { Unsupported, outcomeOf, say } from './kfuzz_testee.mjs'
import { createInterface } from 'node:readline'
import { setTimeout as sleep } from 'node:timers/promises'

// A library that repeats its records without an end must not fill the memory.
const ROOM_RECORDS = 1000
// So long an application waits until a consumer is open, or fails.
const OPEN_MS = 1000

/** What a consumer has handed out so far. */
class Inbox {
  #records = []
  #error
  #isOpen = true
  #arrived = () => {}
  #taken = []

  /** Give a record in its JSON form. Undefined if there is room for more, or a promise to wait for. */
  put(record) {
    if (!this.#isOpen) return
    this.#records.push(record)
    this.#arrived()
    if (this.#records.length >= ROOM_RECORDS) return new Promise(resolve => this.#taken.push(resolve))
  }

  /** Give the error that ended the consumer. Only the first one counts. */
  fail(error) {
    this.#error ??= { error }
    this.#arrived()
  }

  /** Take all records. If there are none, wait for one; then throw the error, if there is one. */
  async take(timeoutMs) {
    if (!this.#records.length && !this.#error) {
      await new Promise(resolve => {
        const timer = setTimeout(resolve, timeoutMs)
        this.#arrived = () => resolve(clearTimeout(timer))
      })
    }
    const records = this.#records.splice(0)
    this.#release()
    if (!records.length && this.#error) throw this.#error.error
    return records
  }

  close() {
    this.#isOpen = false
    this.#release()
  }

  #release() {
    for (const resolve of this.#taken.splice(0)) resolve()
  }
}

/**
 * Answer lines until the input ends. `hello` has the library's version, and other fields of the handshake.
 *
 * `open(request, inbox)` starts a consumer, which puts its records and its error into the inbox. It returns what closes
 * it, and what commits the offsets of its group: `{ close, commit }`. `producing(request, use)` calls `use(send)` with a
 * producer, and commits or aborts a transaction afterwards.
 * `send(records, topic)` returns when all are acknowledged: the offsets of the first records that the library reports, as
 * texts. All may throw.
 */
export async function drive(hello, { open, producing }, about) {
  say(hello)
  let inbox
  let opened
  const tasks = {
    async open(request) {
      const own = (inbox = new Inbox())
      let failed
      opened = open(request, own).catch(error => own.fail((failed = error)))
      // Not longer: a client that never starts must be seen by polling.
      await Promise.race([opened, sleep(OPEN_MS, undefined, { ref: false })])
      if (failed) throw failed
    },
    poll: async ({ timeout_ms: timeoutMs }) => ({ records: await inbox.take(timeoutMs) }),
    async commit() {
      const { commit } = await opened
      await commit()
    },
    async close() {
      inbox.close()
      const consumer = await opened
      await consumer?.close()
    },
    async produce(request) {
      let answer
      await producing(request, async send => {
        answer = await sendAll(send, request)
      })
      return answer
    }
  }
  async function sendAll(send, { topic, topics, records, sends, at_once: atOnce }) {
    if (!sends) {
      return { offsets: await send(records, topic) }
    }
    const resultOf = async (count, number) => {
      try {
        return { offsets: await send(records.splice(0, count), topics?.[number] ?? topic) }
      } catch (error) {
        return outcomeOf(error, about)
      }
    }
    if (atOnce) return { sends: await Promise.all(sends.map(resultOf)) }
    const results = []
    for (const [number, count] of sends.entries()) results.push(await resultOf(count, number))
    return { sends: results }
  }
  for await (const line of createInterface({ input: process.stdin })) {
    const request = JSON.parse(line)
    try {
      say((await tasks[request.do](request)) ?? {})
    } catch (error) {
      say(outcomeOf(error, about))
    }
  }
  // A client that cannot be closed must not keep this process.
  process.exit()
}
