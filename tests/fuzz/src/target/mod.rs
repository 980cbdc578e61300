//! The targets by name.

mod details;
mod ending;
mod fingerprint;
mod frame;
mod kept;
mod key;
mod policy;
mod recovery_answer;
mod seal;
mod service_http;
mod store_reply;
mod token;
mod words;

/// A target.
#[derive(Clone, Copy)]
pub struct Target {
    /// Name of its corpus and of its libFuzzer target.
    pub name: &'static str,
    /// Panics where a promise is broken.
    pub run: fn(&[u8]),
}

/// All of them.
pub const ALL: [Target; 14] = [
    Target { name: "key", run: key::run },
    Target { name: "fingerprint", run: fingerprint::run },
    Target { name: "frame", run: frame::run },
    Target { name: "policy", run: policy::run },
    Target { name: "route_metadata", run: policy::run_route },
    Target { name: "token", run: token::run },
    Target { name: "seal", run: seal::run },
    Target { name: "store_reply", run: store_reply::run },
    Target { name: "recovery_answer", run: recovery_answer::run },
    Target { name: "details", run: details::run },
    Target { name: "ending", run: ending::run },
    Target { name: "kept", run: kept::run },
    Target { name: "words", run: words::run },
    Target { name: "service_http", run: service_http::run },
];

/// Runs a target by its name.
pub fn run(name: &str, data: &[u8]) {
    let target = ALL.iter().find(|target| target.name == name).expect("a target of this name");
    (target.run)(data);
}
