//! Effects of the core, carried out on the effective stream.

use crate::abi::{self, Buffer, Level, Map, Stream};
use crate::plugin::{ExchangeId, Job, Owner, PendingCall, Shared};
use fencepost_filter_core::exchange::{Effect, LocalReply, Outcome};

/// Name of the filter state that access logs read as `wasm.fencepost.result`.
const RESULT_STATE: &str = "fencepost.result";

/// Where the effects come from.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// A callback of the stream itself: it is the effective context, and the callback's return
    /// value lets data go on, so nothing is to be resumed.
    Stream,
    /// A callback of the root, with the stream made effective.
    Root,
}

/// Carries effects out, in order. Calls are left to the root's next callback.
pub fn apply(shared: &Shared, id: ExchangeId, effects: Vec<Effect>, from: Origin) {
    for effect in effects {
        match effect {
            Effect::CallStore { call, cluster, path, media, frame, timeout_ms } => {
                let owner = Owner::Exchange(id, call);
                let job = Job::Call(PendingCall { owner, cluster, path, media, frame, timeout_ms });
                if let Ok(mut plugin) = shared.try_borrow_mut() {
                    match from {
                        Origin::Stream => plugin.post(job),
                        // The root dispatches what is on its list before its callback returns.
                        Origin::Root => plugin.jobs.push_back(job),
                    }
                }
            }
            // Only a claim's reply leads here, so this is a root callback, whose list it goes to.
            Effect::CallUpstream(call) => {
                if let Ok(mut plugin) = shared.try_borrow_mut() {
                    plugin.post(Job::CallUpstream(id, call));
                }
            }
            Effect::LocalReply(reply) => local_reply(&reply),
            Effect::ForwardRequest { remove, set } => {
                for name in remove {
                    let _ = abi::remove_header(Map::Request, name.as_bytes());
                }
                for (name, value) in set {
                    let _ = abi::set_header(Map::Request, &name, value.as_bytes());
                }
                if from == Origin::Root {
                    resume(Stream::Request);
                }
            }
            Effect::StripResponse { remove } => {
                for name in remove {
                    let _ = abi::remove_header(Map::Response, &name);
                }
            }
            Effect::SetResponse { name, value } => {
                let _ = abi::set_header(Map::Response, name, &value);
            }
            Effect::RewriteResponse { set, body } => {
                for (name, value) in set {
                    let _ = abi::set_header(Map::Response, &name, value.as_bytes());
                }
                let _ = abi::replace_buffer(Buffer::ResponseBody, &body);
            }
            Effect::MarkResponse { name, value } => {
                let _ = abi::set_header(Map::Response, name, value.as_bytes());
            }
            Effect::ResumeResponse => {
                if from == Origin::Root {
                    resume(Stream::Response);
                }
            }
            Effect::Result(outcome) => record(shared, outcome),
            Effect::NotePayload(note) => {
                if let Ok(mut plugin) = shared.try_borrow_mut()
                    && plugin.note_payload(note)
                {
                    plugin.counters.count(Outcome::SamePayloadNewKey);
                }
            }
            Effect::Warn(text) => abi::log(Level::Warn, &text),
        }
    }
}

/// Counts a result, and leaves it to the access log of the effective stream.
pub fn record(shared: &Shared, outcome: Outcome) {
    let _ = abi::set_property(RESULT_STATE, outcome.as_str().as_bytes());
    if let Ok(plugin) = shared.try_borrow() {
        plugin.counters.count(outcome);
    }
}

/// Answers the effective stream.
pub fn local_reply(reply: &LocalReply) {
    if abi::send_local_reply(reply.status, reply.details, &reply.headers, &reply.body).is_err() {
        abi::log(Level::Error, "the host refused a local reply");
    }
}

fn resume(stream: Stream) {
    if abi::resume(stream).is_err() {
        abi::log(Level::Error, "the host refused to resume a stream");
    }
}
