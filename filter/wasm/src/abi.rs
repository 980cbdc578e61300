//! The host's functions (proxy-wasm ABI 0.2.1), each with every status as a plain number.
//!
//! Source: the proxy-wasm specification, ABI versions 0.2.0 and 0.2.1. A status other than OK is
//! an error value and never a panic. Strings are bytes throughout.

use fencepost_filter_core::exchange::Pair;
use fencepost_filter_core::host_value;
use proxy_wasm::hostcalls;
use std::time::Duration;

/// A status that is not OK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status(pub u32);

impl Status {
    /// No such value.
    pub const NOT_FOUND: Self = Self(1);
    /// Not a status of the host: what it handed over can't be read.
    pub const UNREADABLE: Self = Self(u32::MAX);
}

const OK: u32 = 0;

/// Header maps, by their number in the ABI.
#[derive(Clone, Copy)]
#[repr(u32)]
pub enum Map {
    Request = 0,
    Response = 2,
    CallResponse = 6,
}

/// Buffers, by their number in the ABI.
#[derive(Clone, Copy)]
#[repr(u32)]
pub enum Buffer {
    RequestBody = 0,
    ResponseBody = 1,
    CallResponseBody = 4,
    PluginConfiguration = 7,
}

/// Streams, by their number in the ABI.
#[derive(Clone, Copy)]
#[repr(u32)]
pub enum Stream {
    Request = 0,
    Response = 1,
}

/// Log levels, by their number in the ABI.
#[derive(Clone, Copy)]
#[repr(u32)]
pub enum Level {
    Warn = 3,
    Error = 4,
}

#[link(wasm_import_module = "env")]
unsafe extern "C" {
    fn proxy_log(level: u32, text: *const u8, len: usize) -> u32;
    fn proxy_set_tick_period_milliseconds(period: u32) -> u32;
    fn proxy_get_buffer_bytes(
        kind: u32,
        start: usize,
        max: usize,
        data: *mut *mut u8,
        len: *mut usize,
    ) -> u32;
    fn proxy_set_buffer_bytes(kind: u32, start: usize, size: usize, data: *const u8, len: usize) -> u32;
    fn proxy_get_header_map_pairs(kind: u32, data: *mut *mut u8, len: *mut usize) -> u32;
    fn proxy_set_header_map_pairs(kind: u32, data: *const u8, len: usize) -> u32;
    fn proxy_replace_header_map_value(
        kind: u32,
        name: *const u8,
        name_len: usize,
        value: *const u8,
        value_len: usize,
    ) -> u32;
    fn proxy_remove_header_map_value(kind: u32, name: *const u8, name_len: usize) -> u32;
    fn proxy_get_property(path: *const u8, path_len: usize, data: *mut *mut u8, len: *mut usize) -> u32;
    fn proxy_set_property(path: *const u8, path_len: usize, data: *const u8, len: usize) -> u32;
    fn proxy_register_shared_queue(name: *const u8, name_len: usize, id: *mut u32) -> u32;
    fn proxy_dequeue_shared_queue(id: u32, data: *mut *mut u8, len: *mut usize) -> u32;
    fn proxy_enqueue_shared_queue(id: u32, data: *const u8, len: usize) -> u32;
    fn proxy_continue_stream(stream: u32) -> u32;
    fn proxy_send_local_response(
        status: u32,
        details: *const u8,
        details_len: usize,
        body: *const u8,
        body_len: usize,
        headers: *const u8,
        headers_len: usize,
        grpc_status: i32,
    ) -> u32;
    fn proxy_set_effective_context(id: u32) -> u32;
    fn proxy_done() -> u32;
    fn proxy_define_metric(kind: u32, name: *const u8, len: usize, id: *mut u32) -> u32;
    fn proxy_increment_metric(id: u32, offset: i64) -> u32;
}

#[link(wasm_import_module = "wasi_snapshot_preview1")]
unsafe extern "C" {
    fn clock_time_get(id: u32, precision: u64, time: *mut u64) -> u32;
    fn random_get(data: *mut u8, len: usize) -> u32;
}

/// Writes a header map as the ABI wants it.
fn encode_pairs(pairs: &[Pair]) -> Vec<u8> {
    let len = pairs.iter().map(|(name, value)| name.len().saturating_add(value.len())).sum::<usize>();
    let mut bytes = Vec::with_capacity(len.saturating_add(pairs.len().saturating_mul(10)).saturating_add(4));
    bytes.extend_from_slice(&length(pairs.len()));
    for (name, value) in pairs {
        bytes.extend_from_slice(&length(name.len()));
        bytes.extend_from_slice(&length(value.len()));
    }
    for (name, value) in pairs {
        bytes.extend_from_slice(name);
        bytes.push(0);
        bytes.extend_from_slice(value);
        bytes.push(0);
    }
    bytes
}

