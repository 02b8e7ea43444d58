#!/usr/bin/env node
// Tests a small decoder of Kafka record batches with a copied kfuzz suite. Uses only Node's standard library.
//
//     node read_suite.mjs [SUITE]
//
// The decoder below is a consumer for magic 2, uncompressed or with gzip. To test your own decoder, replace readBatches,
// and declare in unsupported what it does not support.
//
// Exit codes: 0 if no required vector failed; 1 if one failed or none passed; 2 if there is no suite.

import { createHash } from "node:crypto";
import { existsSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { isDeepStrictEqual } from "node:util";
import { gunzipSync } from "node:zlib";

const CODECS = ["none", "gzip", "snappy", "lz4", "zstd"];
const SPOKEN_CODECS = ["none", "gzip"];
const LOG_OVERHEAD = 12;
const HEADER_SIZE = 61;
const CRC_COVERS_FROM = 21;
const DECOMPRESSED_BYTES_MAX = 64 * 1024 * 1024;
// For a key or value longer than this, the suite may hold only a digest.
const DIGEST_ABOVE_BYTES = 64 * 1024;

// The bytes are invalid. Any other exception is a fault of the decoder.
class Refused extends Error {}

// ------------------------------------------------------------------------------------------------------ the decoder

// Returns the batches in data, where the last whole one ends, and whether a truncated one follows.
// A truncated batch at the end is not an error.
function readBatches(data) {
  const batches = [];
  let at = 0;
  while (data.length - at >= LOG_OVERHEAD + 5) {
    const length = data.readInt32BE(at + 8);
    const magic = data[at + 16];
    if (length < 14 || (magic === 2 && length < HEADER_SIZE - LOG_OVERHEAD)) throw new Refused(`length ${length}`);
    if (data.length - at - LOG_OVERHEAD < length) break;
    if (magic !== 2) throw new Refused(`magic ${magic}`);
    batches.push(readBatch(data.subarray(at, at + LOG_OVERHEAD + length)));
    at += LOG_OVERHEAD + length;
  }
  return { batches, consumed: at, partialTail: at < data.length };
}

function readBatch(data) {
  if (data.readUInt32BE(17) !== crc32c(data.subarray(CRC_COVERS_FROM))) throw new Refused("wrong CRC");
  const attributes = data.readInt16BE(21);
  const codec = attributes & 7;
  if (codec >= CODECS.length) throw new Refused(`codec ${codec}`);
  const count = data.readInt32BE(57);
  if (count < 0) throw new Refused(`record count ${count}`);
  const body = data.subarray(HEADER_SIZE);
  const payload = new Cursor(CODECS[codec] === "gzip" ? gunzip(body) : body);
  const baseOffset = data.readBigInt64BE(0);
  const baseTimestamp = data.readBigInt64BE(27);
  const logAppendTime = attributes & 8 ? data.readBigInt64BE(35) : null;
  const records = [];
  // Do not allocate by count, which may be wrong: if it is too high, the first missing record throws Refused.
  for (let i = 0; i < count; i++) records.push(readRecord(payload, baseOffset, baseTimestamp, logAppendTime));
  if (payload.left) throw new Refused(`${payload.left} bytes after the records`);
  const lastOffset = int64(baseOffset + BigInt(data.readInt32BE(23)));
  return {
    base_offset: String(baseOffset),
    last_offset: String(lastOffset),
    next_offset: String(int64(lastOffset + 1n)),
    magic: 2,
    compression: CODECS[codec],
    timestamp_type: logAppendTime === null ? "create" : "log-append",
    transactional: Boolean(attributes & 16),
    control: Boolean(attributes & 32),
    delete_horizon: attributes & 64 ? String(baseTimestamp) : null,
    producer_id: String(data.readBigInt64BE(43)),
    producer_epoch: data.readInt16BE(51),
    base_sequence: data.readInt32BE(53),
    partition_leader_epoch: data.readInt32BE(12),
    records,
  };
}

function readRecord(payload, baseOffset, baseTimestamp, logAppendTime) {
  const record = new Cursor(payload.take(Number(payload.varint(32))));
  record.take(1);
  const timestamp = int64(baseTimestamp + record.varint(64));
  const offset = int64(baseOffset + record.varint(32));
  const key = record.octets();
  const value = record.octets();
  const headerCount = record.varint(32);
  if (headerCount < 0) throw new Refused(`header count ${headerCount}`);
  const headers = [];
  for (let i = 0; i < headerCount; i++) {
    const name = record.octets();
    if (name === null) throw new Refused("a header without a key");
    headers.push([text(name), shown(record.octets())]);
  }
  if (record.left) throw new Refused(`${record.left} bytes after the record's last header`);
  return {
    offset: String(offset),
    timestamp: String(logAppendTime ?? timestamp),
    key: shown(key),
    value: shown(value),
    headers,
  };
}

// Takes bytes from the front of data, and checks each length before it reads.
class Cursor {
  constructor(data) {
    this.data = data;
    this.at = 0;
  }

  get left() {
    return this.data.length - this.at;
  }

  take(size) {
    if (size < 0 || size > this.left) throw new Refused(`${size} bytes wanted, ${this.left} left`);
    this.at += size;
    return this.data.subarray(this.at - size, this.at);
  }

  // A zigzag varint of at most 5 bytes (32 bits) or 10 bytes (64 bits). Like Java, drops bits that do not fit.
  varint(bits) {
    let value = 0n;
    for (let shift = 0; shift < bits + 3; shift += 7) {
      const byte = this.take(1)[0];
      value |= BigInt(byte & 0x7f) << BigInt(shift);
      if (byte < 0x80) {
        value = BigInt.asUintN(bits, value);
        return (value >> 1n) ^ -(value & 1n);
      }
    }
    throw new Refused(`a varint of more than ${Math.floor(bits / 7) + 1} bytes`);
  }

  octets() {
    const size = Number(this.varint(32));
    return size < 0 ? null : this.take(size);
  }
}

// Decompresses a gzip stream of one or more members, up to a fixed limit.
function gunzip(data) {
  try {
    return gunzipSync(data, { maxOutputLength: DECOMPRESSED_BYTES_MAX });
  } catch (error) {
    // Errors of zlib, and of the limit.
    if (error.code?.startsWith("Z_") || error.code === "ERR_BUFFER_TOO_LARGE") throw new Refused(`gzip: ${error.message}`);
    throw error;
  }
}

const CRC32C = Uint32Array.from({ length: 256 }, (_, value) => {
  for (let bit = 0; bit < 8; bit++) value = (value >>> 1) ^ (value & 1 ? 0x82f63b78 : 0);
  return value;
});

function crc32c(data) {
  let crc = 0xffffffff;
  for (const byte of data) crc = (crc >>> 8) ^ CRC32C[(crc ^ byte) & 0xff];
  return (crc ^ 0xffffffff) >>> 0;
}

// The number wrapped to 64 bits, as Java's long arithmetic does.
function int64(number) {
  return BigInt.asIntN(64, number);
}

// Bytes in the suite's form: hex, null, or a digest if they are long.
function shown(octets) {
  if (octets === null) return null;
  if (octets.length > DIGEST_ABOVE_BYTES) {
    return { sha256: createHash("sha256").update(octets).digest("hex"), size: octets.length };
  }
  return octets.toString("hex");
}

// A header's key: a string, or hex if it is not UTF-8.
function text(octets) {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(octets);
  } catch {
    return { hex: octets.toString("hex") };
  }
}

