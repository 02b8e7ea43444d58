//! Reads a file of record batches with rskafka's own type for the records of a fetch: `reproduce-records FILE`
//!
//! [dependencies] rskafka = { version = "0.6", features = ["unstable-fuzzing"] }

use rskafka::protocol::{primitives::Records, record::ControlBatchOrRecords, traits::ReadType};
use std::collections::BTreeMap;

fn main() {
    decode();
    show_peaks();
}

fn decode() {
    let file = std::env::args().nth(1).expect("usage: reproduce-records FILE");
    let mut data = std::fs::read(file).expect("the file can be read");
    let mut count = 0;
    // Each turn is a fetch: the broker sends everything from the batch on that holds the next offset.
    while !data.is_empty() {
        let field = [&(data.len() as i32).to_be_bytes(), &data[..]].concat();
        let batches = match Records::read(&mut field.as_slice()) {
            Ok(Records(batches)) => batches,
            Err(error) => return println!("error: {error}"),
        };
        let read: usize = batches.iter().fold(0, |at, _| at + batch_size(&data[at..]).unwrap_or(0));
        for batch in batches {
            let ControlBatchOrRecords::Records(records) = batch.records else { continue };
            for r in records {
                let offset = batch.base_offset.wrapping_add(r.offset_delta.into());
                let timestamp = batch.first_timestamp.wrapping_add(r.timestamp_delta);
                let length = |bytes: &Option<Vec<u8>>| bytes.as_ref().map_or("null".into(), |b| b.len().to_string());
                let (key, value) = (length(&r.key), length(&r.value));
                // PartitionClient::fetch_records hands out the headers as such a map.
                let headers: BTreeMap<_, _> = r.headers.into_iter().map(|header| (header.key, header.value)).collect();
                println!("offset {offset} timestamp {timestamp} key {key} value {value} headers {}", headers.len());
                count += 1;
            }
        }
        data.drain(..read);
        match batch_size(&data) {
            Some(_) if read == 0 => return println!("stalled: a whole batch, but no batch was read and no error given"),
            Some(_) => {}
            None => break, // nothing, or a batch that is cut off
        }
    }
    println!("records: {count}");
}

/// The size of the first batch, if it is whole. Its length field does not count the 12 bytes up to itself.
fn batch_size(data: &[u8]) -> Option<usize> {
    let length = i32::from_be_bytes(data.get(8..12)?.try_into().ok()?);
    let size = 12 + usize::try_from(length).ok()?;
    (size <= data.len()).then_some(size)
}

/// On Linux: the peaks of address space and memory.
fn show_peaks() {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let is_peak = |line: &&str| line.starts_with("VmPeak") || line.starts_with("VmHWM");
    status.lines().filter(is_peak).for_each(|line| eprintln!("{line}"));
}
