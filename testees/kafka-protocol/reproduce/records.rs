//! Reads a file of record batches with `RecordBatchDecoder`, one batch after the other: `reproduce-records FILE`
//!
//! [dependencies] bytes = "1", kafka-protocol = "0.18"

use bytes::{Buf, Bytes};
use kafka_protocol::records::RecordBatchDecoder;

fn main() {
    decode();
    show_peaks();
}

fn decode() {
    let file = std::env::args().nth(1).expect("usage: reproduce-records FILE");
    let mut data = Bytes::from(std::fs::read(file).expect("the file can be read"));
    let length = |bytes: &Option<Bytes>| bytes.as_ref().map_or("null".into(), |bytes| bytes.len().to_string());
    let mut count = 0;
    while data.has_remaining() {
        let records = match RecordBatchDecoder::decode(&mut data) {
            Ok(set) => set.records,
            Err(error) => return println!("error: {error:#}"),
        };
        for r in records {
            let (key, value, headers) = (length(&r.key), length(&r.value), r.headers.len());
            println!("offset {} timestamp {} key {key} value {value} headers {headers}", r.offset, r.timestamp);
            count += 1;
        }
    }
    println!("records: {count}");
}

/// On Linux: the peaks of address space and memory.
fn show_peaks() {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let is_peak = |line: &&str| line.starts_with("VmPeak") || line.starts_with("VmHWM");
    status.lines().filter(is_peak).for_each(|line| eprintln!("{line}"));
}
