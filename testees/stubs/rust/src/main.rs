//! Your decoder as a testee of kfuzz. Put the call to it into `decode_records`; README.md has the next steps.

use kfuzz_testee::{bytes, text, unsupported, BadRequest, Request};
use serde_json::{json, Value};
use std::io;

fn main() -> io::Result<()> {
    let handshake = json!({
        "protocol": "kfuzz-testee/1", "name": "my-decoder", "version": "1", "language": "rust",
        "operations": ["decode-records"], "roles": ["consumer"],
        // The formats that your decoder can read. kfuzz asks for nothing else.
        "magic": [0, 1, 2], "codecs": ["none", "gzip", "snappy", "lz4", "zstd"], "checks_crc": true,
        "outcomes": ["panic"],
    });
    // Name and version of your crate. A panic then names the line of source inside it.
    kfuzz_testee::serve(handshake, ("my-decoder", "1.0.0"), answer)
}

fn answer(request: &Request) -> Result<Value, BadRequest> {
    match text(request, "operation")? {
        "decode-records" if text(request, "role")? == "consumer" => Ok(decode_records(&bytes(request, "hex")?)),
        other => Ok(unsupported(format!("operation {other}, or its role"))),
    }
}

/// Answers with what your decoder makes of these bytes, the record data of a fetch.
fn decode_records(_data: &[u8]) -> Value {
    // match my_decoder::decode(data) {
    //     Ok(read) => {
    //         let record = |r: &my_decoder::Record| {
    //             let headers = r.headers.iter().map(|(name, value)| (name.as_str(), value.as_deref()));
    //             kfuzz_testee::record_json(r.offset, r.timestamp_ms, r.key.as_deref(), r.value.as_deref(), headers)
    //         };
    //         json!({"outcome": "accepted", "records": read.iter().map(record).collect::<Vec<_>>()})
    //     }
    //     Err(error) => kfuzz_testee::rejected(error),
    // }
    unsupported("no decoder yet: call yours in decode_records")
}
