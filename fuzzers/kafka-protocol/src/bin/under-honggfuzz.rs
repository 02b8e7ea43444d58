//! The decoder under honggfuzz, built by `cargo hfuzz`.
use fuzz_kafka_protocol::{init, read};
use std::ffi::{c_char, c_void};
use std::{mem, ptr, slice};

/// `afl_custom_post_process` of the mutator: it gives batches their lengths and CRCs.
type Mend = unsafe extern "C" fn(*mut c_void, *const u8, usize, *mut *const u8) -> usize;

extern "C" {
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
}

fn main() {
    // honggfuzz has no hook for a mutator in the process. A preloaded one mends what honggfuzz has changed.
    let name = c"afl_custom_post_process";
    let mend: Option<Mend> = unsafe { mem::transmute(dlsym(ptr::null_mut(), name.as_ptr())) };
    // The crate sets its panic hook with the first input.
    honggfuzz::fuzz(|_| init());
    loop {
        honggfuzz::fuzz(|data| {
            let mut mended = data.as_ptr();
            let size = mend.map_or(data.len(), |mend| unsafe {
                mend(ptr::null_mut(), data.as_ptr(), data.len(), &mut mended)
            });
            read(unsafe { slice::from_raw_parts(mended, size) })
        });
    }
}
