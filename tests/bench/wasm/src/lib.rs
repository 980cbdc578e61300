//! Exports for `tests/bench/js/fingerprint.mjs`: a buffer for the body, and loops over one kernel.

mod kernel;

use kernel::{Kernel, hash, tree};
use std::cell::RefCell;

thread_local! {
    static BODY: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    static RESULT: RefCell<[u8; 32]> = const { RefCell::new([0; 32]) };
    static KERNEL: Option<Kernel> = Kernel::new();
}

/// Makes room for a body and says where.
#[unsafe(no_mangle)]
pub extern "C" fn body(len: usize) -> *mut u8 {
    BODY.with_borrow_mut(|body| {
        body.clear();
        body.resize(len, 0);
        body.as_mut_ptr()
    })
}

/// Runs a kernel over the body: 0 the bare hash, 1 the fingerprint, 2 the value tree. Says where the
/// last result is.
#[unsafe(no_mangle)]
pub extern "C" fn run(kernel: u32, rounds: u32) -> *const u8 {
    BODY.with_borrow(|body| {
        let mut result = [0; 32];
        for _ in 0..rounds {
            let body = std::hint::black_box(body.as_slice());
            result = std::hint::black_box(match kernel {
                0 => hash(body),
                1 => KERNEL.with(|kernel| kernel.as_ref().map_or([0; 32], |kernel| kernel.fingerprint(body))),
                _ => tree(body),
            });
        }
        RESULT.with_borrow_mut(|place| {
            *place = result;
            place.as_ptr()
        })
    })
}