// -------------------------------------------------------------------------------------------------------- the judge

// The reason to skip data, or null. Declare here what the decoder does not support; never guess from a failure.
function unsupported(data) {
  let at = 0;
  while (data.length - at >= LOG_OVERHEAD + 6) {
    const length = data.readInt32BE(at + 8);
    if (data[at + 16] < 2) return "magic 0 or 1";
    if (data[at + 16] === 2 && data.length - at > 22) {
      const codec = CODECS[data[at + 22] & 7];
      if (codec !== undefined && !SPOKEN_CODECS.includes(codec)) return codec;
    }
    if (length < 0) break;
    at += LOG_OVERHEAD + length;
  }
  return null;
}

// Returns what is wrong with the decoder's answer, or null if it is right.
function judge(expect, data) {
  let answer;
  try {
    answer = readBatches(data);
  } catch (error) {
    if (!(error instanceof Refused)) return `fault: ${error}`;
    return expect.verdict === "valid" ? `refused valid bytes: ${error.message}` : null;
  }
  if (expect.verdict === "invalid") return `accepted invalid bytes: ${expect.finding}`;
  // A decoder that accepts must read the expected contents, or one of the alternatives that are equally right.
  const readings = [expect.batches, ...(expect.alternatives ?? [])];
  if (!readings.some((reading) => same(reading, answer.batches))) {
    return `read ${JSON.stringify(answer.batches).slice(0, 2000)}`;
  }
  if (answer.consumed !== expect.consumed) return `consumed ${answer.consumed} bytes, not ${expect.consumed}`;
  if (answer.partialTail !== (expect.partial_tail ?? false)) return `partial tail: ${answer.partialTail}`;
  return null;
}