/// Cannot fail: a length in a 32-bit module fits in 32 bits.
fn length(len: usize) -> [u8; 4] {
    u32::try_from(len).unwrap_or(u32::MAX).to_le_bytes()
}

fn check(status: u32) -> Result<(), Status> {
    if status == OK { Ok(()) } else { Err(Status(status)) }
}

/// Takes over memory that the host had this module allocate.
///
/// # Safety
/// `data` must be null or come from the allocator that the SDK exports, with exactly `len` bytes.
unsafe fn own(data: *mut u8, len: usize) -> Vec<u8> {
    if data.is_null() {
        Vec::new()
    } else {
        // SAFETY: the SDK allocates for the host with `Vec::with_capacity(len)`.
        unsafe { Vec::from_raw_parts(data, len, len) }
    }
}

/// Writes a log line.
pub fn log(level: Level, text: &str) {
    // SAFETY: pointer and length describe `text`. A line that can't be written is not worth more.
    let _ = unsafe { proxy_log(level as u32, text.as_ptr(), text.len()) };
}

/// Milliseconds on the host's monotonic clock.
pub fn now_ms() -> u64 {
    const MONOTONIC: u32 = 1;
    let mut nanos = 0;
    // SAFETY: `nanos` is valid for a write.
    let _ = unsafe { clock_time_get(MONOTONIC, 1_000_000, &mut nanos) };
    nanos / 1_000_000
}

/// Random bytes; `None` where the host has none.
pub fn random<const N: usize>() -> Option<[u8; N]> {
    let mut bytes = [0; N];
    // SAFETY: `bytes` is valid for N writes.
    let status = unsafe { random_get(bytes.as_mut_ptr(), N) };
    (status == 0).then_some(bytes)
}

/// Asks for a tick on the current root context.
pub fn set_tick_ms(period: u32) -> Result<(), Status> {
    // SAFETY: no memory is passed.
    check(unsafe { proxy_set_tick_period_milliseconds(period) })
}

/// Reads part of a buffer; empty where there is nothing.
pub fn buffer(kind: Buffer, start: usize, max: usize) -> Result<Vec<u8>, Status> {
    let (mut data, mut len) = (core::ptr::null_mut(), 0);
    // SAFETY: both pointers are valid for a write; the host fills them on OK only.
    let status = unsafe { proxy_get_buffer_bytes(kind as u32, start, max, &mut data, &mut len) };
    check(status)?;
    // SAFETY: on OK the host has allocated through this module.
    Ok(unsafe { own(data, len) })
}

/// Puts `bytes` in place of a whole buffer.
pub fn replace_buffer(kind: Buffer, bytes: &[u8]) -> Result<(), Status> {
    // SAFETY: pointer and length describe `bytes`. Start 0 and the greatest size: all of it.
    check(unsafe { proxy_set_buffer_bytes(kind as u32, 0, i32::MAX as usize, bytes.as_ptr(), bytes.len()) })
}

/// Reads a header map.
pub fn headers(map: Map) -> Result<Vec<Pair>, Status> {
    let (mut data, mut len) = (core::ptr::null_mut(), 0);
    // SAFETY: as in `buffer`.
    check(unsafe { proxy_get_header_map_pairs(map as u32, &mut data, &mut len) })?;
    // SAFETY: as in `buffer`.
    let bytes = unsafe { own(data, len) };
    if bytes.is_empty() {
        return Ok(Vec::new());
    }
    let pairs = host_value::decode_pairs(&bytes).map_err(|_| Status::UNREADABLE)?;
    Ok(pairs.into_iter().map(|(name, value)| (name.to_vec(), value.to_vec())).collect())
}

/// Sets a whole header map.
pub fn set_headers(map: Map, pairs: &[Pair]) -> Result<(), Status> {
    let bytes = encode_pairs(pairs);
    // SAFETY: pointer and length describe `bytes`.
    check(unsafe { proxy_set_header_map_pairs(map as u32, bytes.as_ptr(), bytes.len()) })
}

/// Sets one header in place of any of the same name.
pub fn set_header(map: Map, name: &str, value: &[u8]) -> Result<(), Status> {
    // SAFETY: pointers and lengths describe `name` and `value`.
    check(unsafe {
        proxy_replace_header_map_value(map as u32, name.as_ptr(), name.len(), value.as_ptr(), value.len())
    })
}

/// Removes all headers of a name.
pub fn remove_header(map: Map, name: &[u8]) -> Result<(), Status> {
    // SAFETY: pointer and length describe `name`.
    check(unsafe { proxy_remove_header_map_value(map as u32, name.as_ptr(), name.len()) })
}

