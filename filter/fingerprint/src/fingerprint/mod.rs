//! What makes two requests the same.
//!
//! A fingerprint is SHA-256 over tagged fields: method, path, query, host and headers where asked
//! for, media type, content coding, and the body last. Two requests of one meaning may differ in
//! it, which costs a 422; two of different meaning must not share it, which would cost a wrong
//! answer. So whatever is not certainly understood is compared by its bytes, under a tag of its
//! own.

pub mod json;
mod media;
mod options;
mod path;
mod query;
mod text;

pub use path::variable;
pub use text::{BodyTexts, NoText};

pub use options::{
    BodyRule, DuplicateMembers, FingerprintOptions, FingerprintPolicy, PathTemplate, QueryRule,
};

use crate::digest::{Gathered, PartsDigest};
use fencepost_protocol::Fingerprint;
use json::{Document, NotCanonical, Selection, Sink, Span};
use std::borrow::Cow;

/// Why a request has no fingerprint. Only rules that say `reject` lead here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FingerprintError {
    /// A JSON object has two members of one name, and `duplicate_members` is `reject`.
    #[error("the body has an object with two members of one name")]
    DuplicateMember,
}

/// A request without its body: all header pairs, `:method`, `:path` and `:authority` among them.
#[derive(Clone, Copy)]
pub struct RequestParts<'a> {
    headers: &'a [(Vec<u8>, Vec<u8>)],
}

mod tag {
    pub const METHOD: u8 = 1;
    pub const HOST: u8 = 2;
    pub const HEADER_NAME: u8 = 3;
    pub const HEADER_VALUE: u8 = 4;
    pub const MEDIA_TYPE: u8 = 5;
    pub const CONTENT_CODING: u8 = 6;
    // 16 to 18 are those of `path`, 32 and 33 those of `query`.
    pub const BODY_NONE: u8 = 64;
    pub const BODY_RAW: u8 = 65;
    pub const BODY_JSON: u8 = 66;
    pub const BODY_PROPERTIES: u8 = 67;
}

impl<'a> RequestParts<'a> {
    /// Of a request's header pairs.
    pub fn new(headers: &'a [(Vec<u8>, Vec<u8>)]) -> Self {
        Self { headers }
    }

    /// The request's fingerprint under a policy.
    pub fn fingerprint(
        &self,
        policy: &FingerprintPolicy,
        body: &[u8],
    ) -> Result<Fingerprint, FingerprintError> {
        fingerprint(policy, self, body)
    }

    fn lines(&self, name: &str) -> impl Iterator<Item = &'a [u8]> {
        let named = self.headers.iter().filter(move |(other, _)| other.eq_ignore_ascii_case(name.as_bytes()));
        named.map(|(_, value)| value.as_slice())
    }

    /// All lines of a header as one value, as RFC 9110, section 5.3, joins them.
    fn joined(&self, name: &str) -> Cow<'a, [u8]> {
        let mut lines = self.lines(name);
        let first = lines.next().unwrap_or_default();
        let Some(second) = lines.next() else { return Cow::Borrowed(first) };
        let all: Vec<_> = [first, second].into_iter().chain(lines).collect();
        Cow::Owned(all.join(b", ".as_slice()))
    }
}

impl Sink for Gathered {
    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        self.update(bytes);
    }
}

/// The request's fingerprint under a policy.
pub fn fingerprint(
    policy: &FingerprintPolicy,
    parts: &RequestParts<'_>,
    body: &[u8],
) -> Result<Fingerprint, FingerprintError> {
    let options = policy.options();
    let mut digest = PartsDigest::new("fencepost fingerprint 1");
    digest.part(tag::METHOD, &parts.joined(":method"));
    let target = parts.joined(":path");
    let mut halves = target.splitn(2, |b| *b == b'?');
    path::add(options.path.as_ref(), halves.next().unwrap_or_default(), &mut digest);
    query::add(&options.query, halves.next(), &mut digest);
    if !options.hosts.is_empty() {
        let host = parts.joined(":authority").to_ascii_lowercase();
        if options.hosts.iter().any(|declared| names_host(declared.as_bytes(), &host)) {
            digest.part(tag::HOST, &host);
        }
    }
    for name in &options.headers {
        digest.part(tag::HEADER_NAME, name.as_bytes());
        for line in parts.lines(name) {
            digest.part(tag::HEADER_VALUE, line.trim_ascii());
        }
    }
    let content_type = parts.joined("content-type");
    let coding = media::content_coding(&parts.joined("content-encoding"));
    digest.part(tag::MEDIA_TYPE, &media::media_type(&content_type)).part(tag::CONTENT_CODING, &coding);

    let raw = |mut digest: PartsDigest| {
        digest.part(tag::BODY_RAW, body);
        Ok(Fingerprint::from_bytes(digest.finish()))
    };
    match options.body {
        BodyRule::None => {
            digest.part(tag::BODY_NONE, b"");
            return Ok(Fingerprint::from_bytes(digest.finish()));
        }
        BodyRule::Bytes => return raw(digest),
        BodyRule::Json if !coding.is_empty() || !media::is_json(&content_type) => return raw(digest),
        BodyRule::Json => {}
    }
    match read(options, body) {
        Ok((document, selection)) => Ok(finish_json(&document, &selection, digest)),
        Err(NotCanonical::Duplicate) if options.duplicate_members == DuplicateMembers::Reject => {
            Err(FingerprintError::DuplicateMember)
        }
        Err(NotCanonical::Duplicate | NotCanonical::Unreadable) => raw(digest),
    }
}

/// Whether a declared host names the request's, whose port may be left out in the declaration.
fn names_host(declared: &[u8], host: &[u8]) -> bool {
    declared == host
        || host
            .strip_prefix(declared)
            .and_then(|rest| rest.strip_prefix(b":"))
            .is_some_and(|port| !port.is_empty() && port.iter().all(u8::is_ascii_digit))
}

fn read<'b>(options: &FingerprintOptions, body: &'b [u8]) -> Result<(Document<'b>, Selection), NotCanonical> {
    let document = Document::parse(body, options.duplicate_members, !options.properties.is_empty())?;
    let selection = if options.properties.is_empty() {
        Selection::NotApplicable
    } else {
        json::select(&document, &options.properties, options.duplicate_members)?
    };
    Ok((document, selection))
}

/// The body comes last and ends the digest, so it needs no length. Canonical text has no NUL,
/// which ends each selected value.
fn finish_json(document: &Document<'_>, selection: &Selection, digest: PartsDigest) -> Fingerprint {
    let sink = match selection {
        Selection::NotApplicable => {
            let mut sink = digest.into_stream(tag::BODY_JSON);
            json::write(document, document.root(), &mut sink);
            sink
        }
        Selection::Found(spans) => {
            let mut sink = digest.into_stream(tag::BODY_PROPERTIES);
            for span in spans {
                write_property(document, *span, &mut sink);
            }
            sink
        }
    };
    Fingerprint::from_bytes(sink.finish())
}

fn write_property(document: &Document<'_>, span: Option<Span>, sink: &mut Gathered) {
    match span {
        Some(span) => {
            sink.write(&[1]);
            json::write(document, span, sink);
            sink.write(&[0]);
        }
        None => sink.write(&[0]),
    }
}

#[cfg(test)]
mod tests;
