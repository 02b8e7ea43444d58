// Your decoder as a testee of kfuzz. Put the call to it into `decodeRecords`; README.md has the next steps.

// The kit comes first: then a library that prints while it loads cannot disturb the protocol.
import { Unsupported, recordJson, serve } from './kit/kfuzz_testee.mjs'
// import { decode, DecodeError } from 'my-decoder'

/** Put what your decoder makes of the bytes in `hex`, the record data of a fetch, into `said`. */
async function decodeRecords({ hex }, said) {
  const data = Buffer.from(hex, 'hex')
  const read = await decode(data)
  // A record needs offset, timestamp (in ms), key, value and headers, which are pairs.
  said.records = read.map(recordJson)
}

/** Replace this by the import above. */
function decode() {
  throw new Unsupported('no decoder yet: call yours in decodeRecords')
}

await serve(
  {
    name: 'my-decoder',
    version: '1',
    roles: ['consumer'],
    // The formats that your decoder can read. kfuzz asks for nothing else.
    magic: [0, 1, 2],
    codecs: ['none', 'gzip', 'snappy', 'lz4', 'zstd'],
    checks_crc: true
  },
  { 'decode-records': decodeRecords },
  // The errors that your decoder documents for bad input, such as `error instanceof DecodeError`. Others are faults.
  { library: 'my-decoder', isRejection: error => false }
)