/// Reads a property.
pub fn property(path: &[&str]) -> Result<Vec<u8>, Status> {
    let path = path.join("\0");
    let (mut data, mut len) = (core::ptr::null_mut(), 0);
    // SAFETY: as in `buffer`, and pointer and length describe `path`.
    check(unsafe { proxy_get_property(path.as_ptr(), path.len(), &mut data, &mut len) })?;
    // SAFETY: as in `buffer`.
    Ok(unsafe { own(data, len) })
}

/// Writes a filter state; the host puts `wasm.` before the name.
pub fn set_property(name: &str, value: &[u8]) -> Result<(), Status> {
    // SAFETY: pointers and lengths describe `name` and `value`.
    check(unsafe { proxy_set_property(name.as_ptr(), name.len(), value.as_ptr(), value.len()) })
}

/// Registers a shared queue; the last one to register a name is called back.
pub fn register_queue(name: &str) -> Result<u32, Status> {
    let mut id = 0;
    // SAFETY: pointer and length describe `name`; `id` is valid for a write.
    check(unsafe { proxy_register_shared_queue(name.as_ptr(), name.len(), &mut id) })?;
    Ok(id)
}

/// Takes one message off a queue.
pub fn dequeue(id: u32) -> Result<(), Status> {
    let (mut data, mut len) = (core::ptr::null_mut(), 0);
    // SAFETY: as in `buffer`.
    check(unsafe { proxy_dequeue_shared_queue(id, &mut data, &mut len) })?;
    // SAFETY: as in `buffer`.
    drop(unsafe { own(data, len) });
    Ok(())
}

/// Puts a message on a queue, which has its root called back.
pub fn enqueue(id: u32) -> Result<(), Status> {
    let message = b"j";
    // SAFETY: pointer and length describe `message`.
    check(unsafe { proxy_enqueue_shared_queue(id, message.as_ptr(), message.len()) })
}

/// Resumes one direction of the effective stream.
pub fn resume(stream: Stream) -> Result<(), Status> {
    // SAFETY: no memory is passed.
    check(unsafe { proxy_continue_stream(stream as u32) })
}

/// Answers the effective stream.
pub fn send_local_reply(status: u16, details: &str, headers: &[Pair], body: &[u8]) -> Result<(), Status> {
    const NO_GRPC_STATUS: i32 = -1;
    let headers = encode_pairs(headers);
    // SAFETY: pointers and lengths describe `details`, `body` and `headers`.
    check(unsafe {
        proxy_send_local_response(
            u32::from(status),
            details.as_ptr(),
            details.len(),
            body.as_ptr(),
            body.len(),
            headers.as_ptr(),
            headers.len(),
            NO_GRPC_STATUS,
        )
    })
}

/// Makes host calls act on another context until the callback returns.
pub fn set_effective_context(id: u32) -> Result<(), Status> {
    // SAFETY: no memory is passed.
    check(unsafe { proxy_set_effective_context(id) })
}

/// Calls a cluster; the reply comes to the context whose callback is running.
///
/// Through the SDK, because its dispatcher ends the VM on a reply to a call that it does not know.
pub fn call(cluster: &str, headers: &[Pair], body: &[u8], timeout_ms: u32) -> Result<u32, Status> {
    // SAFETY: the SDK wants text and does nothing with it but copy its bytes to the host, which
    // takes any. A header value need not be UTF-8 (RFC 9110, section 5.5), so it can't be checked.
    let text = |bytes| unsafe { core::str::from_utf8_unchecked(bytes) };
    let headers =
        headers.iter().map(|(name, value)| (text(name.as_slice()), text(value.as_slice()))).collect();
    let timeout = Duration::from_millis(u64::from(timeout_ms));
    hostcalls::dispatch_http_call(cluster, headers, Some(body), vec![], timeout)
        .map_err(|status| Status(status as u32))
}

/// Tells the host that the effective root is done.
pub fn done() {
    // SAFETY: no memory is passed. There is nothing to do about a refusal.
    let _ = unsafe { proxy_done() };
}

/// Defines a counter.
pub fn define_counter(name: &str) -> Result<u32, Status> {
    const COUNTER: u32 = 0;
    let mut id = 0;
    // SAFETY: pointer and length describe `name`; `id` is valid for a write.
    check(unsafe { proxy_define_metric(COUNTER, name.as_ptr(), name.len(), &mut id) })?;
    Ok(id)
}

/// Adds one to a counter.
pub fn count(id: u32) {
    // SAFETY: no memory is passed. A count that is lost is not worth more.
    let _ = unsafe { proxy_increment_metric(id, 1) };
}
