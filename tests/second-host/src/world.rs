//! What the filter sees and changes: requests with their headers, bodies and properties, and the
//! calls that it makes.

use crate::service::Headers;
use proxy_wasm_host::abi::v0_2_1::types::{BufferType, LogLevel, MapType, Status, StreamType};
use proxy_wasm_host::abi::v0_2_1::{
    Access, CalloutId, Callouts, ContextId, HttpCall, HttpCallRefusal, Invocation, LocalResponse, LogContext,
    LogSink, StreamState,
};
use proxy_wasm_host::{Buffer, HeaderMap, VecHeaderMap};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

/// One request and what became of it.
#[derive(Default)]
pub struct Stream {
    pub request_headers: VecHeaderMap,
    pub request_body: Vec<u8>,
    pub response_headers: VecHeaderMap,
    pub response_body: Vec<u8>,
    /// By their paths, joined by dots.
    pub properties: HashMap<String, Vec<u8>>,
    /// The filter said that the request, the response may go on.
    pub request_resumed: bool,
    pub response_resumed: bool,
    /// The filter answered by itself: status, headers, body.
    pub local: Option<(u32, Headers, Vec<u8>)>,
}

/// All requests, by their contexts.
#[derive(Default)]
pub struct World {
    pub streams: BTreeMap<u32, Stream>,
}

impl World {
    fn stream(&mut self, call: Invocation) -> Result<&mut Stream, Status> {
        self.streams.get_mut(&call.context.get()).ok_or(Status::BadArgument)
    }
}

fn join(path: &[&[u8]]) -> String {
    path.iter().map(|part| String::from_utf8_lossy(part)).collect::<Vec<_>>().join(".")
}

impl StreamState for World {
    fn header_map(
        &mut self,
        call: Invocation,
        _: Access,
        map: MapType,
    ) -> Result<&mut dyn HeaderMap, Status> {
        let stream = self.stream(call)?;
        match map {
            MapType::HttpRequestHeaders => Ok(&mut stream.request_headers),
            MapType::HttpResponseHeaders => Ok(&mut stream.response_headers),
            _ => Err(Status::BadArgument),
        }
    }

    fn buffer(&mut self, call: Invocation, _: Access, buffer: BufferType) -> Result<&mut dyn Buffer, Status> {
        let stream = self.stream(call).map_err(|_| Status::NotFound)?;
        match buffer {
            BufferType::HttpRequestBody => Ok(&mut stream.request_body),
            BufferType::HttpResponseBody => Ok(&mut stream.response_body),
            _ => Err(Status::NotFound),
        }
    }

    fn continue_stream(&mut self, call: Invocation, stream: StreamType) -> Result<(), Status> {
        let of = self.stream(call)?;
        match stream {
            StreamType::HttpRequest => of.request_resumed = true,
            StreamType::HttpResponse => of.response_resumed = true,
            _ => return Err(Status::Unimplemented),
        }
        Ok(())
    }

    fn send_local_response(&mut self, call: Invocation, response: LocalResponse<'_>) -> Result<(), Status> {
        let stream = self.stream(call)?;
        let headers = response.headers.iter().map(|(name, value)| (name.to_vec(), value.to_vec()));
        stream.local = Some((response.status_code, headers.collect(), response.body.to_vec()));
        Ok(())
    }

    fn property(&mut self, call: Invocation, path: &[&[u8]], out: &mut Vec<u8>) -> Result<(), Status> {
        let stream = self.stream(call).map_err(|_| Status::NotFound)?;
        out.extend_from_slice(stream.properties.get(&join(path)).ok_or(Status::NotFound)?);
        Ok(())
    }

    fn set_property(&mut self, call: Invocation, path: &[&[u8]], value: &[u8]) -> Result<(), Status> {
        // As Envoy does: what a filter sets is its own filter state.
        self.stream(call)?.properties.insert(join(path), value.to_vec());
        Ok(())
    }
}

/// A call of the filter that nobody has answered yet.
#[derive(Debug, Clone)]
pub struct PendingCall {
    pub context: ContextId,
    pub callout: CalloutId,
    pub cluster: String,
    pub headers: Headers,
    pub body: Vec<u8>,
}

/// All calls that wait for an answer.
#[derive(Default)]
pub struct Calls(Mutex<Vec<PendingCall>>);

impl Calls {
    /// Takes the oldest call to a cluster that fits.
    pub fn take(&self, fits: impl Fn(&str) -> bool) -> Option<PendingCall> {
        let mut calls = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let index = calls.iter().position(|call| fits(&call.cluster))?;
        Some(calls.remove(index))
    }
}

impl Callouts for Calls {
    fn http_call(
        &self,
        call: Invocation,
        callout: CalloutId,
        request: HttpCall<'_>,
    ) -> Result<(), HttpCallRefusal> {
        let pending = PendingCall {
            context: call.context,
            callout,
            cluster: String::from_utf8_lossy(&request.upstream).into_owned(),
            headers: request.headers.iter().map(|(name, value)| (name.to_vec(), value.to_vec())).collect(),
            body: request.body.to_vec(),
        };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(pending);
        Ok(())
    }
}

/// Lines of the filter's log.
#[derive(Default, Clone)]
pub struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    pub fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl LogSink for Log {
    fn log(&self, _: LogContext<'_>, level: LogLevel, message: &[u8]) {
        let line = format!("{level:?} {}", String::from_utf8_lossy(message));
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(line);
    }
}
