//! Reads any bytes as record batches, as the crate kafka-protocol does.
#![no_main]
#![feature(alloc_error_hook)]

use bytes::Bytes;
use kafka_protocol::records::RecordBatchDecoder;
use libfuzzer_sys::fuzz_target;
use std::alloc::{set_alloc_error_hook, GlobalAlloc, Layout, System};
use std::{env, panic, ptr};

/// No input of a fuzzer needs more at once.
const ALLOCATION_MAX: usize = 16 << 20;

fuzz_target!(
    init: {
        // A panic that can be caught, instead of an abort.
        set_alloc_error_hook(|layout| panic!("an allocation of {} bytes", layout.size()));
        // libfuzzer-sys aborts in its panic hook. A campaign that only measures coverage continues after a panic.
        if env::var("KEEP_GOING").as_deref() == Ok("1") {
            panic::set_hook(Box::new(|_| ()));
        }
    },
    |data: &[u8]| {
        let mut left = Bytes::copy_from_slice(data);
        let _ = panic::catch_unwind(move || RecordBatchDecoder::decode_all(&mut left));
    }
);

/// Refuses what is too large, so that a claimed size is found before it takes all memory.
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
