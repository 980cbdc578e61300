#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fencepost_fuzz::run("kept", data));
