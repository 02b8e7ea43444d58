//! Reads any bytes as record batches, as the crate kafka-protocol does.
#![feature(alloc_error_hook)]

use bytes::Bytes;
use kafka_protocol::records::RecordBatchDecoder;
use std::alloc::{set_alloc_error_hook, GlobalAlloc, Layout, System};
use std::sync::OnceLock;
use std::{env, panic, process, ptr};

/// No input of a fuzzer needs more at once.
const ALLOCATION_MAX: usize = 16 << 20;

/// A bug to find, so that a test sees whether the fuzzer gets that far.
static IS_PLANTED: OnceLock<bool> = OnceLock::new();

fn is_set(name: &str) -> bool {
    env::var(name).as_deref() == Ok("1")
}

/// Call this when the fuzzer has set its panic hook.
pub fn init() {
    // A panic that can be caught, instead of an abort.
    set_alloc_error_hook(|layout| panic!("an allocation of {} bytes", layout.size()));
    // Fuzzers abort in their panic hook. A campaign that only measures coverage continues after a panic.
    if is_set("KEEP_GOING") {
        panic::set_hook(Box::new(|_| ()));
    }
}

pub fn read(data: &[u8]) {
    let mut left = Bytes::copy_from_slice(data);
    let read = panic::catch_unwind(move || RecordBatchDecoder::decode_all(&mut left));
    if *IS_PLANTED.get_or_init(|| is_set("KFUZZ_PLANTED")) {
        let mut records = read.iter().flatten().flatten().flat_map(|set| &set.records);
        if records.any(|record| record.timestamp < 0 && !record.headers.is_empty()) {
            eprintln!("planted");
            process::abort();
        }
    }
}

/// Refuses large allocations, so that a fuzzer finds a claimed size before it takes all memory.
struct Limited;

#[global_allocator]
static ALLOCATOR: Limited = Limited;

unsafe impl GlobalAlloc for Limited {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.size() > ALLOCATION_MAX {
            return ptr::null_mut();
        }
        System.alloc(layout)
    }

    unsafe fn dealloc(&self, data: *mut u8, layout: Layout) {
        System.dealloc(data, layout)
    }
}