// Whether the batches are the expected ones. The suite may hold only their digest.
function same(reading, batches) {
  if (Array.isArray(reading)) return isDeepStrictEqual(reading, batches);
  const sorted = (_, value) =>
    value === null || typeof value !== "object" || Array.isArray(value) ? value : Object.fromEntries(Object.entries(value).sort());
  const line = Buffer.from(JSON.stringify(batches, sorted));
  return line.length === reading.size && createHash("sha256").update(line).digest("hex") === reading.sha256;
}

function main(root) {
  const count = { passed: 0, missed: 0, failed: 0 };
  const skipped = {};
  const skip = (why) => (skipped[why] = (skipped[why] ?? 0) + 1);
  for (const name of JSON.parse(readFileSync(join(root, "manifest.json"))).vectors) {
    const { kind, vectors } = JSON.parse(readFileSync(join(root, name)));
    for (const vector of vectors) {
      const expect = vector.expect?.consumer;
      if (kind !== "records" || expect === undefined) {
        skip("other kinds and roles");
        continue;
      }
      const bomb = vector.recipe === undefined ? null : join(root, "bombs", `${vector.recipe}.bin`);
      if (bomb !== null && !existsSync(bomb)) {
        skip("bombs without bytes");
        continue;
      }
      const data = bomb === null ? Buffer.from(vector.hex, "hex") : readFileSync(bomb);
      const reason = unsupported(data);
      if (reason !== null) {
        skip(reason);
        continue;
      }
      const began = process.cpuUsage();
      let wrong = judge(expect, data);
      const spent = process.cpuUsage(began);
      const spentMs = (spent.user + spent.system) / 1000;
      if (wrong === null && spentMs > (vector.budget?.cpu_ms ?? Infinity)) {
        wrong = `took ${spentMs} ms of CPU; the budget is ${vector.budget.cpu_ms}`;
      }
      if (wrong === null) {
        count.passed++;
      } else if (vector.level === "recommended") {
        count.missed++;
        console.log(`missed ${vector.id} (recommended): ${wrong}`);
      } else {
        count.failed++;
        console.log(`FAILED ${vector.id} (${vector.summary}): ${wrong}`);
      }
    }
  }
  console.log(`${count.passed} passed, ${count.missed} recommended missed, ${count.failed} failed`);
  const reasons = Object.keys(skipped).sort();
  console.log(`skipped: ${reasons.map((why) => `${skipped[why]} ${why}`).join(", ") || "none"}`);
  return count.failed || !count.passed ? 1 : 0;
}

const suite = process.argv[2] ?? join(dirname(fileURLToPath(import.meta.url)), "..", "..");
if (existsSync(join(suite, "manifest.json"))) {
  process.exitCode = main(suite);
} else {
  console.error(`${suite} holds no manifest.json; name a folder that \`kfuzz vectors copy\` wrote`);
  process.exitCode = 2;
}
